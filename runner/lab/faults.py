"""`planted.fault`: one known fault put into a run on purpose, to see what an incident looks like (+fault=nan_loss)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from runner.config.rules_train import planted_late
from runner.config.schema import Config
from runner.errors import ConfigError
from runner.lab.rescale import bare, gated_mlp, layer_of, output_sizes
from runner.training.truth import Truth

NAN = float("nan")
FP16_MAX = 65504.0
BEYOND = 4.0
"""Forward overflow: the largest output is this many times what float16 can hold."""

WITHIN = 60000.0
"""Backward overflow: the largest scaled weight, which the forward pass in float16 still holds."""


def refuse_late(cfg: Config, total_steps: int) -> None:
    """Raise `ConfigError` where the fault would come after the last of `total_steps`."""
    sentence = planted_late(cfg, total_steps)
    if sentence is not None:
        raise ConfigError([sentence])


def plant(cfg: Config, trainer: Truth) -> str:
    """Plant `cfg.planted.fault` into a trainer that is built and not started; what was planted, for the console.

    A resumed run plants it again. Raises `ConfigError` where the fault does not fit the model or the configuration.
    """
    return FAULTS[cfg.planted.fault](cfg, trainer)


def nan_loss(cfg: Config, trainer: Truth) -> str:
    """The loss of the first micro-batch of one step."""
    step, given = cfg.planted.step, dict[str, Any]()

    def look(module: nn.Module, args: Any, inputs: dict[str, Any]) -> None:
        given["ids"] = inputs.get("input_ids")

    def is_first() -> bool:
        """By its content, since a micro-batch may be run again out of its order."""
        batches = trainer.step_now.batches
        if not batches:
            return not trainer.step_now.losses
        first, now = batches[0]["input_ids"], given["ids"]
        return first.shape == now.shape and bool((first.to(now.device) == now).all())

    def spoil(loss: Tensor, now: int) -> Tensor:
        return loss * NAN if now == step and is_first() else loss

    bare(trainer).register_forward_pre_hook(look, with_kwargs=True)
    trainer.instruments.spoil = spoil
    return f"planted: NaN in the loss of step {step}, first micro-batch"


def nan_gradient(cfg: Config, trainer: Truth) -> str:
    """One element of one parameter's gradient, in every micro-batch of one step."""
    step, target = cfg.planted.step, target_of(cfg, trainer)

    def spoil(gradient: Tensor) -> Tensor | None:
        if trainer.state.global_step + 1 != step:
            return None
        gradient = gradient.clone()
        gradient[target.index] = NAN
        return gradient

    target.parameter.register_hook(spoil)
    return f"planted: NaN in the gradient of {target} at step {step}"


def nan_weight(cfg: Config, trainer: Truth) -> str:
    """One element of one trainable weight, just before one step."""
    target = target_of(cfg, trainer)

    def spoil() -> bool:
        with torch.no_grad():
            target.parameter[target.index] = NAN
        return True

    trainer.add_callback(Before(cfg.planted.step, spoil))
    return f"planted: NaN in weight {target} just before step {cfg.planted.step}"


def nan_optimizer_state(cfg: Config, trainer: Truth) -> str:
    """One element of Adam's first moment of one weight, just before one step that the optimizer has a state at."""
    target, step = target_of(cfg, trainer), cfg.planted.step
    if "adam" not in cfg.optim.name.lower():
        raise ConfigError(
            [
                f"planted.fault=nan_optimizer_state puts NaN into Adam's first moment (exp_avg), which optim.name="
                f"{cfg.optim.name} does not keep: set optim=adamw, or another fault"
            ]
        )
    if step < 2:
        raise ConfigError(
            [
                f"planted.fault=nan_optimizer_state, planted.step={step}: the optimizer has no state before its first "
                "step; set planted.step=2 or later"
            ]
        )

    def spoil() -> bool:
        optimizer: Any = trainer.optimizer
        state = optimizer.state.get(target.parameter)
        if not state:
            return False  # fp16's first steps were skipped
        state["exp_avg"][target.index] = NAN
        return True

    trainer.add_callback(Before(step, spoil))
    return f"planted: NaN in the optimizer's exp_avg of {target} just before step {step}"


def nan_embedding_row(cfg: Config, trainer: Truth) -> str:
    """From the start, the embedding of a token that one training row holds and nothing else does.

    The row is the first that training reads from `planted.step` on.
    """
    found = lonely_token(trainer, cfg.planted.step)
    if found is None:
        raise ConfigError(
            [
                "planted.fault=nan_embedding_row needs a token that only one training row holds, and this data set has "
                "none: set another dataset, or another fault"
            ]
        )
    row, token, step = found
    model: Any = trainer.model
    table = model.get_input_embeddings()
    untied = untie(model, table)
    with torch.no_grad():
        table.weight[token] = NAN
    name = next(name for name, module in bare(trainer).named_modules() if module is table)
    also = "; the head, which was tied to it, keeps its own copy" if untied else ""
    return f"planted: NaN in {name}.weight row {token}, a token that only {row} holds (first read at step {step}){also}"


