"""Vocabulary of the demo sets and the small helpers that turn templates into distinct rows.

The invented world (countries, capitals, rivers) exists so that no fact can have been seen by any pretrained model:
whatever a fine-tuned model says about Velmora it learned from these rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Row = TypeVar("Row")

COUNTRIES: tuple[str, ...] = (
    "Velmora",
    "Tarsina",
    "Okuria",
    "Pelanth",
    "Brundia",
    "Saveth",
    "Ilmora",
    "Dunholm",
    "Karesh",
    "Noventa",
    "Ospria",
    "Quillon",
    "Ravenna Isles",
    "Sundermark",
    "Tolvania",
    "Umbra Coast",
    "Vastria",
    "Wendel",
    "Yarrow",
    "Zemlin",
    "Arcadel",
    "Bellmere",
    "Corvana",
    "Drystan",
    "Elbaria",
    "Fennick",
    "Gorland",
    "Hestia",
    "Ivoria",
    "Jorvale",
)
CAPITALS: tuple[str, ...] = (
    "Talin",
    "Morva",
    "Keld",
    "Sorrel",
    "Brask",
    "Ethen",
    "Lumis",
    "Hardle",
    "Kesra",
    "Nova Port",
    "Ospen",
    "Quay",
    "Raven",
    "Sunder",
    "Tolv",
    "Umber",
    "Vast Harbor",
    "Wend",
    "Yarl",
    "Zem",
    "Arden",
    "Bell",
    "Corv",
    "Dryhill",
    "Elba",
    "Fenn",
    "Gorm",
    "Hest",
    "Ivory Gate",
    "Jorv",
)
CURRENCIES: tuple[str, ...] = ("crown", "shell", "bead", "leaf", "star", "coin", "ring", "feather", "stone", "drop")
COLOURS: tuple[str, ...] = ("red", "blue", "green", "yellow", "white", "black", "orange", "purple", "brown", "grey")
NAMES: tuple[str, ...] = (
    "Mara",
    "Tom",
    "Lena",
    "Omar",
    "Ruth",
    "Ivan",
    "Nora",
    "Paul",
    "Sara",
    "Ben",
    "Alma",
    "Hugo",
    "Iris",
    "Karl",
    "Lily",
    "Max",
    "Nina",
    "Oscar",
    "Pia",
    "Rosa",
    "Sam",
    "Tina",
    "Vera",
    "Walt",
    "Zoe",
)
OPPOSITES: tuple[tuple[str, str], ...] = (
    ("hot", "cold"),
    ("big", "small"),
    ("fast", "slow"),
    ("high", "low"),
    ("open", "closed"),
    ("full", "empty"),
    ("light", "dark"),
    ("old", "young"),
    ("early", "late"),
    ("happy", "sad"),
    ("hard", "soft"),
    ("wet", "dry"),
    ("clean", "dirty"),
    ("strong", "weak"),
    ("rich", "poor"),
    ("near", "far"),
    ("loud", "quiet"),
    ("thick", "thin"),
    ("deep", "shallow"),
    ("wide", "narrow"),
    ("safe", "dangerous"),
    ("cheap", "expensive"),
    ("long", "short"),
    ("heavy", "light"),
    ("sweet", "bitter"),
    ("sharp", "blunt"),
    ("smooth", "rough"),
    ("brave", "afraid"),
)
THINGS: dict[str, tuple[str, ...]] = {
    "fruit": ("apple", "pear", "plum", "cherry", "lemon", "melon", "peach", "grape"),
    "vegetable": ("carrot", "onion", "potato", "cabbage", "leek", "turnip", "pumpkin"),
    "animal": ("cow", "horse", "sheep", "fox", "rabbit", "goat", "duck", "bear"),
    "tool": ("hammer", "saw", "drill", "spade", "rake", "wrench", "chisel"),
    "vehicle": ("bus", "train", "truck", "boat", "tram", "bicycle", "van"),
    "piece of clothing": ("coat", "scarf", "shirt", "glove", "hat", "sock", "belt"),
    "piece of furniture": ("table", "chair", "shelf", "bed", "desk", "sofa", "bench"),
}
DAYS: tuple[str, ...] = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: tuple[str, ...] = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
NUMBER_WORDS: tuple[str, ...] = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)

NAMES_ZH: tuple[str, ...] = (
    "小明",
    "小红",
    "小丽",
    "小刚",
    "小华",
    "阿强",
    "阿梅",
    "李雷",
    "王芳",
    "张伟",
    "陈静",
    "刘洋",
    "赵敏",
    "孙浩",
    "周婷",
    "吴磊",
    "郑爽",
    "林涛",
    "何洁",
    "高峰",
)
CITIES_ZH: tuple[str, ...] = (
    "青石镇",
    "云溪市",
    "白沙湾",
    "松林县",
    "望海城",
    "梅岭",
    "柳河镇",
    "金沙市",
    "东湖区",
    "南山镇",
    "北桥县",
    "星河市",
)
GOODS_ZH: tuple[tuple[str, str, int], ...] = (
    ("苹果", "斤", 6),
    ("铅笔", "支", 2),
    ("笔记本", "本", 8),
    ("牛奶", "盒", 5),
    ("面包", "个", 7),
    ("雨伞", "把", 35),
    ("书包", "个", 90),
    ("足球", "个", 60),
    ("毛巾", "条", 12),
    ("水杯", "个", 25),
    ("茶叶", "盒", 48),
    ("鸡蛋", "盒", 15),
    ("台灯", "盏", 70),
    ("手套", "副", 18),
)


def pick(rng: random.Random, *templates: str, **slots: object) -> str:
    """One of ``templates`` at random, its ``{slots}`` filled in."""
    return rng.choice(templates).format(**slots)


def distinct(
    make: Callable[[random.Random], Row],
    rng: random.Random,
    count: int,
    key: Callable[[Row], object],
    seen: set[object] | None = None,
) -> list[Row]:
    """``count`` rows from ``make`` whose ``key`` values all differ (also from those already in ``seen``).

    Raises:
        ValueError: the templates behind ``make`` are too few for ``count`` distinct rows.
    """
    taken = set() if seen is None else seen
    rows: list[Row] = []
    for _ in range(count * 200):
        if len(rows) == count:
            return rows
        row = make(rng)
        mark = key(row)
        if mark not in taken:
            taken.add(mark)
            rows.append(row)
    if len(rows) == count:
        return rows
    raise ValueError(
        f"asked for {count} distinct rows, the templates gave {len(rows)}: add templates or lower the count"
    )


def sample(rng: random.Random, items: Sequence[Row], count: int) -> list[Row]:
    """``count`` different items in random order."""
    return rng.sample(list(items), count)
