"""What a broken step leaves behind: the facts, the sentence, the folder, and the step as it was."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from runner.config.schema import Stability
from runner.errors import UserError
from runner.runfolder import read_json
from runner.training import rng
from runner.training.incident import read_incident, sentence, write_incident
from runner.training.investigate import investigate


class Model(nn.Module):
    """Mean of embeddings with dropout, two layers, a score per word; the head is tied to the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 6)
        self.drop = nn.Dropout(0.2)
        self.up = nn.Linear(6, 12)
        self.down = nn.Linear(12, 6)
        self.head = nn.Linear(6, 30, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.drop(self.embed(input_ids))
        logits: Tensor = self.head(self.down(self.up(x).relu()) + x)
        return logits


class Fake:
    """Does with a small model what the trainer does: three micro-batches of four rows, dropout, a loss scale."""

    def __init__(self, folder: Path, scale: float | None = 8.0) -> None:
        torch.manual_seed(3)
        self.model = Model()
        self.scale = scale
        self.loss_hand: Callable[[Tensor], Tensor] = lambda loss: loss
        self.repeated: list[int] = []
        self.half = False
        scaler = None if scale is None else SimpleNamespace(get_scale=lambda: scale)
        self.accelerator = SimpleNamespace(num_processes=1, process_index=0, scaler=scaler)
        self.instruments = SimpleNamespace(
            stability=Stability(),
            config={"seed": 3, "precision": {"compute": "fp16"}},
            folder=folder,
            decode=lambda ids: "+".join(f"w{i}" for i in ids),
        )
        self.step_now = SimpleNamespace(batches=[], rng=[], losses=[], micros=[], num_items=torch.tensor(48))
        for m in range(3):
            ids = torch.arange(m * 8, m * 8 + 8).reshape(4, 2)
            self.step_now.batches.append(
                {
                    "input_ids": ids,
                    "attention_mask": torch.ones_like(ids),
                    "row_id": [f"demo/{4 * m + r}" for r in range(4)],
                    "source": ["demo"] * 4,
                    "length": [2] * 4,
                }
            )

    def trainable(self) -> list[tuple[str, nn.Parameter]]:
        return list(self.model.named_parameters())

    def forward(self, i: int) -> tuple[Tensor, Tensor]:
        ids = self.step_now.batches[i]["input_ids"]
        with torch.autocast("cpu", torch.float16, enabled=self.half):
            logits = self.model(input_ids=ids)
        rows = nn.functional.cross_entropy(logits.float().transpose(1, 2), ids, reduction="none").sum(1)
        return self.loss_hand(rows.sum() / self.step_now.num_items), rows

    def train(self) -> Fake:
        """The step itself, up to the unscaled gradient."""
        for i in range(3):
            self.step_now.rng.append(rng.capture())
            loss, rows = self.forward(i)
            (loss * (self.scale or 1.0)).backward()
            self.step_now.losses.append(loss.detach())
            self.step_now.micros.append(SimpleNamespace(loss_sums=rows.detach(), tokens=torch.full((4,), 2)))
        for p in self.model.parameters():
            assert p.grad is not None
            p.grad /= self.scale or 1.0
        return self

    def repeat_micro(self, i: int) -> Tensor:
        self.repeated.append(i)
        rng.restore(self.step_now.rng[i])
        random.random(), np.random.rand()
        loss, _ = self.forward(i)
        (loss * (self.scale or 1.0)).backward()
        return loss.detach()

    @property
    def facts(self) -> dict[str, Any]:
        loss = torch.stack(self.step_now.losses).sum().item()
        return {"step": 12, "loss": loss, "grad_norm": math.nan}


def looked_at(fake: Fake, tmp_path: Path, reason: str = "non_finite", **facts: Any) -> dict[str, Any]:
    """The investigation's facts; on the way: nothing of the step may have changed."""
    before = [(p.grad, p.grad.clone()) for p in fake.model.parameters() if p.grad is not None]
    weights = [p.detach().clone() for p in fake.model.parameters()]
    random.seed(1)
    np.random.seed(1)
    state = torch.get_rng_state()
    found = investigate(fake, reason, tmp_path, {**fake.facts, **facts})
    assert torch.equal(torch.get_rng_state(), state)
    assert random.random() == random.Random(1).random()
    assert np.random.rand() == np.random.RandomState(1).rand()
    for p, (gradient, value) in zip(fake.model.parameters(), before, strict=True):
        assert p.grad is gradient and gradient is not None
        assert torch.equal(gradient.nan_to_num(7.0), value.nan_to_num(7.0))
    for p, value in zip(fake.model.parameters(), weights, strict=True):
        assert torch.equal(p.nan_to_num(7.0), value.nan_to_num(7.0))
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in fake.model.modules())
    return found


