"""English running text for the tiny base model: stories, facts, talk, numbers. No template of the demo sets is used."""

from __future__ import annotations

import random
from collections.abc import Callable

from demo_words import COLOURS, DAYS, MONTHS, NAMES, NUMBER_WORDS, OPPOSITES, THINGS, pick, sample
from pretrain_words import EN_FACTS, EN_WORDS, REAL_CAPITALS

_PLACES = (
    "market",
    "harbour",
    "library",
    "garden",
    "station",
    "school",
    "forest",
    "bakery",
    "museum",
    "river",
    "hill",
    "village",
    "office",
    "kitchen",
    "workshop",
    "bridge",
    "church",
    "farm",
)
_TIMES = (
    "in the morning",
    "before noon",
    "in the evening",
    "late at night",
    "after lunch",
    "at sunrise",
    "on a rainy day",
    "last winter",
)
_MOODS = ("happy", "tired", "curious", "angry", "calm", "proud", "nervous", "hungry", "lonely", "cheerful")
_VERBS = (
    "carried",
    "found",
    "repaired",
    "painted",
    "sold",
    "borrowed",
    "dropped",
    "hid",
    "cleaned",
    "bought",
    "lost",
    "showed",
)
_JOBS = (
    "teacher",
    "baker",
    "doctor",
    "farmer",
    "sailor",
    "driver",
    "painter",
    "nurse",
    "clerk",
    "gardener",
    "tailor",
    "engineer",
)
_WEATHER = ("sunny", "cloudy", "windy", "rainy", "foggy", "cold", "warm", "stormy")


def _thing(rng: random.Random) -> str:
    return rng.choice(THINGS[rng.choice(sorted(THINGS))])


def _article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _story(rng: random.Random) -> str:
    hero, friend = sample(rng, NAMES, 2)
    place, thing, other = rng.choice(_PLACES), _thing(rng), _thing(rng)
    parts = [
        pick(
            rng,
            "{n} was a {j} who lived near the {p}.",
            "Once there was a {j} called {n}.",
            "{n}, the {m} {j}, went to the {p} {t}.",
            n=hero,
            j=rng.choice(_JOBS),
            p=place,
            m=rng.choice(_MOODS),
            t=rng.choice(_TIMES),
        ),
        pick(
            rng,
            "There {n} {v} {x}.",
            "That day {n} {v} {x} and {y}.",
            "Nobody knew that {n} {v} {x} there.",
            n=hero,
            v=rng.choice(_VERBS),
            x=_article(thing),
            y=_article(other),
        ),
        pick(
            rng,
            "{f} came along and asked about the {x}.",
            '"Is this your {x}?" asked {f}.',
            "{f} looked at the {c} {x} and smiled.",
            f=friend,
            x=thing,
            c=rng.choice(COLOURS),
        ),
        pick(
            rng,
            "{n} felt {m} and said nothing.",
            '"It is only a {x}," said {n}.',
            "So they walked to the {p} together.",
            n=hero,
            m=rng.choice(_MOODS),
            x=thing,
            p=rng.choice(_PLACES),
        ),
        pick(
            rng,
            "In the end {n} gave it to {f}.",
            "From then on {n} and {f} were friends.",
            "The next {d} they met again.",
            n=hero,
            f=friend,
            d=rng.choice(DAYS),
        ),
    ]
    return " ".join(parts[: rng.randint(3, 5)])


def _fact(rng: random.Random) -> str:
    return " ".join(sample(rng, EN_FACTS, rng.randint(2, 4)))


def _capital(rng: random.Random) -> str:
    lines = [
        pick(
            rng,
            "{a} has the capital {b}.",
            "{b} is where the government of {a} meets.",
            "The capital of {a} is {b}.",
            "In {a}, the largest offices are in {b}, the capital.",
            a=a,
            b=b,
        )
        for a, b in sample(rng, REAL_CAPITALS, 3)
    ]
    return " ".join(lines)


def _question(rng: random.Random) -> str:
    land, city = rng.choice(REAL_CAPITALS)
    word, other = rng.choice(OPPOSITES)
    a, b = rng.randint(1, 20), rng.randint(1, 20)
    thing, place, name = _thing(rng), rng.choice(_PLACES), rng.choice(NAMES)
    question, answer = rng.choice(
        (
            (f"Which town rules {land}?", f"The capital of {land} is {city}."),
            (f"What do we call something that is not {word}?", f"{word.capitalize()} is the opposite of {other}."),
            (f"How much do {a} and {b} make together?", f"{a + b} = {a} + {b}"),
            (f"{a + b} less {b}, what is left?", f"{a} = {a + b} - {b}"),
            (f"Who has the {thing}?", f"{name} has the {thing}."),
            (f"Where did {name} go?", f"{name} went to the {place}."),
            (f"What did {name} buy at the {place}?", f"{name} bought {_article(thing)}."),
            (f"Does {name} like the {thing}?", pick(rng, "Yes, {n} likes it.", "No, {n} does not like it.", n=name)),
        )
    )
    return pick(rng, "Question: {q}\nAnswer: {a}", "Q: {q}\nA: {a}", '"{q}" "{a}"', q=question, a=answer)


