"""Chinese reviews with one of three labels: mostly plain, one in ten hard, a few mislabelled as in any real set."""

from __future__ import annotations

import random

from demo_sentiment_words import CLOSERS, DOMAINS, OPENERS, WHEN, Aspect
from demo_words import distinct, pick, sample

LABELS: tuple[str, ...] = ("积极", "消极", "中立")
SHARES: tuple[float, ...] = (0.40, 0.3467, 0.2533)
HARD_SHARE = 0.10
WRONG_SHARE = 0.03
_COLUMN = {"积极": 0, "消极": 1, "中立": 2}

Review = dict[str, str]


def _scene(rng: random.Random) -> tuple[str, list[Aspect]]:
    names, aspects = DOMAINS[rng.choice(sorted(DOMAINS))]
    return rng.choice(names), sample(rng, list(aspects.values()), 3)


def _plain(rng: random.Random, label: str) -> str:
    thing, aspects = _scene(rng)
    remarks = [rng.choice(aspect[_COLUMN[label]]) for aspect in aspects[: rng.choice((1, 2, 2, 3))]]
    middle = rng.choice(("，", "，", "，而且" if label != "中立" else "，另外", "，同时")).join(remarks[:2])
    if len(remarks) == 3:
        middle += f"，{remarks[2]}"
    colon = rng.choice(("", "", "，", "："))
    return f"{rng.choice(OPENERS[label])}{rng.choice(WHEN)}{thing}{colon}{middle}{rng.choice(CLOSERS[label])}"


def _hard(rng: random.Random, label: str) -> str:
    """Irony, a turn after "but", a negated negative, or praise and blame in balance."""
    thing, (one, two, _) = _scene(rng)
    good, bad, good_too, bad_too = rng.choice(one[0]), rng.choice(two[1]), rng.choice(two[0]), rng.choice(one[1])
    if label == "积极":
        return pick(
            rng,
            "本来以为{t}会让人失望，结果{g}，{h}，是我想多了。",
            "别人都说{t}不行，我却觉得没有那么糟，{g}，{h}。",
            "虽然{b}，不过{g}，总的来说{t}还是值得的，我会再选。",
            "{t}不是没有缺点，可{g}，{h}，找不出理由不喜欢。",
            t=thing,
            g=good,
            h=good_too,
            b=bad,
        )
    if label == "消极":
        return pick(
            rng,
            "{t}可真“棒”啊，{b}，{c}，佩服佩服。",
            "恭喜{t}，成功让我体会到什么叫{b}，太“感动”了。",
            "广告里说{g}，实际上{b}，{t}就这样吧。",
            "要不是{b}，{t}也许还能算及格，可惜{c}。",
            t=thing,
            b=bad,
            c=bad_too,
            g=good_too,
        )
    return pick(
        rng,
        "{t}有好有坏：{g}，但是{b}，一半一半吧。",
        "{t}谈不上喜欢，也谈不上讨厌，{g}，只是{b}。",
        "一方面{g}，另一方面{b}，对{t}先不下结论。",
        "朋友说{g}，网上说{b}，{t}我自己感觉一般。",
        t=thing,
        g=good,
        b=bad,
    )


def sentiment_rows(rng: random.Random, count: int) -> list[Review]:
    """``count`` reviews ``{"text", "label"}`` with different texts, about 40 % positive, 35 % negative, 25 % neutral."""
    sizes = [round(count * share) for share in SHARES[:-1]]
    labels = [label for label, size in zip(LABELS, [*sizes, count - sum(sizes)], strict=True) for _ in range(size)]
    rng.shuffle(labels)
    hard = set(rng.sample(range(count), round(count * HARD_SHARE)))
    wrong = set(rng.sample(range(count), round(count * WRONG_SHARE)))
    seen: set[object] = set()
    rows: list[Review] = []
    for i, label in enumerate(labels):
        write = _hard if i in hard else _plain
        text = distinct(lambda r, write=write, label=label: write(r, label), rng, 1, key=lambda t: t, seen=seen)[0]
        given = rng.choice([other for other in LABELS if other != label]) if i in wrong else label
        rows.append({"text": text, "label": given})
    return rows
