"""Saved and loaded again: the same logits, or the head that is lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from runner.preflight.batch.round_trip import apart, changed, moved, round_trip
from runner.preflight.finding import Result
from runner.training.build import build_trainer

Make = Callable[..., Any]


def ids(result: Result) -> list[tuple[str, str]]:
    return [(f.id, f.severity) for f in result.findings]


def rebuild(c: Any, model: Any) -> Any:
    """The context with a trainer around another model."""
    c.trainer = build_trainer(
        c.cfg, c.plan, c.formats, 1e-3, model, c.tokenizer, c.data, c.folder, lambda row: None, []
    )
    return c


@pytest.mark.parametrize("task", ["sft", "classification"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"lora__method": "none"},
        pytest.param({"lora__use_dora": True}, marks=pytest.mark.slow),
        pytest.param({"precision__compute": "bf16"}, marks=pytest.mark.slow),
    ],
)
def test_healthy(context: Make, task: str, changes: dict[str, Any]) -> None:
    c = context("batch", task=task, **changes)
    before = [p.detach().clone() for p in c.trainer.model.parameters()]
    result = round_trip(c)
    assert not result.findings and not result.skipped and result.summary == "logits differ by 0"
    assert all(torch.equal(a, b) for a, b in zip(before, c.trainer.model.parameters(), strict=True))
    assert not (c.folder / "preflight").exists()


@pytest.mark.parametrize("trains", [False, True])
def test_head_not_saved(context: Make, trains: bool) -> None:
    """A4: a LoRA config without task type, the head frozen at random or unfrozen by hand; modules_to_save lacks it."""
    from peft import LoraConfig, get_peft_model

    c = context("weights", task="classification")
    model: Any = get_peft_model(c.start, LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    model.get_base_model().score.weight.requires_grad_(trains)
    result = round_trip(rebuild(c, model))
    assert ids(result) == [("weights.head_not_restored", "error")]
    found = result.findings[0]
    assert found.where == ("score.weight",) and found.numbers["tensors"] == 1
    assert found.numbers["difference"] > 0.1


def test_adapter_is_lost_when_its_file_is(context: Make) -> None:
    """A saving step that leaves tensors out: they are named, the others not."""
    c = context("batch")
    save = c.trainer.save_model

    class Forgetful(type(c.trainer)):  # type: ignore[misc]
        def save_model(self, folder: str, *args: Any, **kwargs: Any) -> None:
            from safetensors.torch import load_file, save_file

            save(folder)
            file = f"{folder}/adapter_model.safetensors"
            save_file({k: v for k, v in load_file(file).items() if "layers.1.mlp.down_proj" not in k}, file)

    c.trainer.__class__ = Forgetful
    result = round_trip(c)
    assert ids(result) == [("weights.head_not_restored", "error")]
    assert all("layers.1.mlp.down_proj" in name for name in result.findings[0].where)
    assert result.findings[0].numbers["tensors"] == 2


def test_left_out(context: Make) -> None:
    c = context("batch")
    c.processes = 2
    assert round_trip(c).skipped


def test_moved_restores_after_an_error() -> None:
    model = torch.nn.Linear(3, 3)
    model.bias.requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises(ZeroDivisionError), moved(model):
        assert not torch.equal(model.weight, before["weight"]) and torch.equal(model.bias, before["bias"])
        raise ZeroDivisionError
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())


def test_apart_and_changed_by_hand() -> None:
    a = torch.tensor([[1.0, -4.0]])
    assert apart(a, a) == 0 and apart(a, a + 1) == 0.25
    assert apart(a, a[:, :1]) == math.inf and apart(a, a * math.nan) == math.inf
    assert apart(a * 0, a) == math.inf and apart(a * 0, a * 0) == 0
    one, two = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    two.load_state_dict(one.state_dict())
    assert changed(one, two) == []
    two.bias.data += 1
    assert changed(one, two) == ["bias"]
    assert changed(one, torch.nn.Linear(2, 2, bias=False).requires_grad_(True))[-1] == "bias"
    assert changed(one.double(), two.float()) == ["bias"]