def _numbers(rng: random.Random) -> str:
    kind = rng.randrange(6)
    a, b = rng.randint(1, 30), rng.randint(1, 20)
    if kind == 0:
        return " ".join(f"{x + y} = {x} + {y};" for x, y in ((a, b), (b, a + 1), (a + 2, b)))
    if kind == 1:
        return " ".join(f"{x} = {x + y} - {y};" for x, y in ((a, b), (b, a + 1), (a + 2, b)))
    if kind == 2:
        step = rng.choice((1, 2, 3, 5, 10))
        return f"Counting by {step}: " + " then ".join(str(a + k * step) for k in range(rng.randint(5, 8))) + "."
    if kind == 3:
        n = rng.randint(2, 9)
        return f"One day has 24 hours, {n} days have {n * 24} hours; one hour has 60 minutes, {n} hours have {n * 60} minutes."
    if kind == 4:
        day, month, year = rng.randint(1, 28), rng.randrange(12), rng.randint(1930, 1989)
        return f"The letter is dated {day} {MONTHS[month]} {year}, in short {year}-{month + 1:02d}-{day:02d}."
    small, large = sorted(sample(rng, range(1, 90), 2))
    return f"{large} is greater than {small}, and {small} is smaller than {large}."


def _wordplay(rng: random.Random) -> str:
    kind = rng.randrange(5)
    group = rng.choice(sorted(THINGS))
    words = sample(rng, THINGS[group], 4)
    if kind == 0:
        return f"The {words[0]} belongs with every other {group}, and so does the {words[1]}."
    if kind == 1:
        return f"In order: {' before '.join(sorted(words))}. Shuffled: {' / '.join(words)}."
    if kind == 2:
        times = rng.randint(2, 5)
        return f"{NUMBER_WORDS[times]} of them: {'-'.join([words[0]] * times)}"
    if kind == 3:
        return f"small {words[0]}, capital {words[0].upper()}; small {words[1]}, capital {words[1].upper()}"
    one, two = sample(rng, OPPOSITES, 2)
    return f"The {words[0]} is {one[0]} while the {words[1]} is {one[1]}; first {two[0]}, then {two[1]}."


def _calendar(rng: random.Random) -> str:
    names = DAYS if rng.random() < 0.5 else MONTHS
    start = rng.randrange(len(names))
    return "The calendar goes on: " + ", ".join(names[(start + k) % len(names)] for k in range(rng.randint(3, 6))) + "."


def _talk(rng: random.Random) -> str:
    one, two = sample(rng, NAMES, 2)
    thing, place, hour = _thing(rng), rng.choice(_PLACES), rng.randint(1, 12)
    first = pick(
        rng,
        "{a}: Did you see my {t}?\n{b}: I think it is at the {p}.",
        "{a}: Shall we meet at the {p}?\n{b}: Yes, at half past {h}.",
        "{a}: What a {w} day!\n{b}: True. Let us stay at the {p}.",
        "{a}: I need a new {t}.\n{b}: They cost {h} pennies at the {p}.",
        a=one,
        b=two,
        t=thing,
        p=place,
        h=hour,
        w=rng.choice(_WEATHER),
    )
    last = pick(
        rng,
        "{a}: Thank you, {b}.",
        "{a}: Good, then I will bring the {t}.",
        "{a}: Never mind, see you on {d}.",
        a=one,
        b=two,
        t=thing,
        d=rng.choice(DAYS),
    )
    return f"{first}\n{last}"


def _note(rng: random.Random) -> str:
    one, two = sample(rng, NAMES, 2)
    return pick(
        rng,
        "Dear {a}, thank you for the {t} you sent on {d}. It is very useful at the {p}. Yours, {b}",
        "Note for {a}: the {t} is ready, please come to the {p} on {d}. {b}",
        "{d}: {w} weather. {a} repaired the {t}; {b} stayed at the {p} until half past {h} and paid {n} pennies.",
        "The shop at the {p} opens at half past {h} on {d}. One {t} costs {n} pennies there, says {a}.",
        "I do not recommend the {t} from the {p}: it broke on {d}, and {a} was {m}.",
        "The {t} from the {p} is excellent. {a} uses it every {d} and is {m}.",
        a=one,
        b=two,
        t=_thing(rng),
        d=rng.choice(DAYS),
        p=rng.choice(_PLACES),
        w=rng.choice(_WEATHER),
        h=rng.randint(1, 12),
        n=rng.randint(2, 60),
        m=rng.choice(_MOODS),
    )


def _glossary(rng: random.Random) -> str:
    return pick(
        rng,
        "Words of the day: {w}.",
        "Learn to spell: {w}.",
        "From the dictionary: {w}.",
        w=", ".join(sample(rng, EN_WORDS, 7)),
    )


EN_WRITERS: tuple[Callable[[random.Random], str], ...] = (
    _story,
    _story,
    _story,
    _fact,
    _capital,
    _question,
    _question,
    _question,
    _numbers,
    _numbers,
    _wordplay,
    _wordplay,
    _calendar,
    _talk,
    _note,
    _note,
    _glossary,
)
