"""How far the loss will move from sampling alone, and what the held-out rows can show, before the first step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from runner.config.advice import quoted_by
from runner.data.loss_cache import load_losses, row_key, store_losses
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, found, not_needed, ok, places
from runner.signals.power import rows_needed, steps_needed
from runner.training.base_loss import LEAST_EXAMPLES, expected_noise, key_of_start, traits, wanted_rows

QUICK_SECONDS, DEEP_SECONDS = 5.0, 20.0
"""Forward passes that the two levels may spend on this, estimated by the batch that was timed."""

DIFFERENCE = 0.02
"""Nats: a difference between two settings worth seeing."""

EXPLAINED = 0.65
"""Share of the noise that the start model's loss takes away, at least: 0.65 to 0.73 on public Qwen2.5-3B logs, 0.98
on SmolLM2-135M (DESIGN 7.3)."""

APART = 0.1
"""Share of the sampling variance between sources from which stratified batches are worth a word: they lower the
standard deviation by 5 % there."""


WIDE = 0.1
"""Relative half-width of the evaluation loss's 95 % interval from which there is a note."""


def noise(c: Context) -> Result:
    """Predicted noise of the loss (DESIGN 7.1), from the start model's loss on rows of the planned steps."""
    measured = losses_of_rows(c)
    if measured is None:
        return not_needed("measuring enough rows would take too long here; the run says it before step 1")
    ids, losses, chosen = measured
    band = expected_noise(c.cfg, c.plan, ids, losses, *traits(chosen, c.trainer))
    c.facts["noise"], c.facts["row_losses"] = band, (ids, losses, chosen)
    broken = [row for row in ids if not math.isfinite(losses[row][0])]
    findings = []
    if broken:
        findings.append(
            Finding(
                "data.bad_batch",
                "error",
                f"the start model's loss is not finite on {len(broken)} of {len(ids)} rows: {places(broken)}",
                tuple(broken),
                {"rows": len(ids), "not_finite": len(broken)},
            )
        )
    return found(noise_sentence(band), *findings)


def noise_sentence(band: dict[str, Any]) -> str:
    """What the band of `expected_noise` means, in one sentence."""
    if not math.isfinite(band["sd_step"]):
        return f"too few rows to say ({band['examples']})"
    parts = [f"loss about {band['mean']:.3g}; from sampling alone expect +/- {band['sd_step']:.2g} per step"]
    if band["log_steps"] > 1:
        parts.append(f"+/- {band['sd_log']:.2g} per logged point (mean of {band['log_steps']} steps)")
    text = f"{', '.join(parts)} at batch {band['batch']}; global batch {4 * band['batch']} halves it"
    sd = band["sd_independent"]
    plain, adjusted = steps_needed(sd, DIFFERENCE), steps_needed(sd * math.sqrt(1 - EXPLAINED), DIFFERENCE)
    if plain is not None and adjusted is not None:
        text += (
            f"; to see a difference of {DIFFERENCE} between two settings takes about {rounded(plain)} steps each, or "
            f"{rounded(adjusted)} on the adjusted loss"
        )
    return text


def rounded(n: int) -> str:
    """Two digits, with a comma: 2074 -> 2,100."""
    digits = max(0, len(str(n)) - 2)
    return f"{round(n, -digits):,}"


def losses_of_rows(c: Context) -> tuple[list[str], dict[str, tuple[float, int]], Any] | None:
    """(row ids, {row_id: (summed loss, tokens)}, the rows); None where fewer than 16 rows can be afforded.

    Losses known from earlier runs are taken from their cache, and new ones are put there: the run finds them.
    """
    every = c.data.train.select(wanted_rows(c.cfg, c.plan, c.data))
    chosen = every.select(affordable(c, len(every)))
    ids = list(chosen["row_id"])
    if len(ids) < 2:
        return None
    key = key_of_start(c.cfg, c.data, c.trainer)
    keys = {r: row_key(i, y) for r, i, y in zip(ids, chosen["input_ids"], chosen["labels"], strict=True)}
    cached = load_losses(key, keys.values(), c.note)
    losses = {row: cached[k] for row, k in keys.items() if k in cached}
    missing = [i for i, row in enumerate(ids) if row not in losses]
    if missing:
        rows = chosen.select(sorted(missing, key=lambda i: -chosen[i]["length"]))
        measured = measure(c, rows)
        losses.update(measured)
        store_losses(key, {keys[row]: loss for row, loss in measured.items()}, c.note)
    return ids, losses, chosen


