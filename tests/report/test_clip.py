"""The sentence about clipping, and the facts about optimizers that it rests on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from runner.report.clip import clip_sentence, clipped, family


def weights_after(
    optimizer: Callable[..., torch.optim.Optimizer], factor: Callable[[float], float], spread: float = 0.0, **more: Any
) -> tuple[torch.Tensor, list[float], list[float]]:
    """(weights, factors, norms) of a linear regression on batches of 8 from zero; each gradient times factor(norm).

    `spread` is the standard deviation of the logarithm of a random size of each batch's loss.
    """
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 20, generator=draw)
    y = x @ torch.randn(20, generator=draw) + 0.5 * torch.randn(2000, generator=draw)
    w = torch.nn.Parameter(torch.zeros(20))
    opt = optimizer([w], lr=1e-4, **more)
    factors, norms = [], []
    for _ in range(200):
        rows = torch.randint(0, 2000, (8,), generator=draw)
        size = torch.exp(spread * torch.randn((), generator=draw))
        opt.zero_grad()
        (size * (x[rows] @ w - y[rows]).square().mean()).backward()
        assert w.grad is not None
        norms.append(float(w.grad.norm()))
        factors.append(factor(norms[-1]))
        w.grad.mul_(factors[-1])
        opt.step()
    return w.detach(), factors, norms


def test_adamw_does_not_see_a_constant_factor_and_sgd_is_slowed_by_it() -> None:
    free, _, _ = weights_after(torch.optim.AdamW, lambda n: 1.0)
    held, _, _ = weights_after(torch.optim.AdamW, lambda n: 0.03)
    assert (held - free).norm() < 0.01 * free.norm()
    free, _, _ = weights_after(torch.optim.SGD, lambda n: 1.0)
    held, _, _ = weights_after(torch.optim.SGD, lambda n: 0.03)
    assert float(held.norm() / free.norm()) == pytest.approx(0.03, rel=0.05)


def test_adamw_barely_sees_a_limit_below_every_norm_and_not_its_value() -> None:
    free, _, _ = weights_after(torch.optim.AdamW, lambda n: 1.0)
    low, low_factors, norms = weights_after(torch.optim.AdamW, lambda n: min(1.0, 0.01 / n))
    high, _, _ = weights_after(torch.optim.AdamW, lambda n: min(1.0, 1.0 / n))
    assert (low - high).norm() < 0.01 * free.norm(), "a hundred times the limit, the same run"
    assert (low - free).norm() < 0.1 * free.norm()
    assert "barely changes it, whatever the limit is" in clip_sentence("norm", "adamw_torch", low_factors, norms)
    free, _, _ = weights_after(torch.optim.SGD, lambda n: 1.0)
    held, factors, norms = weights_after(torch.optim.SGD, lambda n: min(1.0, 3.0 / n))
    assert float(held.norm() / free.norm()) == pytest.approx(np.mean(factors), rel=0.2)
    assert f"the step is {np.mean(factors):.2g} of what" in clip_sentence("norm", "sgd", factors, norms)


def test_where_the_norms_differ_much_clipping_all_does_change_adamw_and_the_sentence_says_so() -> None:
    free, _, _ = weights_after(torch.optim.AdamW, lambda n: 1.0, spread=1.0)
    held, factors, norms = weights_after(torch.optim.AdamW, lambda n: min(1.0, 0.01 / n), spread=1.0)
    assert (held - free).norm() > 0.2 * free.norm()
    assert held.norm() > free.norm(), "it does not slow the run"
    said = clip_sentence("norm", "adamw_torch", factors, norms)
    assert "count alike" in said and "barely" not in said


OUTLIERS = np.where(np.arange(100) % 33 == 32, 12.0, 1.0)
EVEN = 2.0 + 0.1 * np.sin(np.arange(100))


@pytest.mark.parametrize(
    ("method", "optimizer", "factors", "norms", "words"),
    [
        ("norm", "adamw_torch_fused", np.ones(100), EVEN, "never reached: it changed nothing in 100 steps"),
        ("norm", "adamw_torch_fused", np.where(OUTLIERS > 2, 0.1, 1), OUTLIERS, "from ruling Adam-like moments"),
        ("norm", "sgd", np.where(OUTLIERS > 2, 0.1, 1), OUTLIERS, "from ruling the weights with one outsized step"),
        ("norm", "sgd", np.where(OUTLIERS > 2, 0.1, 1), OUTLIERS, "Clipped 3 % of the steps (3 of 100), to 0.1 of"),
        ("norm", "adamw_torch", np.where(OUTLIERS > 2, 0.9, 1), EVEN, "so this changed little"),
        (
            "norm",
            "stable_adamw",
            np.where(EVEN > 2, 0.5, 1),
            EVEN,
            "batches with a large gradient count less in its moments",
        ),
        ("norm", "sgd", np.where(EVEN > 2, 0.5, 1), EVEN, "on average the step is 0.75 of what it would be"),
        ("norm", "sgd", np.full(100, 0.31), EVEN, "all 100 steps, to 0.31 of their gradient norm on average"),
        ("norm", "lion_8bit", np.full(100, 0.31), EVEN, "barely changes it"),
        ("value", "adafactor", np.full(100, 0.31), EVEN, "what stands out counts less in the direction"),
        ("agc", "adamw_torch", np.full(100, 0.31), EVEN, "what stands out counts less in the direction"),
        ("norm", "mystery", np.full(100, 0.31), EVEN, "whether mystery takes smaller steps"),
        ("none", "adamw_torch", np.ones(100), EVEN, "clip=none); the largest gradient norm was 1 times the median"),
        ("none", "adamw_torch", np.ones(100), OUTLIERS, "though the largest gradient norm was 12 times the median"),
        ("norm", "adamw_torch", [], [], "not measured"),
        ("norm", "adamw_torch", [np.nan], [1.0], "not measured"),
        ("norm", "adamw_torch", [1.0, 1.0], [np.nan, 1.0], "nothing in 1 steps"),
    ],
)
def test_the_sentence(method: str, optimizer: str, factors: Any, norms: Any, words: str) -> None:
    said = clip_sentence(method, optimizer, factors, norms)
    assert words in said and said.endswith(".") and "\n" not in said


def test_rounding_is_no_clipping_and_families_are_told_apart_by_name() -> None:
    assert clipped([1.0, 1 - 1e-8, 0.999, np.nan]).tolist() == [False, False, True, False]
    assert [family(n) for n in ("paged_adamw_32bit", "schedule_free_sgd", "stable_adamw", "adalomo", "lomo", "?")] == [
        "scale_free", "proportional", "scale_free", "scale_free", "proportional", "unknown",
    ]  # fmt: skip
