"""ZClip, AutoClip, AGC and AdaGC against values worked out by hand, and their authors' defaults."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from runner.config.compose import load
from runner.config.schema import Clip
from runner.stability.adaptive import zclip_threshold
from runner.stability.clipping import Clipper, make_clipper


def step(
    clipper: Clipper, *gradients: list[float], weights: list[list[float]] | None = None
) -> tuple[float, float, list]:
    """(norm, factor, gradients afterwards) of one step with these gradients."""
    named = []
    for i, gradient in enumerate(gradients):
        p = torch.nn.Parameter(torch.tensor(weights[i]) if weights else torch.zeros(len(gradient)))
        p.grad = torch.tensor(gradient)
        named.append((f"layer{i}.weight", p))
    norm, factor = clipper(named)
    return norm.item(), factor.item(), [p.grad.tolist() for _, p in named if p.grad is not None]


def test_the_options_hold_their_authors_defaults() -> None:
    zclip = load(["clip=zclip"]).config.clip
    assert (zclip.z_threshold, zclip.alpha, zclip.warmup_steps, zclip.max_grad_norm) == (2.5, 0.97, 25, 1.0)
    agc = load(["clip=agc"]).config.clip
    assert (agc.clipping, agc.agc_eps) == (0.01, 1e-3)
    adagc = load(["clip=adagc"]).config.clip
    assert (adagc.lambda_abs, adagc.lambda_rel, adagc.beta, adagc.warmup_steps) == (1.0, 1.05, 0.98, 100)
    assert load(["clip=autoclip"]).config.clip.percentile == 10.0


def test_zclip_threshold_by_hand() -> None:
    # mean 1, sd 0.1: a norm of 2 has z = 10 (less the epsilon), target 1 + 2.5 * 0.1 / (10 / 2.5) = 1.0625.
    assert zclip_threshold(2.0, 1.0, 0.01, 2.5) == pytest.approx(1.0625, rel=1e-4)
    assert zclip_threshold(1.2, 1.0, 0.01, 2.5) is None


def test_zclip_learns_from_the_first_norms_then_scales_an_outlier_down() -> None:
    clipper = make_clipper(Clip(method="zclip", warmup_steps=4, max_grad_norm=5.0, alpha=0.9))
    for value in (0.9, 1.1, 0.9, 1.1):
        assert step(clipper, [value])[1] == 1.0
    assert clipper.state() == {"first": [], "mean": pytest.approx(1.0), "variance": pytest.approx(0.01)}
    norm, factor, after = step(clipper, [2.0])
    assert norm == 2.0
    assert factor == pytest.approx(1.0625 / 2.0, rel=1e-4)
    assert after[0][0] == pytest.approx(1.0625, rel=1e-4)
    # What was applied enters the band: mean 0.9 * 1 + 0.1 * 1.0625, then the deviation from that new mean.
    mean = 0.9 + 0.1 * 1.0625
    assert clipper.state()["mean"] == pytest.approx(mean, rel=1e-4)
    assert clipper.state()["variance"] == pytest.approx(0.9 * 0.01 + 0.1 * (1.0625 - mean) ** 2, rel=1e-3)
    assert step(clipper, [1.1])[1] == 1.0


def test_zclip_caps_every_norm() -> None:
    clipper = make_clipper(Clip(method="zclip", warmup_steps=2, max_grad_norm=1.0))
    assert step(clipper, [3.0, 4.0])[1] == pytest.approx(0.2, rel=1e-4)
    step(clipper, [5.0])
    assert step(clipper, [5.0])[1] == pytest.approx(0.2, rel=1e-4)


def test_autoclip_by_hand() -> None:
    clipper = make_clipper(Clip(method="autoclip", percentile=50.0))
    assert step(clipper, [4.0])[1] == pytest.approx(1.0)
    assert step(clipper, [2.0])[1] == 1.0  # median of 4 and 2 is 3
    norm, factor, _ = step(clipper, [6.0])  # median of 4, 2, 6 is 4
    assert (norm, factor) == (6.0, pytest.approx(4 / 6, rel=1e-5))
    assert clipper.state() == {"history": [4.0, 2.0, 6.0]}


def test_agc_by_hand() -> None:
    clipper = make_clipper(Clip(method="agc", clipping=0.1, agc_eps=0.001))
    weight = torch.nn.Parameter(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    weight.grad = torch.tensor([[6.0, 8.0], [0.0, 1.0]])
    small = torch.nn.Parameter(torch.tensor([[10.0, 0.0]]))
    small.grad = torch.tensor([[0.5, 0.0]])
    head = torch.nn.Parameter(torch.tensor([[0.1]]))
    head.grad = torch.tensor([[9.0]])
    norm, factor = clipper([("a.weight", weight), ("b.weight", small), ("lm_head.weight", head)])
    # Row 1: |w| = 5 allows 0.5, |g| = 10 becomes 0.5. Row 2: |w| = 0 counts as 0.001, allows 0.0001.
    assert weight.grad.tolist() == [pytest.approx([0.3, 0.4]), pytest.approx([0.0, 0.0001])]
    assert small.grad.tolist() == [[0.5, 0.0]]
    assert head.grad.item() == 9.0
    assert factor.item() == pytest.approx(math.sqrt(0.25 + 1e-8 + 0.25 + 81) / norm.item(), rel=1e-5)


def test_adagc_by_hand() -> None:
    clipper = make_clipper(Clip(method="adagc", warmup_steps=2, lambda_abs=1.0, lambda_rel=1.1, beta=0.5))
    # Warmup: global norm 5 is clipped to 1; the references are 0.6 and 0.8.
    _, factor, after = step(clipper, [3.0], [4.0])
    assert factor == pytest.approx(0.2) and after == [pytest.approx([0.6]), pytest.approx([0.8])]
    step(clipper, [0.5], [0.9])  # norm 1.03: clipped to 1, the smaller of each is kept
    whole = 1 / math.hypot(0.5, 0.9)
    reference = clipper.state()["reference"]
    assert reference["layer0.weight"] == pytest.approx(0.5 * whole)
    assert reference["layer1.weight"] == pytest.approx(0.8)
    # Afterwards: tensor 0 is an outlier, tensor 1 is not.
    _, _, after = step(clipper, [5.0], [0.4])
    limit = 1.1 * 0.5 * whole
    assert after == [pytest.approx([limit]), pytest.approx([0.4])]
    reference = clipper.state()["reference"]
    assert reference["layer0.weight"] == pytest.approx(0.5 * (0.5 * whole) + 0.5 * limit)
    assert reference["layer1.weight"] == pytest.approx(0.5 * 0.8 + 0.5 * 0.4)


@pytest.mark.parametrize("method", ["zclip", "autoclip", "adagc"])
def test_state_goes_through_json_and_a_broken_norm_teaches_nothing(method: str) -> None:
    rng = np.random.default_rng(0)
    clip = Clip(method=method, warmup_steps=3)  # type: ignore[arg-type]
    one, two = make_clipper(clip), make_clipper(clip)
    for value in rng.uniform(0.5, 2.0, 5):
        step(one, [float(value)])
    before = one.state()
    step(one, [math.nan])
    assert one.state() == before
    two.load(json.loads(json.dumps(before)))
    for value in rng.uniform(0.5, 4.0, 5):
        assert step(one, [float(value)]) == step(two, [float(value)])
