"""The same change in the words of four tools, and the commands that check a claim."""

from __future__ import annotations

Changes = dict[str, tuple[str, ...]]
"""{tool: lines to paste}."""

MODEL = "python -m runner check model=path model.path=MODEL"
"""The checks of preflight on the user's weights (tensors, files, kernels, one batch) with rows that ship with the
project."""

ROWS = "python -m runner check model=path model.path=MODEL dataset=file dataset.path=ROWS"
"""The same on the user's rows: supervised tokens, what was cut or dropped, end tokens, labels, order."""

AT_ZERO = "python -m runner diagnose {path} --control LOG_AT_LEARNING_RATE_0"
AT_A_TENTH = "python -m runner diagnose LOG_AT_A_TENTH_OF_THE_RATE"
AFTER = "python -m runner diagnose LOG_AFTER_THE_CHANGE"
AGAIN = "python -m runner diagnose {path}"
REPORT = "python -m runner report {path}"


def hf(**settings: str | float | bool) -> Changes:
    """Arguments of transformers' TrainingArguments for the three tools that pass them on by their own names.

    Text that starts with `{` is a field for the diagnosis to fill and is not quoted.
    """
    return {
        "transformers": tuple(f"{k}={_python(v)}" for k, v in settings.items()),
        "llamafactory": tuple(f"{k}: {_yaml(v)}" for k, v in settings.items()),
        "ms_swift": tuple(f"--{k} {_yaml(v)}" for k, v in settings.items()),
    }


def both(
    first: Changes,
    runner: tuple[str, ...] = (),
    transformers: tuple[str, ...] = (),
    llamafactory: tuple[str, ...] = (),
    ms_swift: tuple[str, ...] = (),
) -> Changes:
    """`first`, with further lines per tool behind its own."""
    further = {"runner": runner, "transformers": transformers, "llamafactory": llamafactory, "ms_swift": ms_swift}
    joined = {tool: first.get(tool, ()) + lines for tool, lines in further.items()}
    return {tool: lines for tool, lines in joined.items() if lines}


def _python(value: str | float | bool) -> str:
    return f'"{value}"' if isinstance(value, str) and not value.startswith("{") else str(value)


def _yaml(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


WARMUP = both(
    hf(warmup_steps="{warmup_three_percent}"),
    runner=("schedule.warmup_steps=null", "schedule.warmup_ratio=0.03"),
)
RATE_TENTH = both(hf(learning_rate="{learning_rate_tenth}"), runner=("optim.learning_rate={learning_rate_tenth}",))
RATE_TIMES_TEN = both(
    hf(learning_rate="{learning_rate_times_ten}"), runner=("optim.learning_rate={learning_rate_times_ten}",)
)
RATE_FOR_THE_METHOD = both(
    hf(learning_rate="{lora_learning_rate}"), runner=("optim.learning_rate={lora_learning_rate}",)
)
RATE_TENTH_AND_WARMUP = {tool: RATE_TENTH[tool] + WARMUP[tool] for tool in RATE_TENTH}
BF16 = both(hf(bf16=True, fp16=False), runner=("precision=bf16",))
CLIP_AT_MEDIAN = both(hf(max_grad_norm="{median_norm}"), runner=("clip=norm", "clip.max_grad_norm={median_norm}"))
SHOW_NAN = hf(logging_nan_inf_filter=False, logging_steps=1)
EVERY_STEP = both(hf(logging_steps=1), runner=("tracking.logging_steps=1",))
EAGER = both(
    {},
    runner=("model.attn_implementation=eager",),
    transformers=('model.set_attn_implementation("eager")',),
    llamafactory=("flash_attn: disabled",),
    ms_swift=("--attn_impl eager",),
)
LONGER = both(
    {},
    runner=("dataset.max_length=4096",),
    transformers=("max_length=4096",),
    llamafactory=("cutoff_len: 4096",),
    ms_swift=("--max_length 4096",),
)
