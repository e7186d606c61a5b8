"""What a resumed run gets back, and which settings the restored state overrules."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.errors import ConfigError, UserError
from runner.preflight.context import Context
from runner.preflight.settings.resume import missing_state, resume, setting_findings, state_findings

FILES = ["adapter_model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"]


@pytest.fixture
def resumed(make_config: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """resumed(lacks=(), before={group__field: value}, **now) -> Context of a run that resumes an older one."""

    def make(lacks: tuple[str, ...] = (), before: dict[str, Any] | None = None, **now: Any) -> Any:
        old = make_config(out="old/run", **(before or {}))
        folder = Path(old.output_dir)
        checkpoint = folder / "checkpoints" / "checkpoint-20"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(dataclasses.asdict(old)))
        (folder / "run.json").write_text(json.dumps({"state": "stopped", "pid": 0}))
        for name in FILES:
            (checkpoint / name).write_text("{}") if name not in lacks else (checkpoint / name).unlink(missing_ok=True)
        if "trainer_state.json" not in lacks:
            (checkpoint / "trainer_state.json").write_text(json.dumps({"global_step": 20, "max_steps": 60}))
        c = Context(make_config(out="new/run", **now), "deep", tmp_path)
        c.cfg.checkpoint.resume = str(folder)
        return c

    return make


def test_a_new_run_has_nothing_to_resume(make_config: Callable[..., Any], tmp_path: Path) -> None:
    assert resume(Context(make_config(), "deep", tmp_path)).skipped


def test_a_whole_checkpoint_with_the_same_settings(resumed: Callable[..., Any]) -> None:
    result = resume(resumed())
    assert not result.findings and result.summary == "step 20 of 60"


def test_a_rate_passed_at_a_resume_is_ignored(resumed: Callable[..., Any]) -> None:
    from runner.config.schema import Optim

    (finding,) = resume(resumed(before={"optim": Optim(learning_rate=1e-3)}, optim=Optim(learning_rate=1e-4))).findings
    assert (finding.id, finding.severity) == ("lifecycle.resume_discontinuity", "warning")
    assert finding.where == ("optim.learning_rate",) and finding.numbers == {"optim.learning_rate": [1e-3, 1e-4]}
    assert finding.overrides == ("optim.learning_rate=0.001",)


@pytest.mark.slow
def test_torch_restores_these_settings() -> None:
    """The truth behind `RESTORED`: a new optimizer and schedule take over what a state dict holds."""
    import torch
    from transformers import get_scheduler

    def make(rate: float, eps: float) -> tuple[Any, Any]:
        optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=rate, eps=eps, betas=(rate, 0.9))
        return optimizer, get_scheduler("linear", optimizer, 0, 100)

    old, now = make(1e-3, 1e-8), make(1e-4, 1e-6)
    for part, state in zip(now, [p.state_dict() for p in old], strict=True):
        part.load_state_dict(state)
    now[0].step()
    now[1].step()
    group = now[0].param_groups[0]
    assert group["lr"] == pytest.approx(0.99e-3) and group["eps"] == 1e-8 and group["betas"][0] == 1e-3


@pytest.mark.parametrize(
    ("file", "severity"),
    [("optimizer.pt", "warning"), ("scheduler.pt", "warning"), ("rng_state.pth", "note"), (FILES[0], "error")],
)
def test_a_missing_state_file_is_named(resumed: Callable[..., Any], file: str, severity: str) -> None:
    (finding,) = resume(resumed(lacks=(file,))).findings
    assert (finding.id, finding.severity) == ("lifecycle.resume_discontinuity", severity)
    assert len(finding.where) == 1 and file in finding.where[0] and "checkpoint-20" in finding.sentence


def test_what_has_to_be_there() -> None:
    assert missing_state(FILES, fp16=False, processes=1, split=False) == []
    assert missing_state(FILES, fp16=True, processes=1, split=False) == ["scaler.pt"]
    assert missing_state(FILES, False, 2, False) == ["rng_state_0.pth", "rng_state_1.pth"]
    assert missing_state(["scheduler.pt", "rng_state.pth"], True, 1, split=True) == []
    assert missing_state([], False, 1, False)[1:] == ["optimizer.pt", "scheduler.pt", "rng_state.pth"]
    assert not state_findings(Path("checkpoint-1"), [])


def test_a_longer_schedule_is_a_note_and_free_settings_are_nothing() -> None:
    (finding,) = setting_findings({"schedule.max_steps": (60, 90), "checks.level": (None, "deep"), "name": ("a", "b")})
    assert (finding.severity, finding.where) == ("note", ("schedule.max_steps",))
    assert not setting_findings({"clip.method": ("norm", "none"), "output_dir": ("a", "b")})


def test_overrides_of_ignored_settings_compose() -> None:
    from runner.config.compose import load

    (finding,) = setting_findings({"optim.learning_rate": (None, 1e-4), "optim.betas": ([0.9, 0.999], [0.9, 0.95])})
    assert load(list(finding.overrides)).config.optim.betas == (0.9, 0.999)


def test_what_does_not_fit_is_refused(resumed: Callable[..., Any]) -> None:
    from runner.config.schema import Batch

    with pytest.raises(ConfigError, match="per_device_train_batch_size"):
        resume(resumed(batch=Batch(per_device_train_batch_size=2)))
    with pytest.raises(UserError, match="no usable checkpoint"):
        resume(resumed(lacks=("trainer_state.json",)))


def test_auto_without_a_run(make_config: Callable[..., Any], tmp_path: Path) -> None:
    c = Context(make_config(), "deep", tmp_path)
    c.cfg.checkpoint.resume = "auto"
    assert not resume(c).findings and "step 1" in resume(c).summary


def test_a_run_that_has_begun_compares_with_the_settings_it_had_before(resumed: Callable[..., Any]) -> None:
    c = resumed()
    assert not resume(c).findings
    c.previous = {**json.loads((Path(c.cfg.checkpoint.resume) / "config.json").read_text()), "seed": 7}
    c.previous["optim"] = {**c.previous["optim"], "learning_rate": 0.5}
    (finding,) = resume(c).findings
    assert finding.where == ("optim.learning_rate",)
