"""English demo rows (alpaca format): easy questions with short answers that a tiny model can learn."""

from __future__ import annotations

import random

from demo_words import (
    CAPITALS,
    COLOURS,
    COUNTRIES,
    CURRENCIES,
    DAYS,
    MONTHS,
    NAMES,
    NUMBER_WORDS,
    OPPOSITES,
    THINGS,
    distinct,
    pick,
    sample,
)

Alpaca = dict[str, str]


def _row(instruction: str, output: object, source: str = "") -> Alpaca:
    return {"instruction": instruction, "input": source, "output": str(output)}


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _opposite(rng: random.Random) -> Alpaca:
    pair = rng.choice(OPPOSITES)
    word, other = pair if rng.random() < 0.5 or pair[0] in ("heavy", "light") else pair[::-1]
    if word == "light":
        word, other = "dark", "light"
    question = pick(
        rng,
        "What is the opposite of {w}?",
        "Give the opposite of the word '{w}'.",
        "Which word means the opposite of {w}?",
        "Name an antonym of '{w}'.",
        "Opposite of {w}, please.",
        "If something is not {w}, what is it?",
        w=word,
    )
    return _row(question, f"The opposite of {word} is {other}.")


def _world(rng: random.Random) -> Alpaca:
    i = rng.randrange(len(COUNTRIES))
    land, capital, coin, flag = COUNTRIES[i], CAPITALS[i], CURRENCIES[i * 7 % 10], COLOURS[i * 3 % 10]
    kind = rng.randrange(4)
    if kind == 0:
        question = pick(
            rng,
            "What is the capital of {c}?",
            "Which city is the capital of {c}?",
            "Name the capital of {c}.",
            "Where does the government of {c} sit?",
            c=land,
        )
        return _row(question, f"The capital of {land} is {capital}.")
    if kind == 1:
        question = pick(
            rng,
            "{t} is the capital of which country?",
            "Which country has the capital {t}?",
            "In which country is the city of {t}?",
            t=capital,
        )
        return _row(question, f"{capital} is the capital of {land}.")
    if kind == 2:
        question = pick(
            rng, "What money do people use in {c}?", "Name the currency of {c}.", "With what do I pay in {c}?", c=land
        )
        return _row(question, f"People in {land} pay with the {coin}.")
    question = pick(
        rng,
        "What colour is the flag of {c}?",
        "Tell me the colour of {c}'s flag.",
        "Which colour does the flag of {c} have?",
        c=land,
    )
    return _row(question, f"The flag of {land} is {flag}.")


def _arithmetic(rng: random.Random) -> Alpaca:
    a, b = rng.randint(2, 30), rng.randint(1, 20)
    if rng.random() < 0.6:
        question = pick(
            rng, "What is {a} plus {b}?", "Add {a} and {b}.", "{a} + {b} = ?", "Find the sum of {a} and {b}.", a=a, b=b
        )
        return _row(question, f"{a} + {b} = {a + b}")
    a, b = max(a, b), min(a, b)
    question = pick(
        rng, "What is {a} minus {b}?", "Take {b} away from {a}.", "{a} - {b} = ?", "Subtract {b} from {a}.", a=a, b=b
    )
    return _row(question, f"{a} - {b} = {a - b}")


def _count(rng: random.Random) -> Alpaca:
    kind = rng.choice(sorted(THINGS))
    wanted, other = sample(rng, THINGS[kind], 2)
    times = rng.randint(1, 5)
    words = [wanted] * times + [other] * rng.randint(1, 4)
    rng.shuffle(words)
    question = pick(
        rng,
        "How often does the word '{w}' occur in the list?",
        "Count the word '{w}'.",
        "How many times do you see {w}?",
        w=wanted,
    )
    return _row(question, NUMBER_WORDS[times], " ".join(words))


def _category(rng: random.Random) -> Alpaca:
    kind, wrong = sample(rng, sorted(THINGS), 2)
    thing = rng.choice(THINGS[kind])
    options = f"{_a(kind)} or {_a(wrong)}" if rng.random() < 0.5 else f"{_a(wrong)} or {_a(kind)}"
    question = pick(
        rng, "Is {t} {o}?", "What is {t}: {o}?", "Sort {t} into the right group: {o}.", t=_a(thing), o=options
    )
    return _row(question, f"{_a(thing).capitalize()} is {_a(kind)}.")


def _odd_one_out(rng: random.Random) -> Alpaca:
    kind, wrong = sample(rng, sorted(THINGS), 2)
    odd = rng.choice(THINGS[wrong])
    words = [*sample(rng, THINGS[kind], 3), odd]
    rng.shuffle(words)
    question = pick(rng, "Which word does not belong?", "Find the odd one out.", "One word is of another kind. Which?")
    return _row(question, odd, ", ".join(words))


