"""Multi-turn scenarios in English and Chinese, written once and shaped as ShareGPT conversations or OpenAI messages."""

from __future__ import annotations

import random
from dataclasses import dataclass

from demo_dialogues_zh import ZH_SCENES
from demo_words import CAPITALS, COUNTRIES, CURRENCIES, DAYS, NAMES, OPPOSITES, THINGS, distinct, pick, sample

Round = tuple[str, str]


@dataclass(frozen=True)
class Dialogue:
    """One conversation."""

    system: str | None
    """The system prompt, None where there is none."""
    rounds: tuple[Round, ...]
    """(user, assistant) pairs, two to four."""


def _order(rng: random.Random) -> list[Round]:
    name, number, day = rng.choice(NAMES), rng.randint(1000, 9999), rng.choice(DAYS)
    thing = rng.choice(THINGS["piece of furniture"] + THINGS["tool"])
    place = rng.choice(CAPITALS)
    return [
        (
            pick(rng, "Hello, where is my order {n}?", "Hi, I am waiting for order {n}.", n=number),
            f"Let me look. Order {number} holds one {thing} and is on its way to {place}.",
        ),
        (pick(rng, "When will it arrive?", "On which day can I expect it?"), f"The {thing} should arrive on {day}."),
        (
            pick(rng, "Can you leave it with my neighbour {m}?", "I am away then. May {m} take it?", m=name),
            f"Of course. I have noted that {name} will take the {thing} on {day}.",
        ),
        (pick(rng, "Thank you, that is all.", "Great, bye."), f"You are welcome. Order {number} is in good hands."),
    ]


def _sums(rng: random.Random) -> list[Round]:
    a, b, c, d = rng.randint(3, 40), rng.randint(2, 30), rng.randint(2, 9), rng.randint(1, 5)
    return [
        (
            pick(rng, "I have {a} coins and find {b} more. How many now?", "Start with {a} and add {b}.", a=a, b=b),
            f"{a} + {b} = {a + b}, so you have {a + b}.",
        ),
        (pick(rng, "Now multiply that by {c}.", "And {c} times as much?", c=c), f"{a + b} x {c} = {(a + b) * c}."),
        (pick(rng, "Take away {d}.", "I lose {d} of them.", d=d), f"{(a + b) * c} - {d} = {(a + b) * c - d}."),
        (
            pick(rng, "Is the result even or odd?", "Even or odd?"),
            f"{(a + b) * c - d} is {'odd' if ((a + b) * c - d) % 2 else 'even'}.",
        ),
    ]


def _trip(rng: random.Random) -> list[Round]:
    i = rng.randrange(len(COUNTRIES))
    land, city, coin, days = COUNTRIES[i], CAPITALS[i], CURRENCIES[i * 7 % 10], rng.randint(2, 9)
    name, bag, day = rng.choice(NAMES), rng.choice(("coat", "scarf", "hat", "shirt")), rng.choice(DAYS)
    return [
        (
            pick(
                rng,
                "{n} and I want to visit {l} for {d} days.",
                "We plan {d} days in {l}, {n} comes along.",
                n=name,
                l=land,
                d=days,
            ),
            f"{land} is a fine choice. Start in {city}, the capital, and keep {days - 1} days for the rest.",
        ),
        (
            pick(rng, "Which money do we need?", "How do people pay there?"),
            f"In {land} people pay with the {coin}. Change some before you go.",
        ),
        (
            pick(rng, "What should {n} pack?", "Anything {n} must not forget?", n=name),
            f"{name} should pack a warm {bag} and good shoes.",
        ),
        (pick(rng, "We leave on {d}.", "The train goes on {d}.", d=day), f"Then pack the day before. Enjoy {city}!"),
    ]


def _words(rng: random.Random) -> list[Round]:
    pairs = sample(rng, OPPOSITES[:-1], 3)
    opening = pick(
        rng,
        "Let us play opposites. I say {w}.",
        "Opposites, please: {w}.",
        "Quiz me the other way round: {w}?",
        w=pairs[0][0],
    )
    rounds = [(opening, f"I say {pairs[0][1]}.")]
    rounds += [(pick(rng, "And {w}?", "Next one: {w}.", w=a), f"I say {b}.") for a, b in pairs[1:]]
    return [*rounds, ("Which words did we have?", f"We had {pairs[0][0]}, {pairs[1][0]} and {pairs[2][0]}.")]


