"""Tensors that no file holds: a raw parameter that no initialiser fills, and all that is filled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from runner.preflight.weights.initialised import absent, as_loaded, different, initialised, same_bits, twice, uncovered
from runner.preflight.weights.twin import initialise_alone, sentinel, untouched_share
from tests.preflight.weights.damage import UP, configure, copy_of, grave

Make = Callable[..., Any]

CODE = """
import torch
from torch import nn
from transformers import Qwen2Config, Qwen2Model, Qwen2PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput


class Scale(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


class OwnForClassification(Qwen2PreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = Qwen2Model(config)
        self.scale = Scale(config.hidden_size)
        self.head_w = nn.Parameter(torch.empty(config.num_labels, config.hidden_size))
        self.register_buffer("factor", torch.ones(2), persistent=False)
        self.post_init()
INITIALISER

    def forward(self, input_ids=None, attention_mask=None, labels=None, **kwargs):
        h = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        logits = self.scale(h.mean(1)) @ self.head_w.T
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=loss, logits=logits)
"""

NOTHING = ""
HALF = """
    def _init_weights(self, module):
        super()._init_weights(module)
        if isinstance(module, Scale):
            module.gain.data.fill_(1.0)
        if module is self:
            nn.init.normal_(self.head_w[:1], std=0.02)
            self.factor.fill_(1.0)
"""
ALL = HALF.replace("self.head_w[:1]", "self.head_w")
LEFT = ("head_w", "scale.gain")


@pytest.fixture
def own(micro_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """own(initialiser) -> folder of a model with a head in code of its own, whose weights the files lack."""
    # The library copies code of models into the user's cache.
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))

    def make(initialiser: str) -> Path:
        folder = copy_of(micro_model, tmp_path / "model")
        (folder / "own_head.py").write_text(CODE.replace("INITIALISER", initialiser), encoding="utf-8")
        configure(folder, auto_map={"AutoModelForSequenceClassification": "own_head.OwnForClassification"})
        return folder

    return make


def classifier(context: Make, folder: Path, **changes: Any) -> Any:
    return context(
        "weights", task="classification", model__path=str(folder), model__trust_remote_code=True, lora__method="none",
        **changes,
    )  # fmt: skip


def test_a_raw_parameter_that_nothing_fills(context: Make, own: Callable[[str], Path]) -> None:
    c = classifier(context, own(NOTHING))
    assert type(c.start).__name__ == "OwnForClassification"
    result = initialised(c)
    f = result.findings[0]
    assert (f.id, f.severity, f.numbers["culprit"]) == ("weights.uninitialised", "error", "initialiser")
    assert set(f.where) == {"head_w", "scale.gain", "factor"} and f.numbers["share"] == 1.0
    assert result.summary.endswith("not all initialised")
    # Whatever happens to be in the memory, no other cause is named.
    assert {f.id for f in grave(c)} == {"weights.uninitialised"}


@pytest.mark.parametrize("value", [0.0, float("nan"), 1e31])
def test_what_was_in_memory_does_not_change_the_cause(context: Make, own: Callable[[str], Path], value: float) -> None:
    c = classifier(context, own(NOTHING))
    with torch.no_grad():
        for name in LEFT:
            c.start.get_parameter(name).fill_(value)
        c.start.factor.fill_(1.0)
    c.load_again = lambda: c.start
    findings = grave(c)
    assert {f.id for f in findings} == {"weights.uninitialised"}
    assert all(f.numbers["culprit"] == "initialiser" and "head_w" in f.where for f in findings)


def test_a_parameter_of_which_a_part_is_filled(context: Make, own: Callable[[str], Path]) -> None:
    c = classifier(context, own(HALF))
    (f,) = uncovered(initialise_alone(c.start, absent(c)))
    assert f.where == ("head_w",) and f.numbers["share"] == pytest.approx(2 / 3)
    assert "of head_w 67 %" in f.sentence


def test_a_head_of_its_own_that_is_filled(context: Make, own: Callable[[str], Path]) -> None:
    c = classifier(context, own(ALL))
    assert grave(c) == []
    assert initialised(c).summary == "not in the files: parameters 2, buffers 3, all initialised"


@pytest.mark.parametrize("task", ["sft", "classification"])
def test_the_model_is_left_as_it_is(context: Make, task: str) -> None:
    c = context("weights", task=task)
    before = {n: t.clone() for n, t in c.start.state_dict().items()}
    objects = {n: id(p) for n, p in c.start.named_parameters()}
    state = torch.get_rng_state()
    head = ["score.weight"] if task == "classification" else []
    assert absent(c) == ["model.rotary_emb.inv_freq", "model.rotary_emb.original_inv_freq", *head]
    assert initialised(c).findings == ()
    assert torch.equal(torch.get_rng_state(), state)
    assert {n: id(p) for n, p in c.start.named_parameters()} == objects
    assert all(torch.equal(t, before[n]) for n, t in c.start.state_dict().items())


@pytest.mark.parametrize(
    ("value", "said"), [(float("nan"), "holds NaN or infinity"), (0.0, "is all zero"), (5e4, "holds 5e+04")]
)
def test_filled_by_the_initialiser_and_yet_not_sane(context: Make, value: float, said: str) -> None:
    c = context("weights", task="classification")
    with torch.no_grad():
        c.start.score.weight.fill_(value)
    (f,) = as_loaded(c, initialise_alone(c.start, ["score.weight"]))
    assert (f.id, f.where, f.numbers["culprit"]) == ("weights.uninitialised", ("score.weight",), "loader")
    assert said in f.sentence


def test_two_loads_that_differ(context: Make) -> None:
    c = context("weights", task="classification")
    assert twice(c).findings == () and twice(c).summary == "29 tensors, the same bits"
    load = c.load_again

    def other() -> Any:
        model = load()
        with torch.no_grad():
            model.score.weight[2, 1] += 1e-6
            model.get_parameter(UP)[0, 0] = 3.0
        return model

    c.load_again = other
    state = torch.get_rng_state()
    (f,) = twice(c).findings
    assert f.id == "weights.uninitialised" and set(f.where) == {"score.weight", UP}
    assert f.numbers == {"tensors": 2, "compared": 29} and torch.equal(torch.get_rng_state(), state)


def test_offloaded_weights_are_not_judged(context: Make) -> None:
    c = context("weights")
    c.start.model.norm.weight = torch.nn.Parameter(torch.empty(0))
    assert initialised(c).skipped


def test_bits() -> None:
    nan = torch.tensor([1.0, float("nan")])
    assert same_bits(nan, nan.clone()) and not same_bits(nan, nan.half()) and not same_bits(nan, nan[:1])
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert same_bits(torch.tensor(3), torch.tensor(3)) and same_bits(torch.empty(0), torch.empty(0))
    assert different({"a": nan, "b": nan}, {"b": nan, "c": nan}) == (["a", "c"], 3)


def test_sentinels() -> None:
    assert untouched_share(torch.tensor([float("nan"), 0.0])) == 0.5
    for dtype in (torch.int64, torch.int32, torch.uint8, torch.float16):
        assert untouched_share(torch.full((4,), sentinel(dtype), dtype=dtype)) == 1.0
        assert untouched_share(torch.zeros(4, dtype=dtype)) == 0.0
    assert untouched_share(torch.empty(0)) == 0.0
