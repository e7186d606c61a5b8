"""The line probe on parabolas, where slope, curvature and the best step length are known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from runner.signals.line import line_probe


@pytest.mark.parametrize(
    ("slope", "curvature", "s", "reading"),
    [
        (-2.0, 1.0, 0.5, "safe"),
        (-2.0, 0.0, 0.0, "safe"),
        (-2.0, -3.0, -1.5, "safe"),
        (-2.0, 2.0, 1.0, "overshoots"),
        (-2.0, 3.0, 1.5, "overshoots"),
        (-2.0, 5.0, 2.5, "ascends"),
    ],
)
def test_a_parabola_gives_its_own_slope_and_curvature(slope: float, curvature: float, s: float, reading: str) -> None:
    def loss(x: float) -> float:
        return 4.0 + slope * x + curvature * x * x / 2

    line = line_probe(loss(0.0), loss(0.5), loss(1.0))
    assert (line.a, line.h, line.s) == pytest.approx((slope, curvature, s))
    assert line.reading == reading
    # The words mean what they say: only an ascending step ends above its start.
    assert (loss(1.0) > loss(0.0)) == (reading == "ascends")


def test_gradient_descent_on_a_quadratic_has_s_equal_to_rate_times_curvature_along_the_gradient() -> None:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    hessian, w = root @ root.T, rng.normal(size=5)
    gradient = hessian @ w
    for rate in (0.01, 0.1, 1.0):
        u = -rate * gradient
        l0, half, l1 = (float((w + x * u) @ hessian @ (w + x * u) / 2) for x in (0.0, 0.5, 1.0))
        line = line_probe(l0, half, l1)
        assert line.a == pytest.approx(gradient @ u)
        assert line.h == pytest.approx(u @ hessian @ u)
        assert line.s == pytest.approx(rate * (gradient @ hessian @ gradient) / (gradient @ gradient))


def test_an_update_that_leads_uphill_or_nowhere_is_named() -> None:
    uphill = line_probe(1.0, 1.625, 2.5)
    assert (uphill.a, uphill.h) == (1.0, 1.0)
    assert math.isnan(uphill.s) and uphill.reading == "no_descent"
    nowhere = line_probe(1.5, 1.5, 1.5)
    assert (nowhere.a, nowhere.h, nowhere.reading) == (0.0, 0.0, "no_descent")


@pytest.mark.parametrize("losses", [(math.nan, 1.0, 1.0), (1.0, math.inf, 1.0), (1.0, 1.0, math.nan)])
def test_a_loss_that_is_not_finite_tells_nothing(losses: tuple[float, float, float]) -> None:
    line = line_probe(*losses)
    assert all(math.isnan(x) for x in (line.a, line.h, line.s)) and line.reading == "unknown"
