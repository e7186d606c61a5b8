"""Chinese running text for the tiny base model: diaries, facts, opinions, talk, sums. No template of the demo sets is used."""

from __future__ import annotations

import random
from collections.abc import Callable

from demo_words import CITIES_ZH, GOODS_ZH, NAMES_ZH, pick, sample
from pretrain_words import ZH_CHARACTERS, ZH_FACTS, ZH_WORDS
from pretrain_zh_themes import errand, exposition, remark

_PLACES = tuple(("学校 市场 公园 医院 车站 图书馆 河边 山上 家里 公司 商店 餐馆 酒店 电影院 操场 厨房").split())
_TIMES = tuple(("早上 中午 下午 傍晚 晚上 周末 上个月 去年冬天 放学以后 下班的路上").split())
_WEATHER = tuple(("晴天 阴天 下着小雨 刮着大风 下着大雪 有一点雾").split())
_JOBS = tuple(("老师 医生 司机 农民 厨师 店员 工人 警察 护士 学生 木匠 记者").split())
_ACTS = tuple(
    (
        "买了一些水果 遇见了老朋友 丢了一把钥匙 看了一场电影 修好了旧自行车 读完了一本书 等了半个小时的车 "
        "学会了做菜 帮老人提行李 写了一封长信 画了一张地图 种下了一棵树 捡到一个钱包 参加了一次比赛 "
        "整理了房间 给家人打了电话"
    ).split()
)
_PLEASED = ("很高兴", "非常满意", "心里很舒服", "一直称赞", "还想再来", "笑了起来")
_ANNOYED = ("十分难过", "有些后悔", "很失望", "一肚子气", "再也不想来", "摇了摇头")
_MOODS = (
    "很高兴",
    "有点累",
    "非常激动",
    "十分难过",
    "觉得奇怪",
    "心里很平静",
    "又惊又喜",
    "有些后悔",
    "非常满意",
    "很失望",
)
_THINGS = tuple(("饭菜 服务 房间 手机 电影 快递 衣服 课程 风景 水果 电池 音乐 包装 早餐 老师 价格").split())
_GOOD = tuple(("好 不错 让人满意 值得推荐 又便宜又好 比想象的好 质量很高 令人开心 干净 方便 实惠 精彩").split())
_BAD = tuple(("差 很糟糕 让人失望 不值这个钱 又贵又慢 比想象的差 质量很低 令人生气 脏乱 麻烦 离谱 无聊").split())
_PLAIN = ("一般", "还可以", "和平时一样", "没有什么特别", "普通", "不好也不坏", "按规定办理", "马马虎虎")
_DIGITS = "零一二三四五六七八九十"


def _diary(rng: random.Random) -> str:
    one, two = sample(rng, NAMES_ZH, 2)
    parts = [
        pick(
            rng,
            "{t}，{n}在{p}{a}。",
            "{m}月{d}日，{w}，{n}去了{p}。",
            "{n}是一名{j}，住在{c}。",
            "我的邻居{n}是{j}，他常常说起在{p}的事。",
            t=rng.choice(_TIMES),
            n=one,
            p=rng.choice(_PLACES),
            a=rng.choice(_ACTS),
            m=rng.randint(1, 12),
            d=rng.randint(1, 28),
            w=rng.choice(_WEATHER),
            j=rng.choice(_JOBS),
            c=rng.choice(CITIES_ZH),
        ),
        pick(
            rng,
            "他在那里{a}，{f}。",
            "路上{w}，大家走得很慢。",
            "{x}也来了，两个人聊了很久。",
            "因为人太多，只好先到{p}去。",
            a=rng.choice(_ACTS),
            f=rng.choice(_MOODS),
            w=rng.choice(_WEATHER),
            x=two,
            p=rng.choice(_PLACES),
        ),
        pick(
            rng,
            "后来{x}{a}，{f}。",
            "“你为什么不早说？”{x}问。",
            "{n}想了想，决定{t}再来。",
            "没过多久，他们一起{a}。",
            x=two,
            n=one,
            a=rng.choice(_ACTS),
            f=rng.choice(_MOODS),
            t=rng.choice(_TIMES),
        ),
        pick(
            rng,
            "回到{p}的时候，天已经黑了。",
            "这件事让{n}{f}。",
            "从那天起，{n}和{x}成了好朋友。",
            "第二天，{n}把这件事告诉了{j}。",
            p=rng.choice(_PLACES),
            n=one,
            f=rng.choice(_MOODS),
            x=two,
            j=rng.choice(_JOBS),
        ),
    ]
    return "".join(parts[: rng.randint(2, 4)])


def _facts(rng: random.Random) -> str:
    return "。".join(sample(rng, ZH_FACTS, rng.randint(2, 4))) + "。"


def _why(rng: random.Random) -> str:
    fact, other = sample(rng, ZH_FACTS, 2)
    return pick(
        rng,
        "我们知道，{a}。同样的道理，{b}。",
        "书上写着：{a}；还写着：{b}。",
        "老师说{a}，学生们又补充说{b}。",
        "为什么{a}？这要从自然规律说起。此外，{b}。",
        a=fact,
        b=other,
    )