def fp16_forward_overflow(cfg: Config, trainer: Truth) -> str:
    """One MLP rescaled so that up_proj's output leaves float16 for every row, and in fp32 nothing changes."""
    mlp = gated_mlp(cfg, trainer)
    largest = min(output_sizes(trainer, mlp.up))
    factor = 2.0 ** torch.tensor(BEYOND * FP16_MAX / largest).log2().ceil().item()
    mlp.rescale(factor)
    return f"planted: {mlp.name}.up_proj x {factor:.3g}, down_proj / {factor:.3g}: its output overflows float16"


def fp16_backward_overflow(cfg: Config, trainer: Truth) -> str:
    """One MLP rescaled so that down_proj's gradient to its input leaves float16, and the forward pass does not."""
    mlp = gated_mlp(cfg, trainer)
    largest = max(float(p.detach().abs().max()) for p in mlp.inputs_of_down())
    factor = 2.0 ** torch.tensor(largest / WITHIN).log2().ceil().item()
    mlp.rescale(factor)
    return f"planted: {mlp.name}.up_proj x {factor:.3g}, down_proj / {factor:.3g}: its gradient overflows float16"


FAULTS: dict[str, Callable[[Config, Truth], str]] = {
    "nan_loss": nan_loss,
    "nan_gradient": nan_gradient,
    "nan_weight": nan_weight,
    "nan_optimizer_state": nan_optimizer_state,
    "nan_embedding_row": nan_embedding_row,
    "fp16_forward_overflow": fp16_forward_overflow,
    "fp16_backward_overflow": fp16_backward_overflow,
}


class Before(TrainerCallback):
    """Acts once, before the first step from `step` on at which `act` finds what it needs."""

    def __init__(self, step: int, act: Callable[[], bool]):
        self.step = step
        self.act = act
        self.done = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A run resumed after the step has had its fault."""
        self.done = state.global_step >= self.step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The weights and the optimizer are those that the step will use."""
        if not self.done and state.global_step + 1 >= self.step:
            self.done = self.act()


@dataclass(frozen=True)
class Target:
    """One element of a trainable parameter."""

    name: str
    parameter: nn.Parameter
    index: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}{list(self.index)}"


def target_of(cfg: Config, trainer: Truth) -> Target:
    """The middle element of the first trainable matrix of the layer."""
    name, layer = layer_of(cfg, trainer)
    found = next(((n, p) for n, p in layer.named_parameters() if p.requires_grad and p.ndim > 1), None)
    if found is None:
        raise ConfigError(
            [
                f"planted.fault={cfg.planted.fault}: no weight of {name} trains (lora.method={cfg.lora.method}); set "
                "planted.layer to a layer that does"
            ]
        )
    parameter = found[1]
    index = torch.unravel_index(torch.tensor(parameter.numel() // 2), parameter.shape)
    return Target(f"{name}.{found[0]}", parameter, tuple(int(i) for i in index))


def lonely_token(trainer: Truth, step: int) -> tuple[str, int, int] | None:
    """(row_id, token, step) of the first row of epoch 0, from `step` on where there is one, that holds a token which
    no other row of training or validation data holds. Special tokens do not count: batches are padded with them."""
    train: Any = trainer.train_dataset
    validation: Any = trainer.eval_dataset
    rows: list[list[int]] = list(train["input_ids"])
    count = Counter(token for row in rows for token in set(row))
    held_out = {token for row in validation["input_ids"] for token in row} if validation is not None else set()
    tokenizer: Any = trainer.processing_class
    never = held_out | set(tokenizer.all_special_ids)
    batch = trainer.instruments.global_batch
    order = list(trainer._get_train_sampler())
    first = (step - 1) * batch
    for place in (*range(first, len(order)), *range(min(first, len(order)))):
        row = order[place]
        token = next((t for t in rows[row] if count[t] == 1 and t not in never), None)
        if token is not None:
            return str(train["row_id"][row]), token, place // batch + 1
    return None


def untie(model: Any, table: nn.Module) -> bool:
    """Give the head its own copy of the embedding; False where it has one already, or there is no head."""
    head = model.get_output_embeddings()
    if head is None or head.weight is not table.weight:
        return False
    head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=head.weight.requires_grad)
    model.config.tie_word_embeddings = False
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    inner.all_tied_weights_keys = {}
    return True
