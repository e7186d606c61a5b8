"""A known fault is put into a small model; the trail has to name the module, parameter and row it sits in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from runner.stability.finite import all_finite
from runner.training.attribution import (
    Trail,
    first_bad_backward,
    first_bad_forward,
    first_bad_parameter,
    trail_table,
)
from runner.training.trail import WHOLE, clean_name


class Block(nn.Module):
    """Two products and a residual; returns a tuple as many layers do."""

    def __init__(self, width: int):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.act = nn.ReLU(inplace=True)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
        x = x if mask is None else x + mask.exp()
        return x + self.down(self.act(self.up(x))), None


class Net(nn.Module):
    """Embedding, blocks (the last one used twice), head that is used without calling it; returns a dict."""

    def __init__(self, width: int = 8, words: int = 20):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList([Block(width) for _ in range(3)])
        self.head = nn.Linear(width, words, bias=False)
        self.checkpointing = False

    def forward(self, input_ids: Tensor, scale: float = 1.0) -> dict[str, Any]:
        x = self.embed(input_ids)
        mask = torch.full((1, 1, 1), -torch.inf)
        for block in [*self.blocks, self.blocks[-1]]:
            if self.checkpointing:
                x, _ = torch.utils.checkpoint.checkpoint(block, x, mask, use_reentrant=False)
            else:
                x, _ = block(x, mask=mask)
        return {"logits": nn.functional.linear(x, self.head.weight), "extra": (None, 3, [x * scale])}


IDS = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [1, 5, 9]])


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net()


def trail_of(model: nn.Module, loss: Callable[[Any], Tensor] | None = None, **inputs: Any) -> Any:
    """Events of one pass; the loss is the mean square of the logits unless said otherwise."""
    inputs = inputs or {"input_ids": IDS}
    with Trail(model) as trail:
        outputs = model(**inputs)
        (loss or (lambda o: o["logits"].square().mean()))(outputs).backward()
    return trail.finish()


def hooks_left(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()) + sum(
        len(p._backward_hooks or ()) for p in model.parameters()
    )


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_pass_under_watch_gives_the_same_numbers_and_leaves_no_hook(net: Net, checkpointing: bool) -> None:
    net.checkpointing = checkpointing
    loss = net(IDS)["logits"].square().mean()
    loss.backward()
    bare = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    with Trail(net) as trail:
        watched = net(IDS)["logits"].square().mean()
        watched.backward()
    events = trail.finish()
    assert torch.equal(loss, watched)
    again = [p.grad for p in net.parameters() if p.grad is not None]
    assert len(bare) == len(again) and all(torch.equal(a, b) for a, b in zip(bare, again, strict=True))
    assert hooks_left(net) == 0
    # Once per call, whether the backward pass computed them again or not: embed, 4 blocks of 4 modules, the whole.
    assert len(events.forward) == 1 + 4 * 4 + 1
    assert events.forward[-1].module == WHOLE and events.forward[0].module == "embed"
    assert first_bad_forward(events) is None and first_bad_backward(events) is None
    kinds = {(e.module, e.kind) for e in events.backward}
    assert {("blocks.0.up", "input_gradient"), ("blocks.0", "output_gradient")} <= kinds
    assert ("embed", "parameter_gradient") in kinds and ("head", "parameter_gradient") in kinds


def test_hooks_go_also_when_the_pass_fails(net: Net) -> None:
    with pytest.raises(ZeroDivisionError), Trail(net):
        net(IDS)
        _ = 1 / 0
    assert hooks_left(net) == 0


def test_magnitudes_are_those_of_the_tensors(net: Net) -> None:
    seen: dict[str, float] = {}
    net.blocks[1].down.register_forward_hook(
        lambda m, a, o: seen.update(i=a[0].abs().max().item(), o=o.abs().max().item())
    )
    event = next(e for e in trail_of(net).forward if e.module == "blocks.1.down")
    assert (event.inputs.absmax, event.outputs.absmax) == (seen["i"], seen["o"])
    assert event.outputs.dtype == "float32" and event.kind == "Linear"


@pytest.mark.parametrize("checkpointing", [False, True])
def test_nan_weight_inside_nested_containers(net: Net, checkpointing: bool) -> None:
    net.checkpointing = checkpointing
    with torch.no_grad():
        net.blocks[1].down.weight[3, 5] = torch.nan
    bad = first_bad_forward(trail_of(net))
    assert bad is not None
    assert (bad["module"], bad["class"], bad["output"]) == ("blocks.1.down", "Linear", "NaN")
    assert bad["weight"]["first_index"] == [3, 5]
    assert bad["why"] == "weight blocks.1.down.weight holds NaN at [3, 5]"
    assert bad["rows"] == [0, 1, 2, 3]


def test_nan_embedding_row_names_the_batch_rows_that_reach_it(net: Net) -> None:
    with torch.no_grad():
        net.embed.weight[6, 2] = torch.nan
    bad = first_bad_forward(trail_of(net))
    assert bad is not None
    assert (bad["module"], bad["rows"], bad["weight"]["row"]) == ("embed", [1], 6)


def test_weight_that_is_used_without_calling_its_module(net: Net) -> None:
    with torch.no_grad():
        net.head.weight[2, 1] = torch.inf
    bad = first_bad_forward(trail_of(net))
    assert bad is not None
    assert (bad["module"], bad["where"]) == (WHOLE, "logits")
    assert bad["why"] == "weight head.weight holds inf at [2, 1]" and bad["absmax_in"] is None


def test_operation_between_modules_is_put_down_to_the_container(net: Net) -> None:
    class Root(Block):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
            return x + self.down((self.up(x) - 1e3).sqrt()), None

    net.blocks[1] = Root(8)
    bad = first_bad_forward(trail_of(net))
    assert bad is not None
    assert (bad["module"], bad["class"], bad["seen_by"], bad["weight"]) == ("blocks.1", "Root", "blocks.1.down", None)
    assert "between its parts, first seen at the input of blocks.1.down" in bad["why"]


def test_loss_alone_is_bad(net: Net) -> None:
    events = trail_of(net, loss=lambda o: (o["logits"].square().sum() * 0.0).log())
    assert first_bad_forward(events) is None
    bad = first_bad_backward(events)
    assert bad is not None
    assert (bad["module"], bad["kind"], bad["gradient"]) == (WHOLE, "output_gradient", "NaN")
    assert "the loss" in bad["why"]


def test_gradient_of_an_operation_between_modules(net: Net) -> None:
    class Norm(Block):
        def forward(self, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, None]:
            return x + self.down((self.up(x) * 0.0).sqrt()), None

    net.blocks[1] = Norm(8)
    events = trail_of(net)
    assert first_bad_forward(events) is None
    bad = first_bad_backward(events)
    assert bad is not None
    assert (bad["module"], bad["kind"]) == ("blocks.1.up", "output_gradient")
    assert bad["after"] in ("the input gradient of blocks.1.down", "the gradient of blocks.1.down.weight")


class Poison(torch.autograd.Function):
    """Identity whose backward gives NaN for row 2."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[2] = torch.nan
        return gradient


