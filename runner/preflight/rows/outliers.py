"""Rows that stand out by their length or by the characters in them: pure functions of arrays of tokens."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from transformers import PreTrainedTokenizerBase

FAR = 8.0
"""Robust standard deviations of the log length beyond which a row is an outlier, if it is also `TIMES` the median."""

TIMES = 8.0
"""How many times the median length an outlier has at least: rows of that length fill a batch's tokens alone."""

REPEATS = 128
"""Tokens in a row with a period of up to `PERIOD` tokens from which a text is no language; rules and tables are
shorter."""

PERIOD = 4
"""Tokens that one character may take, which is then repeated."""

PLACEHOLDER = re.compile(r"\{\{ ?\w{1,30} ?\}\}")
"""A field that was to be filled in: {{name}}."""

REPLACEMENT = b"\xef\xbf\xbd"
"""U+FFFD: what decoding leaves where bytes were broken."""

CONTROL = frozenset(range(32)) - {9, 10, 13} | {127}
"""Bytes of control characters other than tab and line breaks."""


def too_long(lengths: np.ndarray) -> np.ndarray:
    """Rows far longer than the others, the longest first; `lengths` in tokens, shape (rows,).

    Robust z-score (median and 1.4826 MAD) of the log length, since lengths are about log-normal.
    """
    if len(lengths) < 20:
        return np.zeros(0, dtype=np.int64)
    logs = np.log(np.maximum(lengths, 1))
    median = np.median(logs)
    # Rows of a fixed length have no spread; a tenth (10 %) is assumed then.
    scale = max(1.4826 * float(np.median(np.abs(logs - median))), 0.1)
    far = np.flatnonzero((logs - median > FAR * scale) & (lengths >= TIMES * np.exp(median)))
    return far[np.argsort(-lengths[far], kind="stable")]


