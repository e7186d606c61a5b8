"""Keys of the checkpoint against those of the model, as the loader reported them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from runner.model.load import trunk_keys
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, Severity, found, places
from runner.preflight.weights.audit import role
from runner.preflight.weights.blame import mismatched

HARMLESS = re.compile(r"rotary_emb|inv_freq|position_ids|masked_bias|attn\.bias$|num_batches_tracked")
"""Buffers that older versions saved, and that the model computes."""

HEADS = re.compile(r"(^|\.)(lm_head|score|classifier|classification_head|v_head|qa_outputs|cls|pooler)(\.|$)")
"""Heads of another task, which are left behind on purpose."""

MANY = 1.0
"""Unexpected keys per parameter tensor of the model from which another architecture is likely."""


def keys(c: Context) -> Result:
    """Missing, mismatched and unexpected keys; a new classification head is expected."""
    lacking = set(c.loading.get("missing_keys", ()))
    other = mismatched(c)
    absent = lacking | other
    trunk = trunk_keys(c.start, absent, absent) if c.classification else sorted(absent)
    head = sorted(absent - set(trunk))
    strange = trunk_of(c.loading.get("unexpected_keys", ()))
    names = {n for n, _ in c.start.named_parameters()}
    findings = [*missing(trunk), *unexpected(strange, names)]
    said = [f"new head: {places(head)}"] if head else ["none missing"]
    if set(head) & other:
        said.append("the head in the files has another shape and is not used")
    said.append(f"{len(strange)} unexpected")
    return found(", ".join(said), *findings)


def missing(trunk: Collection[str]) -> list[Finding]:
    """An error for weights outside a new head that no file holds."""
    if not trunk:
        return []
    names = sorted(trunk)
    sentence = f"{len(names)} weights are not in the files and started at random: {places(names)}"
    return [Finding("weights.keys_do_not_match", "error", sentence, tuple(names), {"missing": len(names)})]


def trunk_of(unexpected: Iterable[str]) -> list[str]:
    """Unexpected keys that are neither buffers of older versions nor heads of another task, sorted."""
    return sorted(k for k in unexpected if not HARMLESS.search(k) and not HEADS.search(k))


def unexpected(strange: Collection[str], names: Collection[str]) -> list[Finding]:
    """A warning where the files hold more of what the model has (further layers) or as much again as it has, a note for
    anything else, such as the image tower of a model that is trained on text.
    """
    roles = {role(n) for n in names}
    layers = sorted(k for k in strange if role(k) in roles)
    if layers:
        sentence = (
            f"the files hold {len(layers)} weights of layers that config.json does not ask for, and they are not used: "
            f"{places(layers)}"
        )
        numbers = {"unexpected": len(strange), "of_known_roles": len(layers)}
        return [Finding("weights.keys_do_not_match", "warning", sentence, tuple(layers), numbers)]
    if strange:
        sentence = f"{len(strange)} weights in the files are not used by this model: {places(sorted(strange))}"
        grave: Severity = "warning" if len(strange) >= MANY * len(names) else "note"
        numbers = {"unexpected": len(strange)}
        return [Finding("weights.keys_do_not_match", grave, sentence, tuple(sorted(strange)), numbers)]
    return []
