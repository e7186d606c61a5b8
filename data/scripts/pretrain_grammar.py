"""Free sentences from a small grammar over wide word lists.

Templates alone make a model certain that nothing else can follow, and any other text then costs more than guessing.
These sentences keep the next word open, as in real text, while their grammar can still be learned.
"""

from __future__ import annotations

import random

from demo_words import CITIES_ZH, NAMES, NAMES_ZH, THINGS, pick, sample
from pretrain_words import EN_WORDS, ZH_CHARACTERS, ZH_WORDS

_VERBS = tuple(
    (
        "说 看 听 写 读 走 跑 买 卖 送 给 拿 放 找 等 问 答 想 讲 做 吃 喝 开 关 打 学 教 帮 用 改 选 寄 退 住 来 去 到 带 换 付 收 存 借 还 "
        "知道 认为 觉得 希望 需要 应当 可以 能够 开始 继续 停止 变成 成为 属于 包括 影响 引起 避免 减少 增加 提高 降低 改变 保持 保护 利用 使用 研究 说明 "
        "解释 介绍 总结 比较 分析 计算 准备 安排 组织 参加 完成 解决 发现 了解 理解 记住 忘记 注意 检查 整理 打开 关上 收到 离开 到达 经过 遇见 告诉 "
        "回答 帮助 照顾 尊重 相信 推荐 喜欢 讨厌 感谢 道歉 邀请 通知 等待 坚持 放弃 选择 购买 付款 建成 举行 开放 维修 安装 制作 加热 分开 靠近 适合"
    ).split()
)
_ADJECTIVES = tuple(
    (
        "大 小 高 低 长 短 快 慢 新 旧 好 坏 多 少 早 晚 轻 重 冷 热 干净 安静 漂亮 简单 复杂 重要 普通 特别 清楚 模糊 方便 麻烦 便宜 贵 安全 危险 健康 新鲜 "
        "温和 热情 冷淡 耐心 认真 粗心 聪明 诚实 勇敢 善良 年轻 古老 传统 现代 有趣 无聊 精彩 糟糕 舒服 难受 满意 失望 高兴 难过 及时 缓慢 稳定 突然 明显 "
        "合理 离谱 丰富 贫乏 宽敞 狭小 明亮 昏暗 结实 破旧 准确 错误 必要 多余 相同 不同 共同 唯一 主要 常见 少见 全部 部分"
    ).split()
)
_ADVERBS = tuple(
    (
        "也 都 就 才 还 又 再 很 太 更 最 只 正 已经 正在 马上 常常 往往 一直 总是 有时 从来 终于 忽然 慢慢 渐渐 尽量 尽快 可能 一定 也许 大概 几乎 甚至 "
        "尤其 非常 十分 比较 有点 稍微 完全 重新 互相 一起 提前 按时 同样 真 不 没有 不要 不会 不能 不得不 并不"
    ).split()
)
_LINKS = (
    "，",
    "，",
    "，",
    "，而且",
    "，但是",
    "，所以",
    "，因为",
    "，如果",
    "，不过",
    "，同时",
    "，然后",
    "，于是",
    "，虽然",
    "，或者",
    "；",
    "，其中",
    "，这样",
    "，可是",
    "，因此",
    "，例如",
    "，只要",
    "，即使",
    "，另外",
    "，结果",
    "，只是",
    "，至于",
)
_PRONOUNS = tuple(("我 你 他 她 它 我们 你们 他们 大家 人们 有人 自己 这 那 谁 您 孩子 老人 朋友").split())
_MEASURES = tuple(("个 种 只 本 件 次 天 年 位 条 张 块 些 元 小时 分钟 斤 遍 步 点").split())
_TIMES = tuple(
    ("今天 昨天 明天 现在 后来 以前 从前 早上 晚上 最近 上周 这时 每天 有一天 春天 夏天 第二天 当时 以后 周末").split()
)
_STARTS = (
    "",
    "",
    "",
    "",
    "首先，",
    "其次，",
    "最后，",
    "总之，",
    "其实，",
    "一般来说，",
    "比如，",
    "由此可见，",
    "据说，",
    "当然，",
    "第一，",
    "第二，",
    "第三，",
    "好的，",
    "抱歉，",
    "谢谢，",
    "答：",
    "另外，",
    "请注意，",
    "原来，",
    "没想到，",
    "可惜，",
)
_ENDS = ("。", "。", "。", "。", "。", "！", "？", "吧。", "了。", "的。", "吗？", "呢？")


def _noun(rng: random.Random) -> str:
    word = rng.choice(rng.choice((ZH_WORDS, ZH_WORDS, ZH_WORDS, _PRONOUNS, NAMES_ZH, CITIES_ZH, ZH_CHARACTERS)))
    kind = rng.random()
    if kind < 0.2:
        return f"{rng.choice(_ADJECTIVES)}的{word}"
    if kind < 0.3:
        return f"{rng.choice(ZH_WORDS)}的{word}"
    if kind < 0.4:
        number = rng.choice(("一", "两", "三", "几", "这", "那", "每", "许多", "十", str(rng.randint(1, 100))))
        return f"{number}{rng.choice(_MEASURES)}{word}"
    if kind < 0.45:
        return f"{word}和{rng.choice(ZH_WORDS)}"
    return word