def _shopping(rng: random.Random) -> list[Round]:
    items = sample(rng, THINGS["fruit"] + THINGS["vegetable"], 3)
    amounts = [rng.randint(2, 9) for _ in items]
    shown = ", ".join(f"{n} x {item}" for n, item in zip(amounts, items, strict=True))
    return [
        (
            pick(
                rng, "Make a shopping list: {n} x {i}.", "New list, please. I need {n} x {i}.", n=amounts[0], i=items[0]
            ),
            f"Your list: {amounts[0]} x {items[0]}.",
        ),
        (
            pick(
                rng,
                "Add {n} x {i} and {m} x {j}.",
                "Also {n} x {i} and {m} x {j}.",
                n=amounts[1],
                i=items[1],
                m=amounts[2],
                j=items[2],
            ),
            f"Your list: {shown}.",
        ),
        (pick(rng, "How many pieces is that?", "Count everything."), f"That makes {sum(amounts)} pieces."),
        (
            pick(rng, "Remove the {i}.", "I still have {i}, take it off.", i=items[0]),
            f"Your list: {amounts[1]} x {items[1]}, {amounts[2]} x {items[2]}.",
        ),
    ]


def _repair(rng: random.Random) -> list[Round]:
    thing = rng.choice(("printer", "router", "laptop", "camera", "radio", "kettle", "lamp", "heater"))
    light, minutes, name = rng.choice(("red", "green", "orange", "blue")), rng.randint(2, 15), rng.choice(NAMES)
    return [
        (
            pick(rng, "My {t} does not start. I am {n}.", "{n} here, the {t} is dead.", t=thing, n=name),
            f"Sorry to hear that, {name}. Is the {thing} plugged in, and do you see a light?",
        ),
        (
            pick(rng, "It is plugged in, a {c} light blinks.", "Yes, and there is a {c} light.", c=light),
            f"A {light} light means it needs a rest. Unplug the {thing} for {minutes} minutes.",
        ),
        (
            pick(rng, "Done, I waited {m} minutes.", "{m} minutes are over.", m=minutes),
            f"Now plug the {thing} in again and press the button once.",
        ),
        (
            pick(rng, "It works again!", "Wonderful, it runs."),
            f"Good to hear, {name}. If the {light} light returns, write again.",
        ),
    ]


_EN_SCENES = (_order, _sums, _trip, _words, _shopping, _repair)
_EN_SYSTEMS = (
    "You are a helpful assistant.",
    "Answer in one or two short sentences.",
    "You are a friendly clerk. Stay polite.",
    "Be brief and exact.",
    "You help people with everyday questions.",
)
_ZH_SYSTEMS = (
    "你是一个乐于助人的助手。",
    "请用简短的话回答。",
    "你是耐心的客服，语气要礼貌。",
    "回答要准确，不要编造。",
    "你是用户的生活顾问。",
)


def _dialogue(rng: random.Random, system_share: float) -> Dialogue:
    chinese = rng.random() < 0.5
    rounds = rng.choice(ZH_SCENES if chinese else _EN_SCENES)(rng)
    rounds = rounds[: rng.choices((2, 3, 4), (2, 4, 4))[0]]
    system = rng.choice(_ZH_SYSTEMS if chinese else _EN_SYSTEMS) if rng.random() < system_share else None
    return Dialogue(system, tuple(rounds))


def dialogues(rng: random.Random, count: int, system_share: float, seen: set[object]) -> list[Dialogue]:
    """``count`` conversations none of whose rounds-as-a-whole is in ``seen`` (which grows); half of them Chinese."""
    return distinct(lambda r: _dialogue(r, system_share), rng, count, key=lambda d: d.rounds, seen=seen)


def as_sharegpt(dialogue: Dialogue) -> dict[str, object]:
    """LLaMA-Factory's sharegpt row: ``conversations`` of human and gpt turns, ``system`` where there is one."""
    turns = [
        turn
        for user, answer in dialogue.rounds
        for turn in ({"from": "human", "value": user}, {"from": "gpt", "value": answer})
    ]
    return {"conversations": turns} | ({"system": dialogue.system} if dialogue.system else {})


def as_messages(dialogue: Dialogue) -> dict[str, object]:
    """OpenAI row: ``messages`` with role and content, the system prompt first where there is one."""
    messages = [{"role": "system", "content": dialogue.system}] if dialogue.system else []
    for user, answer in dialogue.rounds:
        messages += [{"role": "user", "content": user}, {"role": "assistant", "content": answer}]
    return {"messages": messages}