def longest_repeat(tokens: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Tokens of the longest stretch of each row that repeats with a period of 1 to `PERIOD` tokens, shape (rows,)."""
    best = np.zeros(len(starts) - 1, dtype=np.int64)
    for period in range(1, PERIOD + 1):
        if len(tokens) <= period:
            break
        same = np.zeros(len(tokens) + 1, dtype=bool)
        same[period : len(tokens)] = tokens[period:] == tokens[:-period]
        for shift in range(period):  # a row's first tokens have none before them
            at = starts[:-1] + shift
            same[at[at < len(tokens)]] = False
        edges = np.flatnonzero(np.diff(np.concatenate([[False], same])))
        begins, ends = edges[::2], edges[1::2]
        row = np.searchsorted(starts, begins, side="right") - 1
        np.maximum.at(best, row, ends - begins + period)
    return best


@dataclass(frozen=True)
class Alphabet:
    """What the bytes of each token id say, shape (tokens,) each."""

    control: np.ndarray
    """Holds a control character."""

    broken: np.ndarray
    """Holds U+FFFD."""

    head: np.ndarray
    """How many bytes of U+FFFD it ends with, 0 to 2, where it does not end with all three."""

    rest: np.ndarray
    """How many bytes of U+FFFD it begins with, of its last 1 or 2, else 0."""

    middle: np.ndarray
    """Is the second byte of U+FFFD alone."""

    braces: np.ndarray
    """Holds `{{`."""

    brace_last: np.ndarray
    """Ends with `{`."""

    brace_first: np.ndarray
    """Begins with `{`."""


def alphabet(tokenizer: PreTrainedTokenizerBase, used: np.ndarray, size: int) -> Alphabet:
    """`Alphabet` of `size` ids, those in `used` looked at (unique ids below `size`)."""
    words = [
        token_bytes(word, byte_level(tokenizer)) for word in tokenizer.convert_ids_to_tokens([int(i) for i in used])
    ]
    special = set(tokenizer.all_special_ids)
    flags = {field.name: np.zeros(size, dtype=np.int8) for field in fields(Alphabet)}
    for token, word in zip(used.tolist(), words, strict=True):
        if token in special:
            continue
        flags["control"][token] = any(b in CONTROL for b in word)
        flags["broken"][token] = REPLACEMENT in word
        flags["head"][token] = 2 if word.endswith(REPLACEMENT[:2]) else 1 if word.endswith(REPLACEMENT[:1]) else 0
        flags["rest"][token] = 2 if word.startswith(REPLACEMENT[1:]) else 1 if word.startswith(REPLACEMENT[2:]) else 0
        flags["middle"][token] = word == REPLACEMENT[1:2]
        flags["braces"][token] = b"{{" in word
        flags["brace_last"][token], flags["brace_first"][token] = word.endswith(b"{"), word.startswith(b"{")
    return Alphabet(**flags)


def replacement_rows(tokens: np.ndarray, starts: np.ndarray, letters: Alphabet) -> np.ndarray:
    """Rows with U+FFFD, also where its three bytes are spread over two or three tokens."""
    head, rest = letters.head[tokens], letters.rest[tokens]
    hit = letters.broken[tokens].astype(bool)
    on = goes_on(starts, len(tokens))
    hit[:-1] |= on & (head[:-1] > 0) & (head[:-1] + rest[1:] == len(REPLACEMENT))
    hit[:-2] |= on[:-1] & on[1:] & (head[:-2] == 1) & letters.middle[tokens[1:-1]].astype(bool) & (rest[2:] == 1)
    return rows_of(hit, starts)


def control_rows(tokens: np.ndarray, starts: np.ndarray, letters: Alphabet) -> np.ndarray:
    """Rows with control characters."""
    return rows_of(letters.control[tokens].astype(bool), starts)


def brace_rows(tokens: np.ndarray, starts: np.ndarray, letters: Alphabet) -> np.ndarray:
    """Rows with `{{`, in one token or across two."""
    hit = letters.braces[tokens].astype(bool)
    across = letters.brace_last[tokens[:-1]].astype(bool) & letters.brace_first[tokens[1:]].astype(bool)
    hit[:-1] |= across & goes_on(starts, len(tokens))
    return rows_of(hit, starts)


def goes_on(starts: np.ndarray, tokens: int) -> np.ndarray:
    """Whether the next token belongs to the same row, for every token but the last, shape (tokens - 1,)."""
    on = np.ones(tokens, dtype=bool)
    ends = starts[1:][np.diff(starts) > 0] - 1
    on[ends] = False
    return on[:-1]


def placeholders(texts: Sequence[str]) -> dict[str, int]:
    """{placeholder: texts that hold it}, the most frequent first."""
    counts = Counter(field for text in texts for field in set(PLACEHOLDER.findall(text)))
    return dict(counts.most_common())


def rows_of(hit: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Rows with a token where `hit` (tokens,) is true."""
    return np.unique(np.searchsorted(starts, np.flatnonzero(hit), side="right") - 1)


def byte_level(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether tokens are written in the byte alphabet of GPT-2."""
    return "ByteLevel" in str(getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", ""))


def token_bytes(token: str | None, in_bytes: bool) -> bytes:
    """Bytes of a token as the vocabulary writes it: GPT-2's alphabet, <0xEF> for one byte, else UTF-8."""
    if token is None:
        return b""
    if in_bytes and all(letter in _BYTES for letter in token):
        return bytes(_BYTES[letter] for letter in token)
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return bytes.fromhex(token[3:5])
    return token.encode("utf-8", "replace")


def _gpt2_alphabet() -> dict[str, int]:
    """{letter: byte}: printable bytes stand for themselves, the others for the letters from U+0100 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTES = _gpt2_alphabet()


def shortened(text: str, around: Sequence[str], most: int = 40) -> str:
    """`most` characters of `text` around the first of `around` that is in it, for a sentence."""
    at = min((text.index(a) for a in around if a in text), default=0)
    begin = max(0, at - most // 2)
    return repr(text[begin : begin + most])
