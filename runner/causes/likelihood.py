"""How likely each cause is, given which signs a run shows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from runner.causes.table import LAWS, NEEDS, PREDICTS, PRIOR, RARE, REST, RIVALS, USUAL, Rivals
from runner.causes.thresholds import LIKELY, POSSIBLE


class Likely(NamedTuple):
    """One cause that fits."""

    id: str
    probability: float
    """0 to 1: prior odds times the likelihood ratio of every known sign, among its rivals."""

    law: bool
    """A sign proves it."""

    signs: tuple[str, ...]
    """Signs that are present and speak for it, the strongest first."""


class Ranking(NamedTuple):
    """Causes by probability, and the rivals that could not be told apart."""

    causes: tuple[Likely, ...]
    tied: Rivals | None


def odds(cause: str, signs: Mapping[str, bool | None]) -> float:
    """Log odds of `cause`: log prior odds + sum over known signs of log(P(sign | cause) / P(sign | without)).

    Signs are taken as independent given the cause (naive Bayes); a sign that is None or absent says nothing.
    """
    prior = PRIOR.get(cause, RARE)
    total = math.log(prior / (1 - prior))
    for sign, with_it in PREDICTS[cause].items():
        present = signs.get(sign)
        if present is None:
            continue
        without = USUAL[sign]
        total += math.log(with_it / without) if present else math.log((1 - with_it) / (1 - without))
    return total


def supporting(cause: str, signs: Mapping[str, bool | None]) -> tuple[str, ...]:
    """Signs that are present and that the cause makes more likely, the strongest first."""
    row = PREDICTS[cause]
    found = [s for s, p in row.items() if signs.get(s) and p > USUAL[s]]
    return tuple(sorted(found, key=lambda s: -row[s] / USUAL[s]))


def rank(signs: Mapping[str, bool | None]) -> Ranking:
    """Every cause with a sign for it and a probability of at least `POSSIBLE`, the most probable first.

    Rivals (of which one at most is true) share one probability: each has its odds over one plus the sum of theirs.
    A cause that only describes (`REST`) goes where another one explains the same sign.
    """
    scores: dict[str, float] = {}
    reasons: dict[str, tuple[str, ...]] = {}
    for cause in PREDICTS:
        found = supporting(cause, signs)
        needed = NEEDS.get(cause)
        if not found or (needed and not any(signs.get(s) for s in needed)):
            continue
        law = LAWS.get(cause)
        if law is not None and not signs.get(law):
            continue
        scores[cause], reasons[cause] = odds(cause, signs), found
    likely = []
    for cause, score in scores.items():
        proven = bool(signs.get(LAWS.get(cause, "")))
        rivals = {r for group in RIVALS if cause in group.causes for r in group.causes if r in scores} | {cause}
        together = sum(math.exp(min(scores[r], 50.0)) for r in rivals)
        probability = 1.0 if proven else math.exp(min(score, 50.0)) / (1 + together)
        if probability >= POSSIBLE or proven:
            likely.append(Likely(cause, probability, proven, reasons[cause]))
    likely.sort(key=lambda c: (-c.probability, -scores[c.id]))
    explained = {s for c in likely if c.id not in REST and c.id not in NOTES for s in c.signs}
    kept = tuple(c for c in likely if c.id not in REST or not set(c.signs) <= explained)
    return Ranking(kept, _tied(scores, kept))


NOTES = (
    "data.sampling_noise",
    "data.epoch_staircase",
    "precision.isolated_overflow",
    "clip.saturated",
    "log.hidden_nan",
)
"""Causes that explain nothing away: they stand beside whatever else is the matter."""


def _tied(scores: Mapping[str, float], kept: tuple[Likely, ...]) -> Rivals | None:
    """The group of rivals in which two or more fit and none is likely; None without one."""
    by_id = {c.id: c for c in kept}
    for group in RIVALS:
        fit = [c for c in group.causes if c in scores and scores[c] > -2.5]
        best = max((by_id[c].probability for c in fit if c in by_id), default=0.0)
        certain = any(by_id[c].law for c in fit if c in by_id)
        named = any(c in by_id for c in fit)
        if len(fit) >= 2 and named and best < LIKELY and not certain and max(scores[c] for c in fit) > 0:
            return group
    return None
