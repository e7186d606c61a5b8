"""Sweep folders."""

import json

from runner.__main__ import main


def trial(folder, overrides, losses, state="finished"):
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text("".join(f"- {o}\n" for o in overrides))
    (folder / "run.json").write_text(json.dumps({"schema": 1, "state": state, "reason": "it died"}))
    (folder / "config.json").write_text(json.dumps({"optim": {}, "clip": {"method": "none"}, "task": {"name": "sft"}}))
    rows = [{"step": i + 1, "epoch": i / 50, "loss": x, "grad_norm": 1.0 + i % 3} for i, x in enumerate(losses)]
    (folder / "telemetry.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))


def falling(n=60):
    return [1.5 - 0.35 * i / n + 0.05 * ((i * 7919 % 97) / 48 - 1) for i in range(n)]


def rising(n=60):
    return [1.5 - 0.35 * i / n + (2.0 if i > 40 else 0.0) + 0.05 * ((i * 7919 % 97) / 48 - 1) for i in range(n)]


def test_the_setting_that_the_ill_trials_share_is_named(tmp_path, capsys):
    for i, (rate, clip) in enumerate([("1e-4", "norm"), ("1e-4", "none"), ("1e-2", "norm"), ("1e-2", "none")]):
        losses = rising() if rate == "1e-2" else falling()
        trial(tmp_path / f"t{i}", ["task=sft", f"optim.learning_rate={rate}", f"clip={clip}"], losses)
    assert main(["diagnose", str(tmp_path), "--lang", "en"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 5
    assert out[0].startswith("optim.learning_rate=1e-4 clip=norm  finished  normal")
    assert out[-1] == ("All 2 ill trial(s) have optim.learning_rate=1e-2 (2 of 2 with it), and none without it is ill.")


def test_a_trial_that_died_before_its_first_step_is_listed(tmp_path, capsys):
    trial(tmp_path / "a", ["clip=norm"], falling())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "run.json").write_text(json.dumps({"schema": 1, "state": "failed", "reason": "out of memory"}))
    (tmp_path / "b" / "config.json").write_text("{}")
    assert main(["diagnose", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [t["state"] for t in found["trials"]] == ["finished", "failed"]
