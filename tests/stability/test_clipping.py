"""Clipping against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch

from runner.config.schema import Clip
from runner.stability.clipping import make_clipper, norms_of, total_norm


def parameters(*gradients: list[float] | None) -> list[torch.nn.Parameter]:
    made = []
    for gradient in gradients:
        p = torch.nn.Parameter(torch.zeros(len(gradient) if gradient else 1))
        p.grad = None if gradient is None else torch.tensor(gradient)
        made.append(p)
    return made


def clip_gradients(params: list[torch.nn.Parameter], clip: Clip) -> tuple[torch.Tensor, torch.Tensor]:
    return make_clipper(clip)([(f"p{i}", p) for i, p in enumerate(params)])


def grads(params: list[torch.nn.Parameter]) -> list[float]:
    return [x for p in params if p.grad is not None for x in p.grad.tolist()]


def test_norm_scales_the_whole_gradient() -> None:
    params = parameters([3.0, 0.0], None, [4.0])
    norm, coefficient = clip_gradients(params, Clip(method="norm", max_grad_norm=1.0))
    assert norm.item() == 5.0
    assert coefficient.item() == pytest.approx(0.2, rel=1e-5)
    assert grads(params) == pytest.approx([0.6, 0.0, 0.8], rel=1e-5)


def test_a_small_norm_is_left_alone() -> None:
    params = parameters([0.3], [0.4])
    norm, coefficient = clip_gradients(params, Clip(method="norm", max_grad_norm=1.0))
    assert norm.item() == pytest.approx(0.5)
    assert coefficient.item() == 1.0
    assert grads(params) == pytest.approx([0.3, 0.4])


def test_value_clamps_each_element() -> None:
    params = parameters([3.0, -0.5], [-4.0])
    norm, coefficient = clip_gradients(params, Clip(method="value", clip_value=1.0))
    assert norm.item() == pytest.approx(25.25**0.5)
    assert grads(params) == [1.0, -0.5, -1.0]
    assert coefficient.item() == pytest.approx((2.25 / 25.25) ** 0.5)


def test_none_measures_only() -> None:
    params = parameters([30.0, 40.0])
    norm, coefficient = clip_gradients(params, Clip(method="none"))
    assert (norm.item(), coefficient.item()) == (50.0, 1.0)
    assert grads(params) == [30.0, 40.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("method", ["norm", "value", "zclip", "autoclip", "agc", "adagc"])
def test_a_broken_norm_does_not_poison_the_other_gradients(method: str, bad: float) -> None:
    params = parameters([bad], [2.0])
    norm, coefficient = clip_gradients(params, Clip(method=method))  # type: ignore[arg-type]
    assert not torch.isfinite(norm)
    assert coefficient.item() == 1.0
    assert grads(params)[1] == 2.0


def test_no_gradient_at_all_has_norm_zero() -> None:
    assert total_norm(parameters(None, None)).item() == 0.0
    norm, coefficient = clip_gradients(parameters(None), Clip())
    assert (norm.item(), coefficient.item()) == (0.0, 1.0)


def test_the_norm_of_half_precision_gradients_is_taken_in_fp32() -> None:
    p = torch.nn.Parameter(torch.zeros(4, dtype=torch.float16))
    p.grad = torch.full((4,), 60000.0, dtype=torch.float16)
    assert total_norm([p]).item() == pytest.approx(120000.0, rel=1e-3)


def test_norms_of_large_tensors_are_exact_to_fp32() -> None:
    torch.manual_seed(0)
    tensors = [torch.randn(10**6 + 3), torch.randn(5), torch.randn(300, 1000).bfloat16()]
    for found, tensor in zip(norms_of(tensors), tensors, strict=True):
        assert found.item() == pytest.approx(tensor.double().norm().item(), rel=1e-5)
