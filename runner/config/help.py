"""The pages of `python -m runner --help` and `--help GROUP`."""

from __future__ import annotations

import dataclasses
import shutil
import textwrap
from typing import Any

from runner.config.layers import OVERLAYS
from runner.config.names import UNSET, known_keys, nearest
from runner.config.share import packaged_conf, working_conf
from runner.config.unused import DISCRIMINATORS, packaged_options
from runner.config.values import describe
from runner.errors import UserError

VERBS = {
    "train": "compose, check, train (the default)",
    "check": "find what is wrong before training: config, data, weights, one batch; --cfg job prints who set what",
    "diagnose": "is a run healthy, why not, what to change: RUN, a sweep, or a log of another tool",
    "report": "report.html of a run or log: the verdict and every chart, offline",
    "replay": "repeat the recorded step of RUN/incident-12, as it was or with precision=fp32",
    "help": "this page, or with a group's name its keys",
}
NOT_YET = ("cure", "prove", "bench", "import", "predict", "chat", "export")
"""Verbs that are planned."""


def options(group: str) -> list[str]:
    """Names of the YAML files of a group: packaged ones and those of `./conf`."""
    folders = [packaged_conf(), *([own] if (own := working_conf()) else [])]
    return sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})


def groups() -> list[str]:
    """The fourteen groups, in the order of the schema, and groups of your own in `./conf`."""
    ours = [n for n, key in known_keys().items() if key.is_group and "." not in n and (packaged_conf() / n).is_dir()]
    return ours


def page() -> str:
    """The short page: verbs, groups and their options, overlays, everyday commands, where to read on."""
    width = max(len(g) for g in groups())
    rows = []
    for group in groups():
        rows.append(f"  {group:<{width}}  {known_keys()[group].doc.rstrip('.'):<34} {' | '.join(options(group))}")
    overlays = [f"  +{name:<{width - 1}}  {' | '.join(options(name))}" for name in OVERLAYS]
    verbs = [f"  {verb:<{width}}  {what}" for verb, what in VERBS.items()]
    return "\n".join(
        [
            "python -m runner [VERB] [+exp=NAME] [GROUP=OPTION ...] [GROUP.KEY=VALUE ...]",
            "Fine-tune language models and classifiers; every setting is YAML that Hydra composes.",
            "",
            "Verbs",
            *verbs,
            "",
            "Groups (GROUP=OPTION; their keys: python -m runner --help GROUP)",
            *rows,
            "",
            "Overlays",
            *overlays,
            "",
            "Everyday",
            "  python -m runner                                        the shipped tiny model on demo data",
            "  python -m runner model=path model.path=MODEL dataset=file dataset.path=/my/rows.jsonl",
            "  python -m runner +exp=qwen2_sentiment 'task.labels=[积极,消极,中立]' schedule.warmup_ratio=0.1",
            "  python -m runner check +exp=qwen14b_lora lora=none      would it train? 1 as exit code if not",
            "  python -m runner -m optim.learning_rate=1e-4,1e-3 clip=norm,none     one run each",
            "  python -m runner diagnose trainer_state.json            why does this loss do what it does?",
            "",
            "Any other argument of SFTConfig / TrainingArguments: trainer.NAME=VALUE.",
            "YAML of your own: ./conf/GROUP/NAME.yaml, found by GROUP=NAME.",
            "Hydra's options (--cfg job, -m, --config-dir, ...): --hydra-help. Read on: README.md, docs/features.md.",
        ]
    )


def group_page(name: str) -> str:
    """Keys of one group (or one overlay, or `all`): meaning, what they take, default, and who uses them."""
    if name in OVERLAYS:
        first = [f"  +{name}={o}" for o in options(name)]
        return "\n".join([f"+{name}=NAME applies on top of an experiment:", *first])
    keys = known_keys()
    if name not in keys:
        near = nearest(name, [*keys, *OVERLAYS], 0.5)
        raise UserError(f"--help {name}: there is no such group or key" + (f"; did you mean {near}?" if near else ""))
    key = keys[name]
    if not key.is_group:
        return _key(name)
    lines = [f"{name}: {key.doc}", _doc(key.type)]
    if "." not in name and options(name):
        lines.append(f"Options: {', '.join(f'{name}={o}' for o in options(name))}")
    if name == "trainer":
        lines.append("")
    below = [n for n, k in keys.items() if n.startswith(name + ".") and not k.is_group]
    return "\n".join([*lines, "", *(_key(n) for n in below)])


def _doc(kind: Any) -> str:
    return " ".join((kind.__doc__ or "").split()) if dataclasses.is_dataclass(kind) else ""


def _key(name: str) -> str:
    """One key: name and default, what it takes, its docstring, the options that use it if not all do."""
    key = known_keys()[name]
    default = "" if key.default is UNSET or key.default == "???" else f" = {_shown(key.default)}"
    group, _, rest = name.partition(".")
    users = ""
    if group in DISCRIMINATORS and rest:
        files = packaged_options(group)
        using = [o for o, content in files.items() if rest.partition(".")[0] in content]
        if using and len(using) < len(files):
            users = f" (only with {', '.join(f'{group}={o}' for o in using)})"
    width = min(shutil.get_terminal_size((110, 24)).columns, 110)
    text = f"{key.doc}{users}"
    wrapped = textwrap.fill(text, width, initial_indent="      ", subsequent_indent="      ")
    return f"  {name}{default}    [{describe(key.type)}]\n{wrapped}"


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if dataclasses.is_dataclass(value):
        return "{...}"
    return str(list(value)) if isinstance(value, tuple) else str(value)
