"""Chinese demo rows (alpaca format): longer and harder than the English ones, so that the two sources differ clearly."""

from __future__ import annotations

import random

from demo_words import CITIES_ZH, GOODS_ZH, NAMES_ZH, distinct, pick, sample
from demo_zh_topics import LISTS, TOPICS

Alpaca = dict[str, str]
_ORDER = ("首先", "其次", "再次", "另外", "最后")


def _row(instruction: str, output: str, source: str = "") -> Alpaca:
    return {"instruction": instruction, "input": source, "output": output}


def _explain(rng: random.Random) -> Alpaca:
    topic = rng.choice(sorted(TOPICS))
    definition, *facts = TOPICS[topic]
    listener, opening = rng.choice(
        (
            ("小学生", "我们用简单的话来说。"),
            ("刚入门的人", "先从最基本的地方讲起。"),
            ("家里的老人", "其实并不复杂。"),
            ("中学生", "可以从几个方面来理解。"),
            ("没有背景知识的读者", "先看它是什么，再看它为什么重要。"),
        )
    )
    question = pick(
        rng,
        "请向{l}解释什么是{t}。",
        "{t}是怎么回事？请讲给{l}听。",
        "用几句话向{l}介绍一下{t}。",
        "假设听众是{l}，请说明{t}及其作用。",
        l=listener,
        t=topic,
    )
    chosen = sample(rng, facts, min(len(facts), rng.randint(2, 3)))
    ending = rng.choice(
        (
            "总之，理解了这些，就抓住了重点。",
            "希望这样的说明对你有帮助。",
            "如果还有疑问，可以再看一个例子。",
            "这就是它的大致情况。",
        )
    )
    joined = "".join(f"{word}，{fact}。" for word, fact in zip(_ORDER, chosen, strict=False))
    return _row(question, f"{opening}{definition}。{joined}{ending}")


def _news(rng: random.Random) -> Alpaca:
    city, month, day = rng.choice(CITIES_ZH), rng.randint(1, 12), rng.randint(1, 28)
    people, money, years = rng.randint(2, 90) * 10, rng.randint(3, 80), rng.randint(2, 9)
    event, detail, effect = rng.choice(
        (
            ("新图书馆正式开放", "馆内有三层阅览室，还为儿童准备了故事角", "居民借书不必再去邻近的城市"),
            ("老桥完成维修", "工人更换了全部木板，并加装了路灯", "上下学的孩子过河更加安全"),
            ("举办社区运动会", "比赛项目包括长跑、跳绳和拔河", "邻里之间的联系变得更紧密"),
            ("开通两条公交线路", "车辆全部使用电力，每隔十五分钟一班", "上班的人平均少花二十分钟"),
            ("建成污水处理站", "每天可以处理附近三个村子的生活污水", "河水明显变清，鱼群重新出现"),
            ("启用社区食堂", "食堂每天提供十二种家常菜，价格不高", "独居老人的吃饭问题得到解决"),
            ("设立夜间诊所", "诊所由六名医生轮流值班，药品齐全", "急病患者不用连夜赶往远处的医院"),
            ("举行传统灯会", "街道两旁挂满手工灯笼，还有戏曲表演", "小店的生意比平时好了一倍"),
            ("推广垃圾分类", "每个小区都安排了讲解员和新的垃圾箱", "可回收物的数量增加了四成"),
        )
    )
    text = (
        f"{month}月{day}日，{city}{event}。据介绍，该项目筹备了{years}年，投入资金约{money}万元，当天有{people}人到场。"
        f"{detail}。一位居民说，大家盼望这件事很久了。负责人表示，今后还会根据意见继续改进。"
    )
    question = pick(
        rng,
        "请用两句话概括下面这段新闻。",
        "阅读短文，写出摘要。",
        "把下面的报道压缩成一段简短的总结，并说明影响。",
        "这段文字主要讲了什么？请概括，并指出带来的变化。",
    )
    answer = (
        f"{month}月{day}日，{city}{event}，{pick(rng, '项目筹备{y}年，花费约{m}万元', '前后准备了{y}年，共投入约{m}万元', y=years, m=money)}。"
        f"{pick(rng, '它带来的变化是', '由此产生的影响是', '结果是')}：{effect}。"
    )
    return _row(question, answer, text)


