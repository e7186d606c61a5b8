"""Embedding rows of the tokens that the run uses: there at all, and ever trained."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
import torch

from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, Severity, found, ok
from runner.preflight.weights.tensors import bad_tensors

SMALL = 0.02
"""Share of the median norm of all used rows below which a row was never trained. The smallest used row of SmolLM2-135M
has 0.66 of it, the smallest of all its rows 0.57."""

SAME = 1e-6
"""Relative distance at which two rows are the same."""


@dataclass(frozen=True)
class Untrained:
    """Rows that look as if no training ever touched them."""

    small: dict[int, float]
    """{id: norm as a share of the median}."""

    same: tuple[int, ...]
    """Ids whose rows are identical to another row in use."""

    @property
    def ids(self) -> list[int]:
        """All of them, the smallest norm first."""
        return [*sorted(self.small, key=lambda i: self.small[i]), *(i for i in self.same if i not in self.small)]


def untrained(ids: npt.NDArray[np.int64], rows: npt.NDArray[np.float32]) -> Untrained:
    """Which of the tokens `ids` (n,) have embedding rows (n, width) of next to no norm, or the same row as another."""
    norms = np.linalg.norm(rows, axis=1)
    median = float(np.median(norms)) if len(norms) else 0.0
    if median == 0:
        return Untrained({}, ())
    small = {int(i): float(n / median) for i, n in zip(ids, norms, strict=True) if n < SMALL * median}
    order = np.lexsort((rows[:, 0], norms))
    near = np.linalg.norm(rows[order[1:]] - rows[order[:-1]], axis=1) <= SAME * norms[order[1:]]
    twins = np.zeros(len(ids), dtype=bool)
    twins[order[1:]] |= near
    twins[order[:-1]] |= near
    return Untrained(small, tuple(sorted(int(i) for i in ids[twins])))


def used_ids(rows: datasets.Dataset) -> npt.NDArray[np.int64]:
    """Sorted ids of all tokens in the rows, special tokens of the template included."""
    batches = rows.select_columns("input_ids").with_format("arrow").iter(10_000)
    parts = [pc.unique(batch["input_ids"].combine_chunks().flatten()) for batch in batches]
    return np.unique(np.concatenate([np.asarray(p) for p in parts])).astype(np.int64)


def token_rows(c: Context) -> Result:
    """Every id in the data has a row in the embedding, and that row was trained."""
    count = int(c.start.get_input_embeddings().weight.shape[0])
    ids = used_ids(c.data.train)
    said = f"{len(ids):,} of {count:,} rows in use, largest id {ids.max():,}"
    beyond = [int(i) for i in ids if i >= count]
    if beyond:
        return found(said, _beyond(c, beyond, count))
    told = bad_tensors(c)
    for name, table in tables(c.start).items():
        if name in told or table.is_meta or not table.is_floating_point() or table.shape[0] < count:
            continue
        odd = untrained(ids, table.detach()[torch.from_numpy(ids).to(table.device)].float().cpu().numpy())
        if odd.ids:
            return found(said, _untrained(c, name, odd))
    return ok(said)


def tables(model: Any) -> dict[str, torch.Tensor]:
    """{name: weight} of the input embedding and, where it is a tensor of its own, of the output layer."""
    names = {id(p): n for n, p in model.named_parameters()}
    modules = (model.get_input_embeddings(), model.get_output_embeddings())
    weights = [m.weight for m in modules if getattr(m, "weight", None) is not None]
    return {names[id(w)]: w for w in weights if id(w) in names}


def _beyond(c: Context, beyond: list[int], count: int) -> Finding:
    tokens = [_token(c, i) for i in reversed(beyond)]
    sentence = (
        f"{len(beyond)} token ids in the rows have no row in the embedding of {count:,} rows, up to {tokens[0]} "
        f"(id {beyond[-1]:,})"
    )
    numbers = {"ids": len(beyond), "largest": beyond[-1], "rows": count, "tokenizer": len(c.tokenizer)}
    return Finding("weights.token_rows", "error", sentence, tuple(tokens), numbers)


def _untrained(c: Context, name: str, odd: Untrained) -> Finding:
    first = odd.ids[0]
    small = first in odd.small
    what = f"has {odd.small[first]:.2g} of the median norm" if small else "is the same as that of another token"
    stays = frozen(c, name)
    sentence = (
        f"{len(odd.ids)} tokens in the rows were never trained: the row of {_token(c, first)} (id {first:,}) in {name} "
        f"{what}" + (", and LoRA leaves the embedding frozen" if stays else "; it is trained in this run")
    )
    numbers: dict[str, Any] = {"tokens": len(odd.ids), "id": first, "same": len(odd.same), "tensor": name}
    if small:
        numbers["share_of_median"] = odd.small[first]
    grave: Severity = "warning" if stays else "note"
    where = tuple(_token(c, i) for i in odd.ids)
    return Finding("weights.token_rows", grave, sentence, where, numbers, _train_them(c) if stays else ())


def frozen(c: Context, name: str) -> bool:
    """Whether the run leaves the table `name` as it is."""
    lora = c.cfg.lora
    if lora.method == "freeze":
        return not any(re.search(p, name) for p in lora.trainable or [])
    return lora.method == "lora" and name.split(".")[-2] not in (lora.modules_to_save or [])


def _train_them(c: Context) -> tuple[str, ...]:
    if c.cfg.lora.method != "lora":
        return ()
    saved = [*(c.cfg.lora.modules_to_save or []), *(name.split(".")[-2] for name in tables(c.start))]
    return (f"lora.modules_to_save=[{','.join(dict.fromkeys(saved))}]",)


def _token(c: Context, id: int) -> str:
    token = c.tokenizer.convert_ids_to_tokens(id)
    return str(token) if token is not None else str(id)