def _clause(rng: random.Random) -> str:
    return pick(
        rng,
        "{a}{v}{b}",
        "{a}{d}{v}{b}",
        "{a}{d}{j}",
        "{a}是{b}",
        "{a}的{c}{d}{j}",
        "把{a}{v}到{b}里",
        "{t}{a}{v}了{b}",
        "{a}在{b}{v}{c}",
        "{a}让{b}{d}{j}",
        "{v}{a}",
        "{d}{v}{a}",
        "{a}比{b}{j}",
        "{a}被{b}{v}了",
        "{a}对{b}{d}{j}",
        "{a}从{b}{v}到{c}",
        "对于{a}来说，{b}{d}{j}",
        "有{a}，也有{b}",
        "{a}可以{v}{b}",
        "{v}的{a}{d}{w}{b}",
        "{a}需要{v}，不要{w}",
        "{a}和{b}{d}{v}",
        "{t}，{a}{d}{v}",
        "{a}离{b}{j}",
        "为了{a}，{b}{v}{c}",
        "{a}说：“{b}{v}{c}”",
        "{a}{v}起来{d}{j}",
        "{a}{v}得{d}{j}",
        "{d}{j}的{a}",
        "{a}有{n}{m}",
        "{n}{m}{a}{d}{v}",
        "请{v}{a}",
        "{a}一{v}，{b}就{w}",
        "{j}又{k}",
        "什么是{a}",
        a=_noun(rng),
        b=_noun(rng),
        c=_noun(rng),
        v=rng.choice(_VERBS),
        w=rng.choice(_VERBS),
        d=rng.choice(_ADVERBS),
        j=rng.choice(_ADJECTIVES),
        k=rng.choice(_ADJECTIVES),
        t=rng.choice(_TIMES),
        n=rng.randint(1, 100),
        m=rng.choice(_MEASURES),
    )


def zh_sentence(rng: random.Random) -> str:
    """One sentence of one to four clauses."""
    text = rng.choice(_STARTS) + _clause(rng)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        text += rng.choice(_LINKS) + _clause(rng)
    return text + rng.choice(_ENDS)


def zh_free(rng: random.Random) -> str:
    """A paragraph, a list, a letter or steps."""
    kind = rng.random()
    if kind < 0.7:
        return "".join(zh_sentence(rng) for _ in range(rng.randint(1, 4)))
    if kind < 0.85:
        head = pick(rng, "{a}有这些：", "说一说{a}：", "记下{a}：", a=_noun(rng))
        return head + "\n" + "\n".join(f"{i}. {zh_sentence(rng)}" for i in range(1, rng.randint(3, 6)))
    if kind < 0.93:
        return "".join(f"第{word}步，{_clause(rng)}。" for word in "一二三四"[: rng.randint(2, 4)])
    one, two = sample(rng, NAMES_ZH, 2)
    return f"亲爱的{one}：\n{zh_sentence(rng)}{zh_sentence(rng)}\n{two}"


_ARTICLES = tuple(("the the the a this that my your his her our every no some which").split())
_EN_VERBS = tuple(
    (
        "is was has had can will gives takes makes needs wants likes sees finds keeps holds shows tells asks says means comes goes starts stops "
        "gets puts adds counts sells pays costs leaves brings names opens closes writes reads sorts moves waits works helps knows thinks"
    ).split()
)
_PREPOSITIONS = tuple(("in on at of for from to with by after before between than and or about into").split())
_PLAIN_THINGS = tuple(thing for group in sorted(THINGS) for thing in THINGS[group])


def _en_noun(rng: random.Random) -> str:
    kind = rng.random()
    if kind < 0.15:
        return rng.choice(NAMES)
    if kind < 0.25:
        return str(rng.randint(0, 200))
    word = rng.choice(rng.choice((EN_WORDS, EN_WORDS, _PLAIN_THINGS)))
    if kind < 0.45:
        return word
    return f"{rng.choice(_ARTICLES)} {word}"


def en_sentence(rng: random.Random) -> str:
    """One sentence, question or list of words."""
    text = pick(
        rng,
        "{a} {v} {b}",
        "{a} {v} {b} {p} {c}",
        "{p} {a}, {b} {v} {c}",
        "what {v} {a} {p} {b}",
        "which {w} {v} {a}",
        "{a}, {b} and {c}",
        "{w} {a} {p} {b}",
        "if {a} {v} {b}, {c} {u} {w}",
        "{a} {v} not {w} but {x}",
        "how many {w} {v} {a}",
        "the {w} of {a} {v} {b}",
        "please {w} {a} {p} {b}",
        "is {a} {w} or {x}",
        "{a}: {b}",
        "'{w}' {v} {b}",
        "yes, {a} {v} {b}",
        "no, {a} {v} {b}",
        "{w} {x} {y}",
        a=_en_noun(rng),
        b=_en_noun(rng),
        c=_en_noun(rng),
        v=rng.choice(_EN_VERBS),
        u=rng.choice(_EN_VERBS),
        p=rng.choice(_PREPOSITIONS),
        w=rng.choice(EN_WORDS),
        x=rng.choice(EN_WORDS),
        y=rng.choice(_PLAIN_THINGS),
    )
    return text[0].upper() + text[1:] + rng.choice((".", ".", ".", "?", "!", ""))


def en_free(rng: random.Random) -> str:
    """A paragraph of one to four sentences."""
    return " ".join(en_sentence(rng) for _ in range(rng.randint(1, 4)))