def _story(rng: random.Random) -> Alpaca:
    hero = rng.choice(
        ("小狐狸", "小兔子", "年轻的木匠", "老渔夫", "牧羊的女孩", "小刺猬", "面包师", "卖花的老人", "小松鼠", "邮差")
    )
    place = rng.choice(("森林边上", "海边的小村", "山脚下", "雪谷里", "河流转弯的地方", "古老的城墙旁", "一片麦田中间"))
    wish = rng.choice(
        (
            "一盏不会熄灭的灯",
            "一把会唱歌的伞",
            "通往星星的梯子",
            "能听懂风声的耳朵",
            "一颗会发光的种子",
            "一张没有画完的地图",
        )
    )
    trouble = rng.choice(
        ("连下了七天大雨", "桥被洪水冲断了", "唯一的钥匙丢了", "天黑得比平时早", "同伴们都不相信", "路上起了很大的雾")
    )
    helper = rng.choice(
        ("一只受伤的乌鸦", "沉默的石匠", "迷路的孩子", "住在井底的青蛙", "赶夜路的商人", "守灯塔的老奶奶")
    )
    deed = rng.choice(
        ("分给对方半块面包", "脱下外套替对方挡雨", "陪对方走了整整一夜", "把自己的火种借给对方", "耐心听完了对方的故事")
    )
    moral = rng.choice(
        (
            "帮助别人，也就是帮助自己",
            "真正的宝物往往不在远方",
            "勇气是一步一步走出来的",
            "耐心会让小小的愿望长大",
            "善意总会找到回家的路",
        )
    )
    question = pick(
        rng,
        "写一个关于{h}的小故事，结尾要有道理。",
        "请以“{h}”和“{w}”为题材编一个童话。",
        "给孩子讲一个发生在{p}的睡前故事，主角是{h}。",
        "编写一则短篇寓言：{h}想得到{w}。",
        h=hero,
        w=wish,
        p=place,
    )
    middle = pick(rng, "可是出发那天，{t}。", "不巧的是，{t}，谁也不敢动身。", "没想到，{t}。", t=trouble)
    meeting = pick(
        rng, "半路上，{h}遇见了{x}，于是{d}。", "就在这时，{x}出现了，{h}没有犹豫，{d}。", h=hero, x=helper, d=deed
    )
    close = pick(rng, "第二天清晨，{x}带着它找到了{w}。", "后来，{x}悄悄把{w}放在了门口。", x=helper, w=wish)
    return _row(
        question, f"从前，{place}住着{hero}，心里一直想要{wish}。{middle}{meeting}{close}从此大家都明白：{moral}。"
    )


