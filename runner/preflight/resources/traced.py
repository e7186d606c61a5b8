"""What a forward and backward pass needs, found by running the model on tensors that have shapes and no content.

The model's own code runs on torch's meta device, so nothing is computed and no weight is read; a dispatch mode adds up
the storages that are alive. What autograd keeps, the gradients, and the temporaries of every operation are in it, for
any architecture whose forward pass does not ask for values.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from runner.preflight.resources.heap import Event, heap_peak
from runner.preflight.resources.memory import Batch, Pass
from runner.preflight.resources.token_head import TokenHead


class Untraceable(Exception):
    """The model's forward pass asks for values, which tensors without content cannot give."""


ELEMENTWISE = frozenset({torch.ops.aten.add.Tensor, torch.ops.aten.mul.Tensor, torch.ops.aten.pow.Tensor_Scalar})
"""Common operations whose shape is found here: torch has them in Python for this device, at half of the whole time."""


class Alive(TorchDispatchMode):
    """Adds up the bytes of all storages that operations under it return, while they live."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, weakref.ref[Any]] = {}
        self.now = 0
        self.peak = 0
        self.events: list[Event] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation, then count what it returned."""
        if func in ELEMENTWISE and not kwargs and all(not isinstance(x, Tensor) or x.is_meta for x in args):
            returned = elementwise(*args)
        else:
            returned = func(*args, **(kwargs or {}))
        if isinstance(returned, Tensor):
            self.add(returned)
        elif isinstance(returned, tuple | list):
            for x in returned:
                if isinstance(x, Tensor):
                    self.add(x)
        return returned

    def add(self, tensor: Tensor, counted: bool = True) -> None:
        """Count a tensor made elsewhere, or (with `counted` off) never count its storage."""
        storage = tensor.untyped_storage()
        # A view has its owner's storage, and with it the same key.
        key, size = storage._cdata, storage.nbytes() if counted else 0
        if key in self.known:
            return
        number = len(self.events)
        if size:
            self.events.append((number, size))

        def gone(ref: Any) -> None:
            self.now -= size
            del self.known[key]
            if size:
                self.events.append((number, -1))

        self.known[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


def elementwise(*args: Any) -> Tensor:
    """The result of an operation on each element, with the strides of the operand that has its shape."""
    tensors = [x for x in args if isinstance(x, Tensor)]
    shape, dtype = torch.broadcast_shapes(*(x.shape for x in tensors)), torch.result_type(*args)
    like = next((x for x in tensors if x.shape == shape), None)
    return torch.empty(shape, dtype=dtype, device="meta") if like is None else torch.empty_like(like, dtype=dtype)


LOWERED = frozenset(
    {
        F.linear,
        torch.matmul,
        torch.Tensor.matmul,
        torch.Tensor.__matmul__,
        torch.bmm,
        torch.Tensor.bmm,
        torch.baddbmm,
        torch.addmm,
        torch.einsum,
    }
)
"""Operations that autocast runs in the compute dtype."""


class Shapes(TorchFunctionMode):
    """What a device does with real tensors and the meta device would not: autocast, and fused attention.

    A question for a truth value (is any row padded?) is answered no: a batch has padding.
    """

    def __init__(self, lower: torch.dtype | None, on_gpu: bool) -> None:
        """`lower` is autocast's dtype, None without autocast. Only a GPU has fused attention with dropout."""
        super().__init__()
        self.lower = lower
        self.on_gpu = on_gpu
        self.casts: dict[int, tuple[Tensor, Tensor]] = {}
        """Casts of weights that train: autocast keeps them until the forward pass is over."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The operation, in the compute dtype where autocast would do so."""
        kwargs = kwargs or {}
        if func is torch.Tensor.__bool__ and args[0].device.type == "meta":
            return False
        if func is F.scaled_dot_product_attention:
            args, kwargs = tuple(self.cast(x) for x in args), {k: self.cast(v) for k, v in kwargs.items()}
            drops = kwargs.get("dropout_p", args[4] if len(args) > 4 else 0.0) > 0.0
            return attention(*args, **kwargs) if self.on_gpu or not drops else func(*args, **kwargs)
        if self.lower is not None and func in LOWERED:
            args = tuple(self.cast(x) for x in args)
            kwargs = {k: self.cast(v) for k, v in kwargs.items()}
        return func(*args, **kwargs)

    def cast(self, x: Any) -> Any:
        """`x` as autocast hands it to a matrix multiplication."""
        if self.lower is None or not isinstance(x, Tensor) or not x.is_floating_point() or x.dtype == self.lower:
            return x
        if not (x.is_leaf and x.requires_grad):
            return x.to(self.lower)
        if id(x) not in self.casts:
            self.casts[id(x)] = (x, x.to(self.lower))
        return self.casts[id(x)][1]


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` by a fused kernel, which keeps its inputs and no matrix of scores.

    The meta device alone would take the unfused path. A mask of truth values becomes numbers, once per layer.
    """
    if enable_gqa:
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, 1), value.repeat_interleave(times, 1)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros(attn_mask.shape, dtype=query.dtype, device=query.device)
    found: Tensor = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )[0]
    return found


class Whole(nn.Module):
    """A module whose forward pass is everything that has to happen while its weights are the ones without content."""

    def __init__(self, inner: nn.Module, story: Callable[[], None]) -> None:
        super().__init__()
        self.inner = inner
        self.story = story

    def forward(self) -> None:
        """Run it."""
        self.story()


def trace(
    model: Any,
    batch: Batch,
    lower: torch.dtype | None,
    head: TokenHead | None,
    training: bool = True,
    gradients_before: bool = False,
    checkpointing: bool = False,
) -> Pass:
    """What one micro-batch needs. `model` is without PEFT's wrapper, its adapters put in.

    `head` says how token losses are made of the last hidden states (SFT); None = the model's own logits (a classifier).
    With `gradients_before`, weights that train hold gradients already (accumulation). `model` may lie on any device;
    its weights, flags and gradients are left as they are. Raises `Untraceable`.
    """
    meta = {
        id(p): nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad and training)
        for p in model.parameters()
    }
    target = model.base_model if head is not None else model
    state: dict[str, Tensor] = {f"inner.{n}": meta[id(p)] for n, p in target.named_parameters()}
    state.update({f"inner.{n}": torch.empty_like(b, device="meta") for n, b in target.named_buffers()})
    on_gpu = next(model.parameters()).device.type == "cuda"
    alive = Alive()
    for tensor in (*meta.values(), *state.values()):
        alive.add(tensor, counted=False)
    kept = 0

    def story() -> None:
        nonlocal kept
        inputs = {
            name: torch.ones((batch.rows, batch.length), dtype=torch.long, device="meta")
            for name in ("input_ids", "attention_mask")
        }
        shapes = Shapes(lower, on_gpu)
        with torch.set_grad_enabled(training), shapes:
            out = target(**inputs, use_cache=False)
            if head is None:
                loss = out.logits.float().sum()
            else:
                weight = meta[id(model.get_output_embeddings().weight)]
                hidden = out.last_hidden_state[:, :-1].reshape(-1, out.last_hidden_state.shape[-1])
                loss = head(hidden, weight)
                del hidden
            del out, inputs
        shapes.casts.clear()
        if training:
            kept = alive.now - before
            loss.backward()

    if training and gradients_before:
        for p in meta.values():
            if p.requires_grad:
                p.grad = torch.empty_like(p)
                alive.add(p.grad)
    before = alive.now
    whole = Whole(target, story)
    try:
        with _as_trained(model, training, checkpointing, lambda: Shapes(lower, on_gpu)), alive:
            functional_call(whole, state, ())
    except (RuntimeError, NotImplementedError, ValueError, TypeError, AttributeError) as error:
        # Whatever a model's code does with a tensor that has no content ends in one of these.
        raise Untraceable(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
    holes = 0 if on_gpu else max(heap_peak(alive.events) - alive.peak, 0)
    return Pass(kept, alive.peak, holes)


@contextmanager
def _as_trained(model: Any, training: bool, checkpointing: bool, shapes: Callable[[], Shapes]) -> Iterator[None]:
    """Flags, gradient checkpointing and a traceable attention for as long as the context lasts."""
    flags = [(module, module.training) for module in model.modules()]
    config = model.config
    kernel = config._attn_implementation
    had = bool(getattr(model, "is_activation_checkpointing", False))
    try:
        model.train(training)
        if str(kernel).startswith("flash"):
            # Those kernels take no tensor without content; sdpa keeps the same tensors for the backward pass.
            config._attn_implementation = "sdpa"
        if checkpointing:
            # Layers run once more inside the backward pass, where no function mode of outside is on.
            _checkpoint(model, context_fn=lambda: (nullcontext(), shapes()))
        elif had:
            model.activation_checkpointing_disable()
        yield
    finally:
        config._attn_implementation = kernel
        if had:
            _checkpoint(model)
        elif checkpointing:
            model.activation_checkpointing_disable()
        for module, flag in flags:
            module.training = flag


def _checkpoint(model: Any, **further: Any) -> None:
    model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False, **further})
