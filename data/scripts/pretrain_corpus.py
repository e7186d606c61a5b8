"""The pretraining text of the tiny base model: another seed and other templates than the demo sets."""

from __future__ import annotations

import random

from pretrain_en import EN_WRITERS
from pretrain_grammar import en_free, en_sentence, zh_free, zh_sentence
from pretrain_words import ZH_CHARACTERS, ZH_WORDS
from pretrain_zh import ZH_WRITERS

CORPUS_SEED = 7
DOCUMENTS = 26_000
CHAT_SHARE = 0.2
FREE_SHARE = {"en": 0.35, "zh": 0.5}
"""How much of a language comes from the free grammar instead of the templates."""
WORD_WEIGHT = 60
"""How often the tokenizer is shown each listed word: often enough that its characters become tokens."""

_SYSTEMS = ("Talk about daily life.", "Write clearly.", "说说日常生活。", "写得清楚一些。")


def _english(rng: random.Random) -> str:
    return en_free(rng) if rng.random() < FREE_SHARE["en"] else rng.choice(EN_WRITERS)(rng)


def _chinese(rng: random.Random) -> str:
    return zh_free(rng) if rng.random() < FREE_SHARE["zh"] else rng.choice(ZH_WRITERS)(rng)


def _chat(rng: random.Random, chinese: bool) -> str:
    """A ChatML conversation, so that the turn markers are not unknown to the base model."""
    ask, write = (zh_sentence, _chinese) if chinese else (en_sentence, _english)
    turns = [f"<|im_start|>system\n{rng.choice(_SYSTEMS)}<|im_end|>\n"] if rng.random() < 0.3 else []
    for _ in range(rng.randint(1, 3)):
        turns.append(f"<|im_start|>user\n{ask(rng)}<|im_end|>\n<|im_start|>assistant\n{write(rng)}<|im_end|>\n")
    return "".join(turns)


def documents(seed: int = CORPUS_SEED, count: int = DOCUMENTS) -> list[str]:
    """``count`` different documents, half English, half Chinese, in random order."""
    rng = random.Random(f"{seed}/pretraining")
    found: dict[str, None] = {}
    while len(found) < count:
        chinese = rng.random() < 0.5
        if rng.random() < CHAT_SHARE:
            found[_chat(rng, chinese)] = None
        else:
            # Several pieces a document: attention then sees breaks in topic, as in real running text.
            write = _chinese if chinese else _english
            found["\n".join(write(rng) for _ in range(rng.choice((1, 1, 2, 3))))] = None
    return list(found)


def vocabulary() -> list[str]:
    """Words and characters for training the tokenizer only, so that rare ones are not left as bytes."""
    return [*ZH_WORDS, *ZH_CHARACTERS, *ZH_CHARACTERS] * WORD_WEIGHT
