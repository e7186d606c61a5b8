"""The door: verbs, help, exit codes, what reaches the run and the trials. Nothing here trains."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

import runner.__main__ as door
from runner.config.compose import load
from runner.config.schema import Config
from runner.errors import DataError

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run folders land in a temporary folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Config, Any]]:
    """What the run or the trials were given, instead of training."""
    seen: list[tuple[Config, Any]] = []

    def run(config: Config, dropped: list[str]) -> Any:
        seen.append((config, dropped))
        return SimpleNamespace(state="finished", exit_code=0, metric=1.5)

    def trial(config: Config, folder: Path) -> float:
        seen.append((config, folder))
        return float(len(seen))

    monkeypatch.setattr(door, "_run", run)
    monkeypatch.setattr(door, "_run_trial", trial)
    monkeypatch.setattr(door, "_run_sweep", lambda multirun: multirun())
    return seen


TINY = ["model=path", "model.path=org/model"]  # nothing on disk is needed


def test_help_pages(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["--help"]) == 0
    page = capsys.readouterr().out
    assert "optim" in page and "stable_adamw" in page and "+exp" in page and "qwen14b_lora" in page
    assert door.main(["--help", "optim"]) == 0
    assert "optim.learning_rate = null" in capsys.readouterr().out
    assert door.main(["help", "clip"]) == 0
    # Wrapped at the width of whatever terminal there is.
    assert "only with clip=value" in " ".join(capsys.readouterr().out.split())
    assert door.main(["help", "optm"]) == 2
    assert "did you mean optim?" in capsys.readouterr().err


def test_help_of_every_key() -> None:
    from runner.config.help import group_page
    from runner.config.names import known_keys

    assert all(group_page(name) for name in known_keys())


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("runner ")


@pytest.mark.parametrize("verb", ["cure", "prove", "bench", "predict", "chat", "export"])
def test_planned_verbs(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main([verb, "x"]) == 2
    assert "not yet" in capsys.readouterr().err


def test_unknown_verb_and_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["trian"]) == 2
    assert "did you mean train?" in capsys.readouterr().err
    assert door.main(["--nosuch"]) == 2
    assert "--nosuch" in capsys.readouterr().err


def test_config_error_is_one_message_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["optim.learnign_rate=1e-4", "batch.per_device_train_batchsize=2"]) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ") and "Traceback" not in text
    assert "optim.learning_rate" in text and "batch.per_device_train_batch_size" in text


def test_full_error_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.errors import ConfigError

    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ConfigError):
        door.main(["seed=x"])


def test_a_single_run(runs: list[tuple[Config, Any]]) -> None:
    assert door.main([*TINY, "+exp=qwen14b_lora", "lora=none", "dataset=demo_mix", "output_dir=here", "seed=7"]) == 0
    config, dropped = runs[0]
    assert config.output_dir == str(Path("here").absolute())
    assert config.seed == 7 and config.lora.method == "none" and any("lora.r" in d for d in dropped)
    saved = OmegaConf.load("here/.hydra/config.yaml")
    assert "r" not in saved.lora and saved.seed == 7
    assert (
        config
        == load(
            [*TINY, "+exp=qwen14b_lora", "lora=none", "dataset=demo_mix", f"output_dir={config.output_dir}", "seed=7"]
        ).config
    )


def test_train_is_the_default_verb_and_options_may_stand_anywhere(runs: list[tuple[Config, Any]]) -> None:
    assert door.main(["train", "seed=1", "--run", *TINY]) == 0
    config, _ = runs[0]
    folder = Path(config.output_dir)
    assert folder.is_dir() and folder.parent == Path("outputs/quickstart").absolute()


def test_chinese_values_reach_the_run(runs: list[tuple[Config, Any]]) -> None:
    Path("数据").mkdir()
    Path("数据/情感.jsonl").write_text("{}")
    lines = ["task=classification", "dataset=file", "dataset.path=数据/情感.jsonl", "task.labels=[积极,消极,中立]"]
    assert door.main([*TINY, *lines]) == 0
    assert runs[0][0].task.labels == ["积极", "消极", "中立"]


def test_a_sweep_over_groups(runs: list[tuple[Config, Any]]) -> None:
    lines = ["-m", *TINY, "+exp=qwen14b_lora", "dataset=demo_mix", "optim.learning_rate=1e-4,1e-3", "lora=q_v,none"]
    assert door.main(lines) == 0
    assert len(runs) == 4 and len({folder for _, folder in runs}) == 4
    for config, folder in runs:
        assert config.output_dir == str(folder) and folder.is_dir()
        assert f"lora={'none' if config.lora.method == 'none' else 'q_v'}" in folder.name
        assert ("r" in OmegaConf.load(folder / ".hydra" / "config.yaml").lora) == (config.lora.method == "lora")
    assert {c.optim.learning_rate for c, _ in runs} == {1e-4, 1e-3}
    assert {(c.lora.method, c.lora.r) for c, _ in runs} == {("lora", 8), ("none", 8)}


def test_a_bad_value_in_a_sweep_stops_it_before_the_first_trial(
    runs: list[tuple[Config, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert door.main(["-m", *TINY, "lora.r=4,abc"]) == 2
    assert not runs and "lora.r=abc" in capsys.readouterr().err


def test_a_failed_sweep_fails(runs: list[tuple[Config, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_run_sweep", lambda multirun: multirun() or 1)
    assert door.main(["-m", *TINY, "seed=1"]) == 1 and len(runs) == 1


def test_sweep_overlay_without_m(runs: list[tuple[Config, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main([*TINY, "+sweep=clip"]) == 2
    assert "add -m" in capsys.readouterr().err and not runs
    assert door.main(["-m", *TINY, "+sweep=clip"]) == 0
    assert len(runs) == 4


def test_errors_of_the_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def bad_data(config: Config, dropped: list[str]) -> Any:
        raise DataError("rows.jsonl line 3: no JSON")

    monkeypatch.setattr(door, "_run", bad_data)
    assert door.main(TINY) == 2
    assert capsys.readouterr().err == "error: rows.jsonl line 3: no JSON\n"

    def bug(config: Config, dropped: list[str]) -> Any:
        raise ZeroDivisionError("bug")

    monkeypatch.setattr(door, "_run", bug)
    with pytest.raises(ZeroDivisionError):
        door.main(TINY)

    def interrupt(config: Config, dropped: list[str]) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(door, "_run", interrupt)
    assert door.main(TINY) == 130
    monkeypatch.setattr(door, "_run", lambda c, d: SimpleNamespace(exit_code=3, metric=None))
    assert door.main(TINY) == 3


def test_a_run_folder_that_cannot_be_made(runs: list[tuple[Config, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    Path("taken").write_text("")
    assert door.main([*TINY, "output_dir=taken/run"]) == 2
    assert "taken is a file" in capsys.readouterr().err and not runs


def test_cfg_job_is_the_checked_config(capsys: pytest.CaptureFixture[str]) -> None:
    from runner.config.build import to_config

    lines = [*TINY, "+exp=qwen14b_lora", "lora=none", "output_dir=o"]
    assert door.main(["--cfg", "job", *lines]) == 0
    shown = OmegaConf.create(capsys.readouterr().out)
    assert to_config(shown) == load(lines).config
    assert door.main(["--cfg", "job", "--resolve", "--package", "optim", *lines]) == 0
    assert "learning_rate" in capsys.readouterr().out


def test_hydras_info_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["--info", "defaults", *TINY]) == 0
    assert door.main(["--hydra-help"]) == 0
    assert "Hydra" in capsys.readouterr().out


def test_config_dir_and_own_conf(runs: list[tuple[Config, Any]]) -> None:
    Path("more/clip").mkdir(parents=True)
    Path("more/clip/tight.yaml").write_text("method: norm\nmax_grad_norm: 0.1\n")
    Path("conf/model").mkdir(parents=True)
    Path("conf/model/mine.yaml").write_text("path: org/mine\n")
    assert door.main(["model=mine", "model.revision=v1", "clip=tight", "--config-dir", "more"]) == 0
    config, _ = runs[0]
    assert (config.model.path, config.model.revision, config.clip.max_grad_norm) == ("org/mine", "v1", 0.1)


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert door.main(["check", "--cfg", "job", *TINY, "optim.learning_rate=1e-3"]) == 0
    line = next(x for x in capsys.readouterr().out.splitlines() if x.startswith("optim.learning_rate"))
    assert "0.001" in line and "command line" in line
    assert door.main(["check", "-m", *TINY, "seed=1,2"]) == 0
    assert "2 trials" in capsys.readouterr().out
    assert door.main(["check", "seed=x"]) == 2


def test_the_door_imports_no_torch() -> None:
    code = (
        "import sys; from runner.__main__ import main\n"
        "for line in ('--help', '--cfg=job', 'check --cfg job', 'sead=1', 'trainer.x=1', 'optim.name=x'):\n"
        "    main(line.split())\n"
        "bad = {'torch', 'transformers', 'trl', 'peft', 'datasets', 'accelerate', 'numpy'} & set(sys.modules)\n"
        "sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "runner", "optim.learnign_rate=1e-4"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=60, env={"PYTHONPATH": str(ROOT), "PATH": ""}
    )
    assert done.returncode == 2 and "optim.learning_rate" in done.stderr and not list(tmp_path.iterdir())
