"""An instrumented forward and backward pass: what every module was given, gave back, and which gradient it sent.

Nothing here runs while all is finite. A `Trail` changes no number: it only reads, at the hooks torch offers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

WHOLE = "(whole model)"
"""Name of the outermost module."""

CHUNK = 1 << 24
"""Elements that are measured at once, so that a measurement needs little memory."""


@dataclass
class Reading:
    """What was seen of one or several tensors. Nothing floating: dtype "" and finite."""

    dtype: str = ""
    absmax: float = 0.0
    """Largest magnitude among the finite elements."""

    nan: bool = False
    inf: bool = False
    rows: list[int] = field(default_factory=list)
    """Indices along the batch dimension that hold a non-finite value; [] where no dimension is the batch."""

    where: str = ""
    """Path of the first non-finite tensor in a structured value, as "logits" or "0"."""

    @property
    def finite(self) -> bool:
        """True where no element is NaN or infinite."""
        return not (self.nan or self.inf)

    @property
    def shown(self) -> float:
        """absmax, or NaN or infinity where there is one."""
        return float("nan") if self.nan else float("inf") if self.inf else self.absmax


@dataclass
class Forward:
    """One call of one module, at its end. `began` and `ended` are moments of one clock."""

    module: str
    kind: str
    """Class name."""

    began: int
    ended: int
    inputs: Reading
    outputs: Reading
    own: list[tuple[str, nn.Parameter]] = field(default_factory=list)
    """Only of the event that broke the pass: the parameters it used itself, by name."""


@dataclass
class Backward:
    """One gradient. kind: output_gradient (of a module's output, over all its uses), input_gradient (what this module
    alone sends back to its input) or parameter_gradient."""

    module: str
    kind: str
    gradient: Reading
    parameter: str | None = None


@dataclass
class Events:
    """A pass in order of time: forward by the end of each call, backward as the gradients came."""

    forward: list[Forward] = field(default_factory=list)
    backward: list[Backward] = field(default_factory=list)


def clean_name(name: str) -> str:
    """A module's or parameter's name as the bare model has it: prefixes of DDP, torch.compile and PEFT taken off."""
    for prefix in ("module.", "_orig_mod.", "base_model.model."):
        name = name.removeprefix(prefix)
    return WHOLE if name in ("", "base_model", "base_model.model") else name


def inside(module: str, name: str) -> bool:
    """True where `name` is a part of `module`."""
    return module != name and (module == WHOLE or name.startswith(module + "."))


def parent(name: str) -> str:
    """The module that holds `name`."""
    return name.rpartition(".")[0] or WHOLE


def walk(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """(path, tensor) of every floating tensor in nested tuples, lists and mappings; masks are passed over.

    A mask may hold -inf by design.
    """
    if isinstance(value, Tensor):
        if value.is_floating_point() and value.numel():
            yield path, value
    elif depth < 4 and isinstance(value, Mapping):
        for key, item in value.items():
            if "mask" not in str(key):
                yield from walk(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif depth < 4 and isinstance(value, (tuple, list)):
        for i, item in enumerate(value):
            yield from walk(item, f"{path}.{i}" if path else str(i), depth + 1)


@torch.no_grad()
def measure(x: Tensor, batch: int | None) -> tuple[Tensor, Tensor | None]:
    """([largest finite magnitude, any NaN, any infinity], per row of dim 0: all finite), both on x's device.

    The second is None where dim 0 is not of size `batch`.
    """
    x = x.detach()
    if x.is_sparse:
        x = x.coalesce().values()
    parts = []
    for part in x.reshape(-1).split(CHUNK):
        part = part if part.dtype == torch.float64 else part.float()
        size = torch.where(torch.isfinite(part), part.abs(), 0.0).amax()
        parts.append(torch.stack([size.float(), torch.isnan(part).any().float(), torch.isinf(part).any().float()]))
    whole = torch.stack(parts).amax(0)
    if batch is None or x.ndim < 2 or x.shape[0] != batch:
        return whole, None
    # NaN and infinity both survive in a row's extremes; no copy of x is needed.
    low, high = torch.aminmax(x.reshape(batch, -1).float(), dim=1)
    return whole, torch.isfinite(low) & torch.isfinite(high)


class Trail:
    """Records every module's forward and every gradient of one pass, in order of time. Read `events` after `finish`.

        with Trail(model, batch=len(rows)) as trail:
            loss = model(**inputs).loss
            loss.backward()
        bad = first_bad_forward(trail.finish())

    `batch` is the number of rows along dim 0; None = taken from the first integer tensor of two dimensions given to a
    module. Numbers stay on the device until `finish`: no synchronisation per module. Recomputed forwards of gradient
    checkpointing are not recorded again. All hooks are gone after the block, also after an error in it.
    """

    def __init__(self, model: nn.Module, batch: int | None = None):
        self.model = model
        self.batch = batch
        self.events = Events()
        self._clock = 0
        self._readings: list[tuple[Reading, str, Tensor, Tensor | None]] = []
        self._handles: list[RemovableHandle] = []
        self._open: dict[nn.Module, list[tuple[int, Reading, list[Any]]]] = {}
        self._modules: list[nn.Module] = []

    def __enter__(self) -> Trail:
        for name, module in self.model.named_modules():
            name = clean_name(name)
            leaf = next(module.children(), None) is None
            self._handles += [
                module.register_forward_pre_hook(partial(self._before, leaf), with_kwargs=True),
                module.register_forward_hook(partial(self._after, name), with_kwargs=True),
            ]
        for name, parameter in self.model.named_parameters():
            if parameter.requires_grad:
                name = clean_name(name)
                seen = partial(self._gradient, parent(name), "parameter_gradient", name)
                self._handles.append(parameter.register_hook(seen))
        return self

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles, self._open = [], {}

    def _read(self, reading: Reading, tensor: Tensor, path: str = "") -> None:
        """Measure `tensor` now; `reading` takes the numbers in at `finish`."""
        reading.dtype = reading.dtype or str(tensor.dtype).removeprefix("torch.")
        self._readings.append((reading, path, *measure(tensor, self.batch)))

    def _before(self, leaf: bool, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        self._clock += 1
        reading, edges = Reading(), []
        if self.batch is None:
            ids = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim == 2)
            self.batch = next((len(x) for x in ids if not x.is_floating_point()), None)
        for _, tensor in walk((args, kwargs)):
            if not recomputing():
                self._read(reading, tensor)
            if leaf and tensor.requires_grad and torch.is_grad_enabled():
                # Now: an in-place operation inside the module would give the tensor another place in the graph.
                edges.append(torch.autograd.graph.get_gradient_edge(tensor))
        self._open.setdefault(module, []).append((self._clock, reading, edges))

    def _after(self, name: str, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        self._clock += 1
        began, inputs, edges = self._open[module].pop()
        tensors = list(walk(output))
        if not recomputing():
            event = Forward(name, type(module).__name__, began, self._clock, inputs, Reading())
            for path, tensor in tensors:
                self._read(event.outputs, tensor, path)
            self.events.forward.append(event)
            self._modules.append(module)
        for _, tensor in tensors:
            if tensor.requires_grad and torch.is_grad_enabled():
                self._handles.append(tensor.register_hook(partial(self._gradient, name, "output_gradient", None)))
        if edges:
            self._watch_edges(name, [t for _, t in tensors], edges)

    def _watch_edges(self, name: str, outputs: list[Tensor], edges: list[Any]) -> None:
        """Hook the graph nodes through which this module alone sends gradient to its inputs.

        A hook on the input tensor would see the sum over everything else that uses it, as both gate_proj and up_proj.
        """
        wanted = {(edge.node, edge.output_nr) for edge in edges}
        ends = {edge.node for edge in edges}
        nodes = [t.grad_fn for t in outputs if t.grad_fn is not None]
        visited = set(nodes)
        while nodes:
            node = nodes.pop()
            if node in ends:
                continue
            places = [i for i, following in enumerate(node.next_functions) if following in wanted]
            if places:
                self._handles.append(node.register_hook(partial(self._sent, name, places)))
            for following, _ in node.next_functions:
                if following is not None and following not in visited:
                    visited.add(following)
                    nodes.append(following)

    def _sent(self, name: str, places: list[int], inputs: Sequence[Tensor | None], outputs: Any) -> None:
        for place in places:
            gradient = inputs[place]
            if gradient is not None:
                self._gradient(name, "input_gradient", None, gradient)

    def _gradient(self, name: str, kind: str, parameter: str | None, gradient: Tensor) -> None:
        event = Backward(name, kind, Reading(), parameter)
        if gradient.numel():
            self._read(event.gradient, gradient)
        self.events.backward.append(event)

    def finish(self) -> Events:
        """Move all numbers from the device, once."""
        for reading, path, (absmax, nan, inf), rows in self._moved():
            if (nan or inf) and reading.finite:
                reading.where = path
            reading.absmax = max(reading.absmax, absmax)
            reading.nan, reading.inf = reading.nan or bool(nan), reading.inf or bool(inf)
            reading.rows = sorted({*reading.rows, *rows})
        at = first_broken(self.events.forward)
        if at is not None and self._modules:
            self.events.forward[at].own = self._own(at)
        self._readings, self._modules = [], []
        return self.events

    def _moved(self) -> Iterator[tuple[Reading, str, list[float], list[int]]]:
        """(reading, path, its three numbers, its bad rows), after one transfer per device."""
        flat: dict[torch.device, list[Tensor]] = {}
        for _, _, numbers, rows in self._readings:
            flat.setdefault(numbers.device, []).extend([numbers] if rows is None else [numbers, rows.float()])
        values = {device: iter(torch.cat(tensors).tolist()) for device, tensors in flat.items()}
        for reading, path, numbers, rows in self._readings:
            source = values[numbers.device]
            three = [next(source) for _ in range(3)]
            flags = [next(source) for _ in range(0 if rows is None else len(rows))]
            yield reading, path, three, [i for i, ok in enumerate(flags) if not ok]

    def _own(self, at: int) -> list[tuple[str, nn.Parameter]]:
        """Parameters that the module of event `at` used itself: its own, and those of parts that it never called.

        A fused head uses its weight without calling the module that holds it.
        """
        called = {id(module) for module in self._modules}
        name = self.events.forward[at].module.replace(WHOLE, "")
        own = []
        for part, module in self._modules[at].named_modules():
            if not part or id(module) not in called:
                for key, parameter in module.named_parameters(recurse=False):
                    own.append((clean_name(".".join(x for x in (name, part, key) if x)), parameter))
        return own


def first_broken(events: list[Forward]) -> int | None:
    """Index of the call that broke the pass: the first, by its end, that made a non-finite output of finite inputs.

    Where none did, the first that was given a non-finite input; None where every output is finite.
    """
    bad = [i for i, event in enumerate(events) if not event.outputs.finite]
    if not bad:
        return None
    return next((i for i in bad if events[i].inputs.finite), min(bad, key=lambda i: events[i].began))


def recomputing() -> bool:
    """True inside a backward pass, where gradient checkpointing runs modules a second time."""
    return bool(torch._C._current_graph_task_id() != -1)