def _shopping(rng: random.Random) -> Alpaca:
    name = rng.choice(NAMES_ZH)
    (a, unit_a, price_a), (b, unit_b, price_b) = sample(rng, GOODS_ZH, 2)
    n, m = rng.randint(2, 9), rng.randint(1, 6)
    total = n * price_a + m * price_b
    paid = (total // 50 + rng.randint(1, 2)) * 50
    text = f"{name}买了{n}{unit_a}{a}，每{unit_a}{price_a}元；又买了{m}{unit_b}{b}，每{unit_b}{price_b}元。付给店员{paid}元，应找回多少钱？"
    answer = (
        f"第一步，{a}的价钱是{n}×{price_a}={n * price_a}元。第二步，{b}的价钱是{m}×{price_b}={m * price_b}元。"
        f"第三步，合计{n * price_a}+{m * price_b}={total}元。第四步，找回{paid}-{total}={paid - total}元。"
        f"{pick(rng, '答：应找回{c}元。', '所以店员要找给{n}{c}元。', c=paid - total, n=name)}"
    )
    return _row(
        pick(rng, "请一步一步解答下面的应用题。", "写出计算过程并给出答案。", "解题，并说明每一步的理由。"),
        answer,
        text,
    )


def _travel(rng: random.Random) -> Alpaca:
    start, end = sample(rng, CITIES_ZH, 2)
    speed, hours, rest = rng.randint(4, 12) * 10, rng.randint(2, 6), rng.randint(1, 3) * 10
    leave = rng.randint(6, 11)
    far = speed * hours
    text = f"一辆汽车早上{leave}点从{start}出发，以每小时{speed}千米的速度开往{end}，两地相距{far}千米，中途休息{rest}分钟。什么时候到达？"
    answer = (
        f"先求行驶时间：路程除以速度，{far}÷{speed}={hours}小时。再加上休息的{rest}分钟，一共需要{hours}小时{rest}分钟。"
        f"从{leave}点开始计算，{leave}+{hours}={leave + hours}，再过{rest}分钟。因此汽车在{leave + hours}点{rest}分到达{end}。"
    )
    return _row(
        pick(rng, "请分析题意，逐步推理。", "一步一步算出到达时间。", "解答行程问题，写清楚思路。"), answer, text
    )


def _ranking(rng: random.Random) -> Alpaca:
    a, b, c, d = sample(rng, NAMES_ZH, 4)
    word, most, least = rng.choice(
        (("高", "最高", "最矮"), ("快", "最快", "最慢"), ("大", "年纪最大", "年纪最小"), ("早", "来得最早", "来得最晚"))
    )
    facts = [f"{a}比{b}{word}", f"{b}比{c}{word}", f"{c}比{d}{word}"]
    shown = sample(rng, facts, 3)
    text = f"已知：{shown[0]}，{shown[1]}，{shown[2]}。谁{most}，谁{least}？"
    answer = (
        f"把条件按顺序连起来：{facts[0]}，而{facts[1]}，所以{a}也比{c}{word}；又因为{facts[2]}，可以排出{a}、{b}、{c}、{d}的次序。"
        f"由此可见，{a}{most}，{d}{least}。"
    )
    return _row(
        pick(rng, "根据条件进行推理，并说明理由。", "请写出推理过程。", "这是一道逻辑题，请一步一步分析。"),
        answer,
        text,
    )


def _list(rng: random.Random) -> Alpaca:
    topic = rng.choice(sorted(LISTS))
    count = rng.randint(4, 5)
    tips = sample(rng, LISTS[topic], count)
    question = pick(
        rng,
        "关于{t}，请列出{n}条建议。",
        "请给出{n}个{t}的要点，并分条说明。",
        "我想了解{t}，请列一个有{n}项的清单。",
        "整理{n}条{t}的注意事项。",
        t=topic,
        n="四" if count == 4 else "五",
    )
    lines = "\n".join(f"{i}. {tip}。" for i, tip in enumerate(tips, 1))
    return _row(
        question, f"{pick(rng, '以下是{t}的建议：', '{t}可以注意这几点：', '我的清单如下：', t=topic)}\n{lines}"
    )


def _letter(rng: random.Random) -> Alpaca:
    sender, receiver = sample(rng, NAMES_ZH, 2)
    month, day, place = rng.randint(1, 12), rng.randint(1, 28), rng.choice(CITIES_ZH)
    what, reason, wish = rng.choice(
        (
            ("请假", "家里老人需要去医院检查", "未完成的工作我会在回来后尽快补上"),
            ("邀请参加生日聚会", "想和朋友们一起度过这个特别的日子", "请提前告诉我你是否方便"),
            ("道歉", "上次约好见面却迟到了一个小时", "我保证以后提前安排好时间"),
            ("感谢", "搬家的时候得到了很多帮助", "改天请一定来新家坐坐"),
            ("通知会议改期", "会议室正在维修，原来的时间无法使用", "请把材料提前一天发给大家"),
            ("推荐一次旅行", "那里的秋天景色很美，人也不多", "如果有兴趣，我们可以一起订票"),
        )
    )
    question = f"请替{sender}给{receiver}写一封信，内容是{what}，日期是{month}月{day}日，地点在{place}。"
    answer = (
        f"亲爱的{receiver}：\n{pick(rng, '你好！好久没有联系，最近还顺利吗？', '见信好！希望你一切都好。', '你好！有一件事想对你说。')}"
        f"这次写信是为了{what}，因为{reason}。时间是{month}月{day}日，地点在{place}。{wish}。"
        f"{pick(rng, '祝身体健康！', '祝工作顺利！', '期待你的回信。')}\n{sender}"
    )
    return _row(question, answer)


_MAKERS = (
    _explain,
    _explain,
    _explain,
    _news,
    _news,
    _story,
    _story,
    _shopping,
    _travel,
    _ranking,
    _list,
    _list,
    _letter,
)


def chinese_rows(rng: random.Random, count: int) -> list[Alpaca]:
    """``count`` rows with different answers and different questions (instruction and input taken together)."""
    answers: set[object] = set()

    def fresh(r: random.Random) -> Alpaca:
        # The same explanation can answer two phrasings: a copy would leak from the training into the validation rows.
        for _ in range(1000):
            row = rng.choice(_MAKERS)(r)
            if row["output"] not in answers:
                answers.add(row["output"])
                return row
        raise ValueError("the Chinese templates gave no new answer in 1000 tries: add templates or lower the count")

    return distinct(fresh, rng, count, key=lambda row: (row["instruction"], row["input"]))