def test_nan_weight_names_module_weight_and_first_micro_batch(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    with torch.no_grad():
        fake.model.down.weight[1, 5] = torch.nan
    found = looked_at(fake.train(), tmp_path)
    assert fake.repeated == [0] and found["micro_batch"] == 0
    assert found["forward"]["module"] == "down" and found["parameter"]["first_index"] == [1, 5]
    assert (found["parameter"]["name"], found["parameter"]["what"]) == ("down.weight", "weight")
    assert "weight down.weight holds NaN at [1, 5]" in found["sentence"]
    assert found["sentence"].startswith("step 12: the loss is NaN. First bad module in the forward pass: down (Linear,")
    assert found["ranks"] == [0] and found["rank"] == 0


def test_embedding_row_names_token_and_the_rows_that_hold_it(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.model.head = nn.Linear(6, 30, bias=False)
    with torch.no_grad():
        fake.model.embed.weight[2] = torch.nan  # a token that micro-batch 0 has in row 1
        fake.model.embed.weight[13] = torch.nan  # and micro-batch 1 in row 2
        fake.model.embed.weight[29] = torch.nan  # and none
    fake.step_now.batches[0]["input_ids"][1, 0] = 3
    found = looked_at(fake.train(), tmp_path)
    assert fake.repeated == [1] and found["micro_batch"] == 1
    assert found["forward"]["module"] == "embed" and found["forward"]["rows"] == ["demo/6"]
    assert found["parameter"]["row"] == 13
    assert found["parameter"]["token"] == {"id": 13, "in_rows": ["demo/6"], "text": "w13"}
    assert found["rows"][0]["row_id"] == "demo/6" and found["rows"][0]["text"] == "w12+w13"
    assert math.isnan(found["rows"][0]["loss"]) and math.isfinite(found["rows"][1]["loss"])
    assert found["bad_rows"] == ["demo/6"]
    assert found["sentence"].endswith("(the row of token 13). Rows: demo/6.")


def test_text_stays_out_where_it_is_not_wanted(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.instruments.stability.incident.save_text = False
    with torch.no_grad():
        fake.model.embed.weight[2] = torch.nan
    found = looked_at(fake.train(), tmp_path)
    assert all("text" not in row for row in found["rows"]) and "text" not in found["parameter"]["token"]
    assert "w2" not in (tmp_path / "incident-12" / "incident.json").read_text()


def test_loss_alone(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.loss_hand = lambda loss: (loss * 0).log()
    found = looked_at(fake.train(), tmp_path)
    assert found["forward"] is None and found["parameter"] is None
    assert (found["backward"]["kind"], found["backward"]["after"]) == ("output_gradient", None)
    assert found["sentence"] == "step 12: every module's output is finite; the loss itself is -inf."


def test_backward_overflow_names_the_layer(tmp_path: Path) -> None:
    fake = Fake(tmp_path, scale=65536.0)
    fake.half = True
    with torch.no_grad():
        fake.model.up.weight /= 2.0**12
        fake.model.up.bias /= 2.0**12
        fake.model.down.weight *= 2.0**12
    found = looked_at(fake.train(), tmp_path)
    assert found["forward"] is None and found["loss_scale"] == 65536.0
    assert (found["backward"]["module"], found["backward"]["kind"]) == ("down", "input_gradient")
    assert found["sentence"].startswith(
        "step 12: the loss was finite and the gradient was not: backward of down (Linear, float16) at loss scale "
        "6.554e+04: input gradient inf, largest gradient given to it "
    )
    assert ": overflow of float16 (max 65504). Rows: " in found["sentence"]
    assert found["parameter"] is None and found["gradient"]["what"] == "gradient"


def test_second_pass_that_is_finite_says_so(tmp_path: Path) -> None:
    fake = Fake(tmp_path).train()
    assert fake.model.up.weight.grad is not None
    fake.model.up.weight.grad[4, 3] = torch.nan
    found = looked_at(fake, tmp_path)
    assert fake.repeated == [0, 1, 2] and found["micro_batch"] is None
    assert found["parameter"]["what"] == "gradient" and found["parameter"]["first_index"] == [4, 3]
    assert found["sentence"] == (
        "step 12: the loss was finite and the gradient was not. A second pass over the same batch was finite: the "
        "value came from outside the model, or is not deterministic; gradient of up.weight holds NaN at [4, 3]."
    )
    assert len(found["rows"]) == 12


def test_a_bad_loss_that_does_not_come_again_names_its_micro_batch(tmp_path: Path) -> None:
    fake = Fake(tmp_path).train()
    fake.step_now.losses[1] = torch.tensor(math.nan)
    found = looked_at(fake, tmp_path)
    assert fake.repeated == [1, 0, 2] and found["micro_batch"] == 1 and found["parameter"] is None
    assert [row["row_id"] for row in found["rows"]] == ["demo/4", "demo/5", "demo/6", "demo/7"]
    assert "A second pass over the same batch was finite" in found["sentence"]


def test_spike_lists_rows_by_loss_and_repeats_only_the_worst_micro_batch(tmp_path: Path) -> None:
    fake = Fake(tmp_path).train()
    fake.step_now.micros[2].loss_sums[3] = 40.0
    facts = {"loss": 9.1, "grad_norm": 2.0, "spike": {"loss_z": 14.04, "norm_z": 1.0}}
    found = looked_at(fake, tmp_path, "spike", **facts)
    assert fake.repeated == [2] and found["forward"] is None and found["trail"]["forward"]
    assert found["rows"][0]["row_id"] == "demo/11" and found["rows"][0]["loss"] == 20.0
    assert found["sentence"].startswith(
        "step 12: spike: loss 9.1 is 14.04 robust sd above the last 128 accepted steps; rows by loss: demo/11 (20), "
    )


def test_lack_of_memory_is_told_not_raised(tmp_path: Path) -> None:
    fake = Fake(tmp_path).train()

    def no_room(i: int) -> Tensor:
        fake.forward(i)
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nmore")

    fake.repeat_micro = no_room  # type: ignore[method-assign]
    found = looked_at(fake, tmp_path)
    assert "ran out of memory: CUDA out of memory. Tried to allocate 2 GiB." in found["sentence"]
    assert (tmp_path / "incident-12" / "incident.json").exists()


def test_folder_holds_what_a_replay_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fake = Fake(tmp_path)
    with torch.no_grad():
        fake.model.down.weight[1, 5] = torch.nan
    found = looked_at(fake.train(), tmp_path)
    incident = read_incident(tmp_path / "incident-12")
    assert incident.config == fake.instruments.config
    assert incident.facts["step"] == 12 and incident.facts["loss"] == "NaN" and incident.facts["schema"] == 1
    assert incident.facts["sentence"] == found["sentence"] == sentence(incident.facts)
    assert incident.facts["replay"] == "python -m runner replay incident-12"
    held = incident.batches()
    assert held["loss_scale"] == 8.0 and held["accumulation"] == 3 and held["num_items"] == 48
    assert held["num_threads"] == torch.get_num_threads() and held["processes"] == 1
    assert torch.equal(held["batches"][1]["input_ids"], fake.step_now.batches[1]["input_ids"])
    assert held["batches"][1]["row_id"] == ["demo/4", "demo/5", "demo/6", "demo/7"]
    # The state read back is usable and is the one the micro-batch began with.
    rng.restore(held["rng"][2])
    assert torch.equal(torch.get_rng_state(), fake.step_now.rng[2]["cpu"])
    weights = incident.weights()
    assert set(weights) == {name for name, _ in fake.trainable()}
    assert all(torch.equal(weights[n].nan_to_num(7.0), p.nan_to_num(7.0)) for n, p in fake.trainable())


def test_nothing_is_written_where_it_is_not_wanted(tmp_path: Path) -> None:
    fake = Fake(tmp_path)
    fake.instruments.stability.incident.save = False
    found = looked_at(fake.train(), tmp_path)
    assert found["incident"] is None and found["replay"] is None and not list(tmp_path.iterdir())


def test_tied_and_strided_weights_keep_value_and_dtype(tmp_path: Path) -> None:
    base = torch.arange(12.0, dtype=torch.bfloat16).reshape(3, 4)
    weights = {"a": base, "b": base, "c": base.T, "d": base[1], "e": torch.ones(2, dtype=torch.float16)}
    write_incident(tmp_path, {"step": 3}, {"batches": []}, weights, {})
    back = read_incident(tmp_path / "incident-3").weights()
    assert all(torch.equal(back[k], v) and back[k].dtype == v.dtype for k, v in weights.items())


def test_half_written_and_foreign_folders_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        read_incident(tmp_path / "incident-9")
    path = write_incident(tmp_path, {"step": 3}, {"batches": []}, None, {"seed": 1})
    with pytest.raises(UserError, match="It holds incident-3"):
        read_incident(tmp_path)
    with pytest.raises(UserError, match=r"weights\.safetensors is missing"):
        read_incident(path).weights()
    with pytest.raises(UserError, match=r"has no batches_rank1\.pt"):
        read_incident(path).batches(1)
    (path / "config.json").unlink()
    with pytest.raises(UserError, match=r"config\.json is missing"):
        read_incident(path)
    (path / "incident.json").write_text('{"step": 3, "rea')
    with pytest.raises(UserError, match="cut short"):
        read_incident(path)
    (path / "incident.json").unlink()
    with pytest.raises(UserError, match="cut short"):
        read_incident(path)


def test_facts_come_last(tmp_path: Path) -> None:
    write_incident(tmp_path, {"step": 3}, {"batches": []}, None, {})

    class Torn(dict[str, Any]):
        def items(self) -> Any:
            raise OSError("no space left on device")

    with pytest.raises(OSError, match="no space"):
        write_incident(tmp_path, {"step": 3}, {"batches": []}, Torn(), {})
    assert not (tmp_path / "incident-3" / "incident.json").exists()
    assert read_json(tmp_path / "incident-3" / "incident.json") is None


def test_facts_are_read_without_torch(tmp_path: Path) -> None:
    path = write_incident(tmp_path, {"step": 3, "reason": "non_finite", "loss": math.nan}, {"batches": []}, None, {})
    code = (
        "import sys; from pathlib import Path; from runner.training.incident import read_incident, sentence\n"
        f"facts = read_incident(Path({str(path)!r})).facts; print(sentence(facts)); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "step 3: every module's output is finite; the loss itself is NaN."


def test_the_gradient_of_one_parameter_is_named(tmp_path: Path) -> None:
    fake = Fake(tmp_path)

    class Spoilt(torch.autograd.Function):
        """A product whose gradient for the weight is NaN in row 7."""

        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            return x @ weight.T

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
            x, weight = ctx.saved_tensors
            spoilt = gradient.flatten(0, 1).T @ x.flatten(0, 1)
            spoilt[7] = torch.nan
            return gradient @ weight, spoilt

    class Up(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            product: Tensor = Spoilt.apply(x, self.weight)
            return product + self.bias

    fake.model.up = Up(6, 12)
    found = looked_at(fake.train(), tmp_path)
    assert (found["backward"]["module"], found["backward"]["parameter"]) == ("up", "up.weight")
    assert (found["parameter"]["name"], found["parameter"]["what"], found["parameter"]["row"]) == (
        "up.weight",
        "gradient",
        7,
    )
    assert "its own backward made it, as the gradient of up.weight" in found["sentence"]


@pytest.mark.parametrize("rank_of_nan", [0, 1])
def test_facts_of_the_process_that_found_something(tmp_path: Path, rank_of_nan: int) -> None:
    from runner.training import investigate as room

    words: list[dict[str, Any]] = []
    for rank in range(2):
        fake = Fake(tmp_path)
        if rank == rank_of_nan:
            fake.loss_hand = lambda loss: loss * math.nan
        words.append(room.examine(fake.train(), False, {"step": 12, "loss": math.nan}))
    facts = room.chosen(words, spike=False)
    assert facts["rank"] == rank_of_nan and facts["ranks"] == [rank_of_nan]
    json.dumps(facts)


TWO = """
import math, sys
from pathlib import Path
import torch
from accelerate import Accelerator
from tests.training.test_incident import Fake, looked_at
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
folder = Path(sys.argv[1])
fake = Fake(folder)
fake.accelerator = accelerator
fake.scale = None
wrapped = torch.nn.parallel.DistributedDataParallel(fake.model)
bare, fake.model = fake.model, wrapped
if accelerator.process_index == 1:
    fake.loss_hand = lambda loss: loss * math.nan
    for batch in fake.step_now.batches:
        batch["row_id"] = [name.replace("demo", "second") for name in batch["row_id"]]
fake.train()
fake.model = bare
found = looked_at(fake, folder, loss=math.nan)
print(accelerator.process_index, found["rank"], found["ranks"], found["rows"][0]["row_id"], found["sentence"])
accelerator.end_training()
"""


@pytest.mark.distributed
def test_two_processes_tell_the_same_and_keep_both_batches(tmp_path: Path) -> None:
    script = tmp_path / "two.py"
    script.write_text(TWO)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launcher, str(script), str(tmp_path)], capture_output=True, text=True, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    end = "1 [1] second/0 step 12: every module's output is finite; the loss itself is NaN."
    lines = sorted(line for line in done.stdout.splitlines() if "step 12" in line)
    assert [line[0] for line in lines] == ["0", "1"] and all(line[2:] == end for line in lines)
    incident = read_incident(tmp_path / "incident-12")
    assert incident.facts["processes"] == 2 and incident.facts["rank"] == 1
    assert [incident.batches(r)["batches"][0]["row_id"][0] for r in (0, 1)] == ["demo/0", "second/0"]


def test_damaged_files_are_one_sentence(tmp_path: Path) -> None:
    path = write_incident(tmp_path, {"step": 3}, {"batches": [torch.ones(300)]}, {"w": torch.ones(300)}, {"seed": 1})
    incident = read_incident(path)
    for name, read in (("batches_rank0.pt", incident.batches), ("weights.safetensors", incident.weights)):
        content = (path / name).read_bytes()
        for size in (0, 5, len(content) // 2):
            (path / name).write_bytes(content[:size])
            with pytest.raises(UserError, match=f"{name} is damaged"):
                read()