def _opinion(rng: random.Random) -> str:
    thing, other = sample(rng, _THINGS, 2)
    words, others, moods = rng.choice(
        (
            (_GOOD, _GOOD, _PLEASED),
            (_BAD, _BAD, _ANNOYED),
            (_PLAIN, _PLAIN, ("没有多说",)),
            (_GOOD, _BAD, ("拿不定主意",)),
        )
    )
    return pick(
        rng,
        "{p}的{a}{x}，{b}{y}。",
        "{n}觉得{a}{x}，至于{b}，只能说{y}。",
        "有人说{a}{x}；有人说{b}{y}。大家听了，{f}。",
        "{t}我第一次去{p}，{a}{x}，{b}{y}，{f}。",
        "问起{p}怎么样，{n}回答：{a}{x}，{b}{y}。",
        "这里的{a}实在{x}，难怪{n}{f}。",
        p=rng.choice(_PLACES),
        a=thing,
        b=other,
        x=rng.choice(words),
        y=rng.choice(others),
        n=rng.choice(NAMES_ZH),
        t=rng.choice(_TIMES),
        f=rng.choice(moods),
    )


def _sums(rng: random.Random) -> str:
    a, b = rng.randint(1, 60), rng.randint(1, 40)
    good, unit, price = rng.choice(GOODS_ZH)
    x, y = rng.randint(1, 5), rng.randint(1, 5)
    return rng.choice(
        (
            f"{a}+{b}={a + b}，{a + b}-{b}={a}，{x}×{price}={x * price}，{x * price}÷{x}={price}。",
            f"{_DIGITS[x]}加{_DIGITS[y]}等于{_DIGITS[x + y]}，{_DIGITS[x + y]}减{_DIGITS[x]}等于{_DIGITS[y]}。",
            f"一{unit}{good}卖{price}元，{x}{unit}就是{x}×{price}={x * price}元，再加{a}元，共{x * price + a}元。",
            f"{rng.choice(CITIES_ZH)}离{rng.choice(CITIES_ZH)}有{a * 10}千米，坐车要{x}小时{b}分钟。",
            f"店里有{a}{unit}{good}，卖掉一些以后又进了{b}{unit}，{rng.choice(NAMES_ZH)}都记在本子上。",
        )
    )


def _talk(rng: random.Random) -> str:
    one, two = sample(rng, NAMES_ZH, 2)
    good = rng.choice(GOODS_ZH)
    return pick(
        rng,
        "{a}：{t}有空吗？\n{b}：有，我们去{p}吧。\n{a}：好，记得带{g}。",
        "{a}：你看见我的{g}了吗？\n{b}：好像在{p}。\n{a}：谢谢，我去找找。",
        "{a}：这{u}{g}多少钱？\n{b}：{m}元，您要几{u}？\n{a}：先来{k}{u}。",
        "问：{p}在哪里？\n答：一直往前走，就在{q}旁边。",
        "问：{n}做什么工作？\n答：{n}是{j}，在{c}上班。",
        "{a}：听说你{f}？\n{b}：是啊，{t}{x}。\n{a}：那就好好休息。",
        a=one,
        b=two,
        t=rng.choice(_TIMES),
        p=rng.choice(_PLACES),
        q=rng.choice(_PLACES),
        g=good[0],
        u=good[1],
        m=good[2],
        k=rng.randint(2, 9),
        n=rng.choice(NAMES_ZH),
        j=rng.choice(_JOBS),
        c=rng.choice(CITIES_ZH),
        f=rng.choice(_MOODS),
        x=rng.choice(_ACTS),
    )


def _notice(rng: random.Random) -> str:
    return pick(
        rng,
        "通知：{c}的{p}从{m}月{d}日起暂停开放，请大家相互转告。",
        "{c}今天{w}，气温{d}度，出门请注意安全。",
        "本店招{j}两名，每月{k}00元，地点在{c}{p}旁。",
        "怎样去{p}？第一，走到路口；第二，向左转；第三，再走{d}分钟就到。",
        "{n}：请把{g}放在{p}，我{t}来取。",
        "{c}有{d}万人口，最有名的是那里的{g}和{x}。",
        c=rng.choice(CITIES_ZH),
        p=rng.choice(_PLACES),
        m=rng.randint(1, 12),
        d=rng.randint(1, 28),
        w=rng.choice(_WEATHER),
        j=rng.choice(_JOBS),
        k=rng.randint(20, 90),
        n=rng.choice(NAMES_ZH),
        g=rng.choice(GOODS_ZH)[0],
        t=rng.choice(_TIMES),
        x=rng.choice(_THINGS),
    )


def _glossary(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return "认字练习\n" + "\n".join(sample(rng, ZH_CHARACTERS, 8))
    words = sample(rng, ZH_WORDS, 8)
    return pick(rng, "今天学习的词语\n{w}", "抄写下列词语\n{w}", "词典目录\n{w}", w="\n".join(words))


def _made_up(rng: random.Random) -> str:
    one, two, three = sample(rng, ZH_WORDS, 3)
    return pick(
        rng,
        "说到{a}，人们常常会想到{b}和{c}。",
        "{n}不懂{a}，却很了解{b}。",
        "没有{a}，也就没有{b}，更谈不上{c}。",
        "这本书先讲{a}，再讲{b}，最后讲到{c}。",
        "关于{a}的问题，{j}认为和{b}有关。",
        a=one,
        b=two,
        c=three,
        n=rng.choice(NAMES_ZH),
        j=rng.choice(_JOBS),
    )


ZH_WRITERS: tuple[Callable[[random.Random], str], ...] = (
    *(_diary, _diary, _facts, _why, _opinion, _opinion, _sums, _talk, _notice, _glossary, _glossary, _made_up),
    *(exposition, exposition, exposition, remark, remark, remark, errand, errand),
)