def affordable(c: Context, rows: int) -> list[int]:
    """Indices of the rows that the level's seconds allow, evenly spaced; none where they allow fewer than 16."""
    timed = c.facts.get("seconds")
    most = rows
    if timed:
        # A forward pass is a third of a step; rows of other lengths cost by their tokens.
        lengths = np.asarray(c.data.train["length"])
        each = timed["seconds"] / max(timed["tokens"], 1) * float(lengths.mean()) / 3
        limit = DEEP_SECONDS if c.level == "deep" else QUICK_SECONDS
        most = int(limit / max(each, 1e-9))
    if most < min(16, rows):
        return []
    count = min(rows, most, max(LEAST_EXAMPLES, 256 if c.level == "deep" else LEAST_EXAMPLES))
    return [int(i) for i in np.unique(np.linspace(0, rows - 1, count).round())]


def measure(c: Context, rows: Any) -> dict[str, tuple[float, int]]:
    """{row_id: (summed loss, supervised tokens)} of `rows` in the run's number format, dropout off."""
    trainer = c.trainer
    model: Any = trainer.model
    size = c.cfg.evaluation.per_device_eval_batch_size
    before, trainer.held_out = trainer.held_out, {}
    try:
        with trainer.no_trace(), torch.no_grad(), trainer.accelerator.autocast():
            model.to(trainer.args.device).eval()
            for first in range(0, len(rows), size):
                batch = trainer.data_collator([rows[i] for i in range(first, min(first + size, len(rows)))])
                trainer.compute_loss(model, trainer._prepare_inputs(batch))
        return {row: (s, n) for row, (_, s, n) in trainer.held_out.items()}
    finally:
        trainer.held_out = before


def validation(c: Context) -> Result:
    """How finely the held-out rows know the evaluation loss; a note where that is coarse."""
    if c.data.validation is None:
        return not_needed("no rows are held out")
    band = c.facts.get("noise")
    if band is None or not math.isfinite(band["sd_independent"]) or not band["mean"] > 0:
        return not_needed("the start model's losses are not known")
    rows = len(c.data.validation)
    # sd_independent belongs to a batch; one row moves sqrt(batch) times as far.
    each = band["sd_independent"] * math.sqrt(band["batch"])
    width = 1.96 * each / math.sqrt(rows)
    needed = rows_needed(each, 0.01 * band["mean"])
    subject = "1 row knows" if rows == 1 else f"{rows} rows know"
    summary = f"{subject} the evaluation loss to +/- {width:.2g} ({100 * width / band['mean']:.2g} %)"
    if needed is not None and needed > rows:
        summary += f"; +/- 1 % takes about {rounded(needed)}"
    if needed is None or (width <= WIDE * band["mean"] and not quoted_by("evaluation.noisy", c.cfg)):
        return ok(summary)
    finding = Finding(
        "evaluation.noisy",
        "note",
        f"{summary}. Changes on the same rows are seen more finely than differences between data sets",
        ("dataset.validation",),
        {"rows": rows, "width": width, "rows_for_1_percent": needed},
    )
    return found(summary, finding)


def sources(c: Context) -> Result:
    """Mean loss of each source under the start model; a note where batches by source would calm the curve."""
    band, known = c.facts.get("noise"), c.facts.get("row_losses")
    if band is None or known is None:
        return not_needed("the start model's losses are not known")
    ids, losses, chosen = known
    of = dict(zip(ids, chosen["source"], strict=True))
    means = source_means([(of[row], *losses[row]) for row in ids])
    if len(means) < 2:
        return not_needed("one source")
    summary = ", ".join(f"{name} {mean:.3g}" for name, mean in sorted(means.items(), key=lambda x: -x[1]))
    share = band["between_share"]
    if c.cfg.batch.sampler == "stratified" or not share > APART or c.cfg.dataset.mix == "interleave":
        return ok(f"{summary}; {100 * share:.0f} % of the noise lies between them")
    calmer = 1 - math.sqrt(1 - share)
    finding = Finding(
        "data.sampling_noise",
        "note",
        f"the sources differ in mean loss ({summary}): {100 * share:.0f} % of the loss's noise lies between them, and "
        f"batches with a fixed share of each would move {100 * calmer:.0f} % less",
        tuple(sorted(means, key=lambda name: -means[name])),
        {"between_share": share, **{f"mean_{name}": mean for name, mean in means.items()}},
        ("batch.sampler=stratified",),
    )
    return found(summary, finding)


def source_means(rows: list[tuple[str, float, int]]) -> dict[str, float]:
    """Token-mean loss of each source; rows are (source, summed loss, tokens), those that are not finite left out."""
    sums: dict[str, list[float]] = {}
    for name, total, tokens in rows:
        if math.isfinite(total):
            pair = sums.setdefault(name, [0.0, 0.0])
            pair[0] += total
            pair[1] += tokens
    return {name: s / n for name, (s, n) in sums.items() if n > 0}
