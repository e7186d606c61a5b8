"""What the optimizer is about to do, computed before it does it, against what it did."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from runner.training import statistics
from runner.training.statistics import weight_statistics


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(*shape)) for shape in ((40, 30), (7,), (3, 5, 2))]


OPTIMIZERS: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
    (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.0, "fused": True}),
    (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.3, "betas": (0.8, 0.95), "eps": 1e-3, "foreach": True}),
    (torch.optim.Adam, {"lr": 1e-2, "weight_decay": 0.1}),
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "dampening": 0.3}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
]


@pytest.mark.parametrize(("kind", "settings"), OPTIMIZERS)
@pytest.mark.parametrize("piece", [16, 2**20])
def test_the_update_is_the_one_that_comes(
    kind: Any, settings: dict[str, Any], piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "PIECE", piece)
    weights = parameters()
    optimizer = kind(weights, **settings)
    count = sum(p.numel() for p in weights)
    for _ in range(4):
        for p in weights:
            p.grad = torch.randn_like(p)
        before = [p.detach().clone() for p in weights]
        found = weight_statistics(optimizer)
        optimizer.step()
        moved = sum(((p.detach() - b) ** 2).sum().item() for p, b in zip(weights, before, strict=True))
        size = sum((b**2).sum().item() for b in before)
        assert found["update_rms"].item() == pytest.approx(math.sqrt(moved / count), rel=1e-4)
        assert found["weight_rms"].item() == pytest.approx(math.sqrt(size / count), rel=1e-5)
        if kind is not torch.optim.SGD:
            v = [
                optimizer.state[p]["exp_avg_sq"] / (1 - settings.get("betas", (0.9, 0.999))[1] ** (_ + 1))
                for p in weights
            ]
            g = [
                p.grad + (settings["weight_decay"] * b if kind is torch.optim.Adam else 0)
                for p, b in zip(weights, before, strict=True)
            ]
            eps = settings.get("eps", 1e-8) ** 2
            mean = sum((x**2 / y.clamp(min=eps)).sum().item() for x, y in zip(g, v, strict=True)) / count
            assert found["rms_t"].item() == pytest.approx(math.sqrt(mean), rel=1e-4)


def test_the_first_step_of_adam_has_rms_one_and_a_sudden_gradient_more() -> None:
    weight = torch.nn.Parameter(torch.zeros(100))
    optimizer = torch.optim.AdamW([weight], lr=1e-3)
    weight.grad = torch.full((100,), 1e-3)
    assert weight_statistics(optimizer)["rms_t"].item() == pytest.approx(1.0, rel=1e-4)
    for _ in range(50):
        optimizer.step()
    weight.grad = torch.full((100,), 1.0)
    assert weight_statistics(optimizer)["rms_t"].item() > 2.3


def test_a_broken_optimizer_state_is_seen_before_it_reaches_the_weights() -> None:
    weights = parameters()
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    for p in weights:
        p.grad = torch.randn_like(p)
    optimizer.step()
    optimizer.state[weights[1]]["exp_avg"][2] = float("nan")
    assert math.isnan(weight_statistics(optimizer)["update_rms"].item())


def test_other_optimizers_say_only_what_is_known_and_frozen_weights_nothing() -> None:
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.RMSprop([weight])
    assert weight_statistics(optimizer) == {}
    weight.grad = torch.ones(4)
    assert set(weight_statistics(optimizer)) == {"weight_rms"}


def test_half_precision_weights_are_measured_in_fp32() -> None:
    weight = torch.nn.Parameter(torch.full((300,), 300.0, dtype=torch.float16))
    weight.grad = torch.full((300,), 300.0, dtype=torch.float16)
    found = weight_statistics(torch.optim.SGD([weight], lr=1.0))
    assert found["weight_rms"].item() == pytest.approx(300.0) and found["update_rms"].item() == pytest.approx(300.0)