def test_backward_is_told_apart_from_a_sibling_with_the_same_input() -> None:
    class Bad(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return Poison.apply(x * 2)

    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.good, self.bad = nn.Linear(4, 4), nn.Linear(4, 4), Bad()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            x = self.first(x)
            return {"logits": self.bad(x) + self.good(x)}

    bad = first_bad_backward(trail_of(Pair(), x=torch.randn(5, 4)))
    assert bad is not None
    assert (bad["module"], bad["kind"], bad["gradient"]) == ("bad", "input_gradient", "NaN")


def test_rows_of_a_gradient(net: Net) -> None:
    net.blocks[2].act = type("Bad", (nn.Module,), {"forward": lambda self, x: Poison.apply(x)})()
    bad = first_bad_backward(trail_of(net))
    assert bad is not None
    assert (bad["module"], bad["rows"]) == ("blocks.2.act", [2])


def test_input_that_is_bad_from_the_start() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    with Trail(model) as trail:
        model(torch.full((2, 4), torch.nan)).sum().backward()
    bad = first_bad_forward(trail.finish())
    assert bad is not None and bad["module"] == WHOLE and bad["why"] == "its input was NaN already"


def qwen(path: Path) -> Any:
    from transformers import Qwen2ForCausalLM

    model = Qwen2ForCausalLM.from_pretrained(path, attn_implementation="sdpa", dtype=torch.float32)
    return model.eval()


def rescale(model: Any, layer: int, factor: float) -> None:
    """The same function in exact arithmetic."""
    mlp = model.model.layers[layer].mlp
    with torch.no_grad():
        mlp.up_proj.weight *= factor
        mlp.down_proj.weight /= factor


def fp16_pass(model: Any, scale: float = 1.0) -> Any:
    ids = torch.randint(5, 1000, (3, 12), generator=torch.Generator().manual_seed(1))
    with Trail(model) as trail:
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(input_ids=ids, labels=ids).loss
        (loss * scale).backward()
    return trail.finish(), loss


def test_fp16_forward_overflow_after_a_function_preserving_rescale(micro_model: Path) -> None:
    model = qwen(micro_model)
    rescale(model, 1, 2.0**22)
    events, _ = fp16_pass(model)
    bad = first_bad_forward(events)
    assert bad is not None
    assert (bad["module"], bad["class"], bad["dtype"]) == ("model.layers.1.mlp.up_proj", "Linear", "float16")
    assert bad["why"] == "overflow of float16 (max 65504)"
    assert bad["rows"] == [0, 1, 2] and 0 < bad["absmax_in"] < 100


def test_fp16_overflow_of_the_product_inside_the_mlp(micro_model: Path) -> None:
    model = qwen(micro_model)
    with torch.no_grad():
        model.model.layers[0].mlp.gate_proj.weight *= 2.0**11
        model.model.layers[0].mlp.up_proj.weight *= 2.0**11
    bad = first_bad_forward(fp16_pass(model)[0])
    assert bad is not None
    assert (bad["module"], bad["seen_by"]) == ("model.layers.0.mlp", "model.layers.0.mlp.down_proj")
    assert bad["why"].startswith("overflow of float16 (max 65504) between its parts")


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("layer", [0, 1])
def test_fp16_backward_overflow_after_a_function_preserving_rescale(
    micro_model: Path, layer: int, checkpointing: bool
) -> None:
    model = qwen(micro_model)
    if checkpointing:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    rescale(model, layer, 2.0**-14)
    events, loss = fp16_pass(model, scale=2.0**12)
    assert torch.isfinite(loss) and first_bad_forward(events) is None
    bad = first_bad_backward(events)
    assert bad is not None
    assert (bad["module"], bad["kind"]) == (f"model.layers.{layer}.mlp.down_proj", "input_gradient")
    assert bad["dtype"] == "float16" and bad["why"] == "overflow of float16 (max 65504)"


def test_lora_watches_only_where_gradient_flows(micro_model: Path) -> None:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model = get_peft_model(qwen(micro_model), LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    ids = torch.randint(5, 1000, (2, 9))
    model(input_ids=ids, labels=ids).loss.backward()
    bare = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    with Trail(model) as trail:
        model(input_ids=ids, labels=ids).loss.backward()
    events = trail.finish()
    assert all(torch.equal(bare[n], p.grad) for n, p in model.named_parameters() if p.requires_grad)
    assert {e.parameter for e in events.backward if e.parameter} == {clean_name(n) for n in bare}
    assert not any(e.module.startswith("base_model") for e in [*events.forward, *events.backward])
    with torch.no_grad():
        model.base_model.model.model.layers[1].mlp.up_proj.lora_B.default.weight[7, 2] = torch.nan
    with Trail(model) as trail:
        model(input_ids=ids, labels=ids).loss.backward()
    bad = first_bad_forward(trail.finish())
    assert bad is not None
    name = "model.layers.1.mlp.up_proj.lora_B.default"
    assert (bad["module"], bad["why"]) == (name, f"weight {name}.weight holds NaN at [7, 2]")


def test_table_keeps_the_guilty_its_neighbours_and_the_largest(net: Net) -> None:
    with torch.no_grad():
        net.blocks[2].up.weight[0, 0] = torch.nan
        net.blocks[0].down.bias.fill_(1e6)
    table = trail_table(trail_of(net), keep=6, before=3)
    assert [row["bad"] for row in table["forward"]].count(True) == 1
    at = next(i for i, row in enumerate(table["forward"]) if row["bad"])
    assert table["forward"][at]["module"] == "blocks.2.up" and table["forward"][at]["absmax_out"] != 0
    assert len(table["forward"]) == 6 and len(table["backward"]) == 6
    assert any(row["absmax_out"] > 1e5 for row in table["forward"][:at])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_first_bad_parameter(net: Net, dtype: torch.dtype) -> None:
    net = net.to(dtype)
    named = list(net.named_parameters())
    assert all_finite([p.detach() for _, p in named]) == [True] * len(named)
    assert first_bad_parameter(named, gradients=False) is None
    assert first_bad_parameter(named, gradients=True) is None
    with torch.no_grad():
        net.blocks[0].up.weight.fill_(torch.finfo(dtype).max)
    assert all(all_finite([p.detach() for _, p in named]))
    with torch.no_grad():
        net.blocks[1].up.weight[4, 2] = -torch.inf
        net.blocks[1].up.weight[9, 0] = torch.nan
    assert not all(all_finite([p.detach() for _, p in named]))
    found = first_bad_parameter(named, gradients=False)
    assert found == {
        "name": "blocks.1.up.weight",
        "what": "weight",
        "dtype": str(dtype).removeprefix("torch."),
        "count": 2,
        "value": "-inf",
        "first_index": [4, 2],
        "row": 4,
    }
    net.head.weight.grad = torch.zeros_like(net.head.weight)
    net.blocks[0].up.bias.grad = torch.full_like(net.blocks[0].up.bias, torch.nan)
    found = first_bad_parameter(named, gradients=True)
    assert found is not None
    assert (found["name"], found["what"], found["first_index"], found["row"]) == (
        "blocks.0.up.bias",
        "gradient",
        [0],
        None,
    )


def test_names() -> None:
    assert clean_name("base_model.model.model.layers.0.mlp") == "model.layers.0.mlp"
    assert clean_name("module.base_model.model.lm_head") == "lm_head"
    assert clean_name("base_model.model") == clean_name("") == WHOLE
