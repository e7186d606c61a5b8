"""The Chinese scenarios of the multi-turn demo sets; each returns four rounds that build on each other."""

from __future__ import annotations

import random

from demo_words import CITIES_ZH, GOODS_ZH, NAMES_ZH, pick, sample

Round = tuple[str, str]


def _booking(rng: random.Random) -> list[Round]:
    name, people, hour = rng.choice(NAMES_ZH), rng.randint(2, 12), rng.randint(11, 20)
    place, later = rng.choice(("靠窗的位置", "安静的包间", "二楼的圆桌", "院子里的座位")), rng.randint(1, 2)
    return [
        (
            pick(rng, "你好，我想订{h}点的座位，{p}个人。", "请帮我留一桌，{p}位，{h}点到。", h=hour, p=people),
            f"好的，{people}位，{hour}点。请问您贵姓，对座位有要求吗？",
        ),
        (
            pick(rng, "我叫{n}，想要{s}。", "{n}，最好是{s}。", n=name, s=place),
            f"{name}您好，已经为您留好{place}，{hour}点见。",
        ),
        (
            pick(rng, "能改晚{k}个小时吗？", "临时有事，推迟{k}小时可以吗？", k=later),
            f"可以，时间改为{hour + later}点，{place}继续为您保留。",
        ),
        (
            pick(rng, "谢谢，需要交押金吗？", "太好了，要先付钱吗？"),
            f"不用押金。如果超过{hour + later}点半没有到，座位会自动取消。",
        ),
    ]


def _refund(rng: random.Random) -> list[Round]:
    (thing, unit, price), number = rng.choice(GOODS_ZH), rng.randint(1000, 9999)
    count, fault = rng.randint(1, 5), rng.choice(("有裂纹", "颜色不对", "少了配件", "包装破损", "和图片不一样"))
    total = count * price
    return [
        (
            pick(rng, "我买的{t}{f}，订单号{n}。", "订单{n}里的{t}{f}，怎么办？", t=thing, f=fault, n=number),
            f"很抱歉。订单{number}一共{count}{unit}{thing}，请问您想退款还是换货？",
        ),
        (pick(rng, "我要退款。", "还是退钱吧。"), f"明白。{count}{unit}{thing}合计{total}元，将退回原来的账户。"),
        (
            pick(rng, "需要把{t}寄回去吗？", "东西要寄回吗？", t=thing),
            f"需要。请把{thing}放回原来的盒子，运费由我们承担。",
        ),
        (pick(rng, "多久能收到{m}元？", "钱几天到账？", m=total), f"我们收到货以后，三个工作日内{total}元就会到账。"),
    ]


def _cooking(rng: random.Random) -> list[Round]:
    main, side = (
        rng.choice(("土豆", "豆腐", "茄子", "鸡蛋", "白菜", "南瓜")),
        rng.choice(("青椒", "蘑菇", "番茄", "木耳", "胡萝卜")),
    )
    people, minutes = rng.randint(2, 6), rng.randint(8, 25)
    taste = rng.choice(("清淡", "微辣", "酸甜", "咸香"))
    return [
        (
            pick(rng, "家里有{m}和{s}，能做什么？", "只剩{m}、{s}了，晚饭怎么办？", m=main, s=side),
            f"可以做{side}炒{main}，简单又下饭。几个人吃，喜欢什么口味？",
        ),
        (
            pick(rng, "{p}个人，口味{t}。", "我们{p}口人，想吃{t}的。", p=people, t=taste),
            f"那就准备{people}份的量：{main}切块，{side}切片，调料按{taste}的口味来配。",
        ),
        (pick(rng, "大概要炒多久？", "需要几分钟？"), f"先把{main}煮软，再放{side}，前后大约{minutes}分钟。"),
        (pick(rng, "怎样不粘锅？", "老是粘锅怎么办？"), f"锅要先烧热再倒油，放入{main}以后不要马上翻动。"),
    ]


def _travel(rng: random.Random) -> list[Round]:
    start, end = sample(rng, CITIES_ZH, 2)
    days, money = rng.randint(2, 6), rng.randint(5, 40) * 100
    like = rng.choice(("看风景", "尝小吃", "逛老街", "爬山", "看展览", "拍照片"))
    return [
        (
            pick(rng, "我想从{a}去{b}玩{d}天。", "{d}天假期，打算从{a}到{b}，有什么建议？", a=start, b=end, d=days),
            f"从{start}到{end}坐火车最方便。{days}天的话，可以住在市中心。您更喜欢做什么？",
        ),
        (
            pick(rng, "主要想{k}。", "我比较喜欢{k}。", k=like),
            f"那第一天先熟悉{end}，之后安排{days - 1}天{like}，早上人最少。",
        ),
        (
            pick(rng, "预算{m}元够吗？", "我只有{m}元。", m=money),
            f"{money}元分到{days}天，每天大约{money // days}元，{'比较宽裕' if money // days > 400 else '需要省着用'}。",
        ),
        (pick(rng, "要提前订票吗？", "票什么时候买？"), f"建议提前一周订好{start}到{end}的车票，节假日要更早。"),
    ]


def _study(rng: random.Random) -> list[Round]:
    subject, weeks = rng.choice(("英语", "数学", "物理", "历史", "编程", "书法")), rng.randint(3, 12)
    hours, weak = rng.randint(1, 4), rng.choice(("基础不牢", "容易分心", "记了就忘", "做题太慢", "没有计划"))
    return [
        (
            pick(rng, "还有{w}周考{s}，来得及吗？", "离{s}考试只剩{w}周，我很着急。", w=weeks, s=subject),
            f"{weeks}周时间不算少。先说说{subject}学得怎么样，哪里最困难？",
        ),
        (pick(rng, "主要是{k}。", "老师说我{k}。", k=weak), f"{weak}是可以改善的。您每天能拿出几个小时？"),
        (
            pick(rng, "每天{h}个小时。", "大概{h}小时吧。", h=hours),
            f"那么{weeks}周共有{weeks * 7 * hours}个小时，一半用来补{subject}的重点，一半用来练习。",
        ),
        (
            pick(rng, "坚持不下去怎么办？", "我怕半途而废。"),
            f"把目标写小一点，每完成一天就画一个勾，针对{weak}每周总结一次。",
        ),
    ]


def _health(rng: random.Random) -> list[Round]:
    pain, days = rng.choice(("头疼", "腰酸", "失眠", "咳嗽", "眼睛干", "胃不舒服")), rng.randint(2, 9)
    habit, minutes = rng.choice(("熬夜", "久坐", "吃得太辣", "看手机太久", "喝水太少")), rng.randint(2, 6) * 10
    return [
        (
            pick(rng, "我{p}已经{d}天了。", "最近{d}天一直{p}，该怎么办？", p=pain, d=days),
            f"{pain}{days}天确实难受。最近作息和饮食有变化吗？",
        ),
        (pick(rng, "可能是{h}。", "最近经常{h}。", h=habit), f"{habit}很可能是原因之一，建议先把这个习惯改掉。"),
        (pick(rng, "还能做些什么？", "有简单的办法吗？"), f"每天散步{minutes}分钟，按时休息，并记录{pain}的变化。"),
        (
            pick(rng, "什么时候该去医院？", "要不要看医生？"),
            f"如果再过三天{pain}仍没有减轻，或者突然加重，请尽快就医。",
        ),
    ]


ZH_SCENES = (_booking, _refund, _cooking, _travel, _study, _health)