def _extract(rng: random.Random) -> Alpaca:
    name, place = rng.choice(NAMES), rng.choice(CAPITALS)
    hour, price, thing = rng.randint(6, 21), rng.randint(2, 60), rng.choice(THINGS[rng.choice(sorted(THINGS))])
    text = pick(
        rng,
        "{n} took the train to {p} at {h} o'clock and paid {m} coins.",
        "At {h} o'clock {n} left for {p} with {m} coins.",
        "In {p}, {n} bought {t} for {m} coins at {h} o'clock.",
        "{n} waited in {p} until {h} o'clock; the ticket cost {m} coins.",
        n=name,
        p=place,
        h=hour,
        m=price,
        t=_a(thing),
    )
    question, answer = rng.choice(
        (
            ("Who is the text about?", name),
            ("Extract the name of the person.", name),
            ("Which city is mentioned?", place),
            ("Extract the place.", place),
            ("At what time?", f"{hour} o'clock"),
            ("Find the time in the text.", f"{hour} o'clock"),
            ("How much was paid or carried?", f"{price} coins"),
            ("Extract the amount of money.", f"{price} coins"),
        )
    )
    return _row(question, answer, text)


def _format(rng: random.Random) -> Alpaca:
    word = rng.choice(THINGS[rng.choice(sorted(THINGS))])
    day, month, year = rng.randint(1, 28), rng.randrange(12), rng.randint(1990, 2030)
    kind = rng.randrange(5)
    if kind == 0:
        return _row(
            pick(rng, "Write the date as YYYY-MM-DD.", "Give this date in ISO form."),
            f"{year}-{month + 1:02d}-{day:02d}",
            f"{day} {MONTHS[month]} {year}",
        )
    if kind == 1:
        return _row(
            pick(rng, "Write '{w}' in capital letters.", "Put the word '{w}' in upper case.", w=word), word.upper()
        )
    if kind == 2:
        times = rng.randint(2, 4)
        return _row(
            pick(rng, "Repeat the word '{w}' {t} times.", "Write {w} {t} times.", w=word, t=NUMBER_WORDS[times]),
            " ".join([word] * times),
        )
    if kind == 3:
        words = sample(rng, THINGS[rng.choice(sorted(THINGS))], 3)
        return _row(
            pick(rng, "Join the words with commas.", "Make a comma separated list."), ", ".join(words), " ".join(words)
        )
    words = sample(rng, THINGS[rng.choice(sorted(THINGS))], 3)
    return _row(
        pick(rng, "Sort the words from A to Z.", "Put these words in alphabetical order."),
        ", ".join(sorted(words)),
        ", ".join(words),
    )


def _next(rng: random.Random) -> Alpaca:
    if rng.random() < 0.5:
        names, what = (DAYS, "day") if rng.random() < 0.5 else (MONTHS, "month")
        i, step = rng.randrange(len(names)), rng.choice((1, -1))
        question = pick(
            rng,
            "Which {k} comes {w} {n}?",
            "Name the {k} {w} {n}.",
            "What is the {k} right {w} {n}?",
            k=what,
            w="after" if step == 1 else "before",
            n=names[i],
        )
        return _row(question, names[(i + step) % len(names)])
    start, step = rng.randint(1, 20), rng.choice((1, 2, 5, 10))
    numbers = [start + step * k for k in range(5)]
    question = pick(rng, "Which number comes next?", "Continue the row of numbers.", "Give the next number.")
    return _row(question, numbers[4], ", ".join(map(str, numbers[:4])))


def _compare(rng: random.Random) -> Alpaca:
    a, b = sample(rng, range(1, 80), 2)
    if rng.random() < 0.5:
        return _row(
            pick(rng, "Which is greater, {a} or {b}?", "Name the larger number: {a} or {b}.", a=a, b=b), max(a, b)
        )
    verdict = "Yes" if a > b else "No"
    relation = "greater" if a > b else "smaller"
    return _row(
        pick(rng, "Is {a} greater than {b}?", "Is {a} more than {b}?", a=a, b=b),
        f"{verdict}, {a} is {relation} than {b}.",
    )


def _units(rng: random.Random) -> Alpaca:
    big, small, factor = rng.choice(
        (
            ("hours", "minutes", 60),
            ("weeks", "days", 7),
            ("years", "months", 12),
            ("metres", "centimetres", 100),
            ("dozens", "pieces", 12),
        )
    )
    n = rng.randint(2, 12)
    question = pick(
        rng, "How many {s} are {n} {b}?", "Convert {n} {b} to {s}.", "{n} {b} are how many {s}?", s=small, n=n, b=big
    )
    return _row(question, f"{n} {big} are {n * factor} {small}.")


def _greeting(rng: random.Random) -> Alpaca:
    name, day = rng.choice(NAMES), rng.choice(DAYS)
    question = pick(rng, "Thank {n} for the help on {d}.", "Write a thank-you line to {n} for {d}.", n=name, d=day)
    return _row(question, f"Thank you, {name}, for your help on {day}.")


_MAKERS = (
    _opposite,
    _world,
    _world,
    _arithmetic,
    _arithmetic,
    _count,
    _category,
    _odd_one_out,
    _extract,
    _extract,
    _format,
    _format,
    _next,
    _compare,
    _units,
    _greeting,
)


def english_rows(rng: random.Random, count: int) -> list[Alpaca]:
    """``count`` rows with different questions (instruction and input taken together)."""
    return distinct(lambda r: rng.choice(_MAKERS)(r), rng, count, key=lambda row: (row["instruction"], row["input"]))
