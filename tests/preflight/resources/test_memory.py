"""The memory estimate: its arithmetic by hand, and the passes it stands on against real tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from runner.preflight.resources.heap import MAPPED, Heap, heap_peak
from runner.preflight.resources.machine import group_free, host_free
from runner.preflight.resources.memory import (
    NOTHING,
    PROCESS,
    Batch,
    Pass,
    Sizes,
    largest_batch,
    moments,
    optimizer_state,
    smaller_batches,
    update_workspace,
)
from runner.preflight.resources.token_head import TokenHead
from runner.preflight.resources.traced import Alive, Untraceable, trace

Make = Callable[..., Any]


# Arithmetic.


def test_optimizer_state_by_name() -> None:
    tensors = [((4, 3), 4), ((5,), 4)]
    assert optimizer_state("adamw_torch_fused", {}, tensors) == (2 * 17 * 4, True)
    assert optimizer_state("adamw_torch", {}, [((4, 3), 2)]) == (2 * 12 * 2, True)
    assert optimizer_state("sgd", {}, tensors) == (0, True)
    assert optimizer_state("sgd", {"momentum": "0.9"}, tensors) == (17 * 4, True)
    assert optimizer_state("adafactor", {}, tensors) == (4 * (4 + 3 + 5), True)
    assert optimizer_state("adafactor", {}, [((2, 4, 3), 4)]) == (4 * (2 * 4 + 2 * 3), True)
    assert optimizer_state("adamw_bnb_8bit", {}, [((256,), 4)]) == (2 * 256 + 8, True)
    assert optimizer_state("made_up", {}, tensors) == (2 * 17 * 4, False)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("adamw_torch", {}), ("adafactor", {}), ("sgd", {}), ("sgd", {"momentum": 0.9}), ("rmsprop", {}), ("adagrad", {})],
)
def test_optimizer_state_of_real_optimizers(name: str, arguments: dict[str, Any], tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    joined = ",".join(f"{k}={v}" for k, v in arguments.items()) or None
    args = TrainingArguments(output_dir=str(tmp_path), optim=name, optim_args=joined, use_cpu=True, report_to=[])
    kind, kwargs = Trainer.get_optimizer_cls_and_kwargs(args)
    assert kind is not None
    weights = [nn.Parameter(torch.ones(64, 32)), nn.Parameter(torch.ones(2000))]
    optimizer = kind(weights, **kwargs)
    for p in weights:
        p.grad = torch.ones_like(p)
    optimizer.step()
    kept = [x for state in optimizer.state.values() for x in state.values() if torch.is_tensor(x) and x.numel() > 1]
    estimate, known = optimizer_state(name, arguments, [(tuple(p.shape), 4) for p in weights])
    assert known and estimate == sum(x.numel() * x.element_size() for x in kept)


def test_update_workspace() -> None:
    tensors = [((10, 10), 4), ((50,), 4)]
    assert update_workspace("adamw_torch_fused", tensors, on_gpu=True) == 0
    assert update_workspace("adamw_torch", tensors, on_gpu=True) == 600
    assert update_workspace("adamw_torch", tensors, on_gpu=False) == 1200
    assert update_workspace("adafactor", [], on_gpu=False) == 0


def sizes(**changes: Any) -> Sizes:
    given: dict[str, Any] = {
        "weights": 100, "gradients": 40, "optimizer": 80, "trained": Pass(500, 700, 30), "forward": NOTHING,
        "evaluation": NOTHING, "update": 0, "on_gpu": True,
    }  # fmt: skip
    return Sizes(**{**given, **changes})


def test_moments_add_up() -> None:
    found = moments(sizes(update=9, snapshot=120, renewed=True, probe=50, loading=60, forward=Pass(0, 20)))
    training = found["training"]
    assert (training.activations, training.gradients, training.workspace, training.copies) == (500, 40, 160, 120)
    assert training.total == 100 + 80 + 700 + 120
    assert found["loading"].total == 160
    assert found["update"].total == 100 + 80 + 40 + 9 + 240
    assert found["probe"].total == 100 + 80 + 40 + 20 + 120 + 50
    assert found["evaluation"].total == 300


def test_on_a_cpu_the_process_and_its_heap_count() -> None:
    on_gpu, on_cpu = moments(sizes())["training"], moments(sizes(on_gpu=False))["training"]
    assert on_cpu.total - on_gpu.total == on_cpu.process == PROCESS + 30


def test_a_peak_without_gradients_has_none() -> None:
    training = moments(sizes(trained=Pass(500, 510)))["training"]
    assert (training.activations, training.gradients, training.workspace) == (500, 10, 0)


def test_largest_batch_by_hand() -> None:
    lengths = [5, 9, 1, 1, 7]
    assert largest_batch(lengths, [[0, 1, 2, 3, 4]], 2) == Batch(2, 9)
    assert largest_batch(lengths, [[0, 1, 2, 3, 4], [1, 4, 0, 2, 3]], 3) == Batch(3, 9)
    assert largest_batch(lengths, [[2, 3, 4]], 2) == Batch(1, 7)
    assert largest_batch([4, 4], [[0, 1]], 8) == Batch(2, 4)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 8), st.randoms())
def test_largest_batch_is_none_smaller(lengths: list[int], rows: int, rng: Any) -> None:
    order = list(range(len(lengths)))
    rng.shuffle(order)
    found = largest_batch(lengths, [order], rows)
    windows = [order[i : i + rows] for i in range(0, len(order), rows)]
    assert found.tokens == max(len(w) * max(lengths[i] for i in w) for w in windows)


@given(st.integers(1, 32), st.integers(1, 8))
def test_smaller_batches_keep_the_global_batch(per_device: int, accumulation: int) -> None:
    found = smaller_batches(per_device, accumulation)
    assert all(d * a == per_device * accumulation and d < per_device for d, a in found)
    assert (found == []) == (per_device == 1) and [d for d, _ in found] == sorted((d for d, _ in found), reverse=True)


# The heap.


def test_a_heap_maps_what_is_large_and_reuses_what_is_free() -> None:
    heap = Heap()
    heap.take("large", MAPPED)
    assert heap.top == 0 and heap.mapped >= MAPPED
    heap.give("large")
    assert heap.mapped == 0
    for name in "abc":
        heap.take(name, 1000)
    top = heap.top
    heap.give("a")
    heap.give("b")
    assert len(heap.holes) == 1  # neighbours are joined
    heap.take("d", 1900)
    assert heap.top == top


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=40), st.randoms())
def test_a_heap_holds_at_least_what_lives(wanted: list[int], rng: Any) -> None:
    events, alive, now, most = [], [], 0, 0
    for i, size in enumerate(wanted):
        events.append((i, size))
        alive.append(i)
        now += size
        most = max(most, now)
        if rng.random() < 0.5:
            gone = alive.pop(rng.randrange(len(alive)))
            events.append((gone, -1))
            now -= wanted[gone]
    assert most <= heap_peak(events) <= 3 * most + 2 * 112 * len(wanted)


# Passes over a model without content.


def real_pass(c: Any, batch: Batch, before: bool = False) -> Pass:
    """The same pass with real tensors on the CPU, counted by the same mode."""
    model: Any = c.trainer.model
    alive = Alive()
    for tensor in (*model.parameters(), *model.buffers()):
        alive.add(tensor, counted=False)
    ids = torch.ones((batch.rows, batch.length), dtype=torch.long)
    mask = torch.ones_like(ids)
    mask[0, 0] = 0  # padding, as most batches have
    inputs = {"input_ids": ids, "attention_mask": mask, "labels": ids}
    if c.classification:
        inputs["labels"] = torch.zeros(batch.rows, dtype=torch.long)
    model.train()
    if before:
        for p in model.parameters():
            if p.requires_grad:
                p.grad = torch.zeros_like(p)
                alive.add(p.grad)
    with alive:
        loss = c.trainer.compute_loss(model, inputs)
        kept = alive.now - (sum(p.grad.nbytes for p in model.parameters() if p.grad is not None))
        loss.backward()
    c.trainer._outputs = None
    model.zero_grad()
    return Pass(kept, alive.peak)


def traced(c: Any, batch: Batch, before: bool = False, **options: Any) -> Pass:
    model = c.trainer.model
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    head = None if c.classification else TokenHead(False, torch.float32)
    with c.trainer.no_trace():
        return trace(base, batch, None, head, gradients_before=before, **options)


@pytest.mark.parametrize("task", ["sft", "classification"])
@pytest.mark.parametrize("method", ["lora", "none"])
def test_a_traced_pass_is_the_real_one(context: Make, task: str, method: str) -> None:
    c = context("batch", task=task, lora__method=method)
    batch = Batch(3, 40)
    real, found = real_pass(c, batch, before=True), traced(c, batch, before=True)
    assert found.kept == pytest.approx(real.kept, rel=0.03, abs=60_000)
    # TRL's tile is 32,768 entries wide and touched as far as the vocabulary goes: only that much is resident.
    unused = 4 * 3 * 39 * (32768 - len(c.tokenizer)) if task == "sft" else 0
    assert found.peak == pytest.approx(real.peak - unused, rel=0.03, abs=60_000)


def test_tracing_leaves_no_trace(context: Make) -> None:
    c = context("batch", task="classification")
    model = c.trainer.model
    flags = [m.training for m in model.modules()]
    before = {name: (p.data_ptr(), p.device, p.grad) for name, p in model.named_parameters()}
    random_state = torch.get_rng_state()
    traced(c, Batch(2, 30), checkpointing=True)
    c.trainer._outputs = None
    assert flags == [m.training for m in model.modules()]
    assert before == {name: (p.data_ptr(), p.device, p.grad) for name, p in model.named_parameters()}
    assert torch.equal(random_state, torch.get_rng_state())
    assert not model.get_base_model().is_activation_checkpointing


def test_what_saves_memory_saves_it_in_the_estimate(context: Make) -> None:
    c = context("batch", task="classification", lora__method="none")
    plain, checkpointed = traced(c, Batch(8, 200)), traced(c, Batch(8, 200), checkpointing=True)
    assert checkpointed.kept < plain.kept / 3 and checkpointed.peak < plain.peak
    assert traced(c, Batch(4, 200)).kept == pytest.approx(plain.kept / 2, rel=0.05)
    eager = context("batch", task="classification", lora__method="none", model__attn_implementation="eager", out="e")
    for one in (c, eager):
        for layer in one.trainer.model.model.layers:
            layer.self_attn.attention_dropout = 0.0  # with dropout no fused kernel of a CPU can run
    # Eager attention keeps what softmax made of each pair of tokens, in each of two layers: twice the length, four
    # times the bytes.
    pairs = [traced(eager, Batch(8, n)).kept - traced(c, Batch(8, n)).kept for n in (200, 400)]
    scores = 2 * 8 * 4 * 200 * 200 * 4
    assert 0.7 * scores < pairs[0] < scores and 3.5 * pairs[0] < pairs[1] < 5 * pairs[0]


def test_bf16_halves_the_larger_part(context: Make) -> None:
    c = context("batch", task="classification", lora__method="none")
    plain = traced(c, Batch(8, 200))
    lower = trace(c.trainer.model, Batch(8, 200), torch.bfloat16, None)
    assert 0.4 * plain.kept < lower.kept < 0.95 * plain.kept


@pytest.mark.parametrize("compute", [torch.float32, torch.bfloat16])
def test_the_head_needs_what_trl_allocates(compute: torch.dtype) -> None:
    """Fails where an upgrade of TRL changes its tiles."""
    from trl.kernels.chunked_logprob import ChunkedLogProbFunction

    tokens, entries, width = 64, 4000, 64
    hidden = torch.randn(tokens, width, requires_grad=True)
    weight = torch.randn(entries, width, requires_grad=True)
    alive = Alive()
    for tensor in (hidden, weight):
        alive.add(tensor, counted=False)
    outputs = ("log_probs", "entropy", "is_top1")
    targets = torch.zeros(tokens, dtype=torch.long)
    with alive, torch.autocast("cpu", dtype=torch.bfloat16, enabled=compute != torch.float32):
        found = ChunkedLogProbFunction.apply(hidden, weight, None, targets, 1.0, entries, None, 1.0, outputs)
    forward, alive.peak = alive.peak, alive.now
    with alive:
        found[0].sum().backward()
    backward = alive.peak - hidden.nbytes - weight.nbytes  # their gradients
    found_forward, found_backward = head_peaks(TokenHead(False, compute), tokens, entries, width)
    assert found_forward == pytest.approx(forward, rel=0.01)
    assert found_backward == pytest.approx(backward, rel=0.01)


def head_peaks(head: TokenHead, tokens: int, entries: int, width: int, dtype: Any = torch.float32) -> tuple[int, int]:
    """(forward, backward) bytes beyond the gradients, on tensors without content."""
    peaks = []
    for backward in (False, True):
        hidden, weight = (torch.empty(n, width, dtype=dtype, device="meta") for n in (tokens, entries))
        with Alive() as alive:
            head.occupy(hidden, weight, backward)
        peaks.append(alive.peak)
        assert alive.now == 0
    return peaks[0], peaks[1]


def test_the_head_with_triton_has_one_tile() -> None:
    head = TokenHead(True, torch.bfloat16)
    tile = 4096 * 32768 * 2
    assert head_peaks(head, 10_000, 150_000, 8, torch.bfloat16) == (tile, tile)
    assert head_peaks(head, 10, 100, 8) == (10 * 100 * 2 + 100 * 8 * 2,) * 2


def test_a_model_that_asks_for_values_is_untraceable(context: Make) -> None:
    c = context("batch", task="classification", lora__method="none")
    model = c.trainer.model

    def asks(module: Any, args: Any, output: Any) -> None:
        output[0].sum().item()

    handle = model.model.layers[0].register_forward_hook(asks)
    try:
        with pytest.raises(Untraceable, match="meta"):
            traced(c, Batch(2, 20))
    finally:
        handle.remove()


# The machine.


def test_host_memory(tmp_path: Path) -> None:
    info = tmp_path / "meminfo"
    info.write_text("MemTotal:  9000 kB\nMemFree:   100 kB\nMemAvailable:   5000 kB\n", encoding="utf-8")
    assert host_free(info, tmp_path / "none", tmp_path / "none") == 5000 * 1024
    info.write_text("MemFree:   100 kB\n", encoding="utf-8")
    assert host_free(info, tmp_path / "none", tmp_path / "none") == 100 * 1024
    info.write_text("nothing", encoding="utf-8")
    with pytest.raises(ValueError, match="MemAvailable"):
        host_free(info, tmp_path / "none", tmp_path / "none")
    assert host_free(tmp_path / "absent") > 2**28


def group(folder: Path, names: tuple[str, str, str], limit: str, used: int, idle: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(limit, encoding="ascii")
    (folder / names[1]).write_text(str(used), encoding="ascii")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {idle}\n", encoding="ascii")


def test_a_container_has_less_than_its_host(tmp_path: Path) -> None:
    info, own, groups = tmp_path / "meminfo", tmp_path / "cgroup", tmp_path / "groups"
    info.write_text("MemAvailable:   5000 kB\n", encoding="utf-8")
    own.write_text("0::/a/b\n", encoding="ascii")
    two = ("memory.max", "memory.current", "inactive_file")
    group(groups, two, "max", 1, 0)
    group(groups / "a", two, "900000", 300000, 0)
    group(groups / "a" / "b", two, "800000", 300000, 100000)
    assert sorted(group_free(groups, own)) == [600000, 600000]
    assert host_free(info, groups, own) == 600000


def test_an_old_container_too(tmp_path: Path) -> None:
    own, groups = tmp_path / "cgroup", tmp_path / "groups"
    own.write_text("7:pids:/x\n4:cpuset,memory:/job\n0::/\n", encoding="ascii")
    one = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    group(groups / "memory", one, str(2**60), 10, 0)
    group(groups / "memory" / "job", one, "1000", 1500, 100)
    assert group_free(groups, own) == [2**60 - 10, 0]
    assert math.isfinite(sum(group_free(groups, own)))
