"""Leaves that the chosen option of a group does not use.

The keys an option uses are the keys its YAML file lists, joined by those of every packaged option with the same
discriminator (clip.method, optim.name, ...): so a file of your own that says only `method: lora` and `r: 4` may be
given every LoRA key. A discriminator value that no packaged option has (optim.name=lion_32bit), and a file of your own
in a group without discriminator (model, batch, ...), use every key of the group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from runner.config.layers import Layer, Origin, leaves_of
from runner.config.names import known_keys
from runner.config.share import packaged_conf

DISCRIMINATORS = {
    "task": "name",
    "lora": "method",
    "optim": "name",
    "schedule": "lr_scheduler_type",
    "precision": "compute",
    "clip": "method",
    "engine": "name",
    "tracking": "report_to",
}
"""The key whose value says which option of a group is chosen."""


@dataclass
class Unused:
    """What to take out of a tree. `edits` are Hydra overrides, `dropped` the sentences, `problems` the errors."""

    edits: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@cache
def packaged_options(group: str) -> dict[str, dict[str, Any]]:
    """Option -> top-level content of its YAML file, for the options that come with the package."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, dict[str, Any]] = {}
    for file in sorted(Path(packaged_conf() / group).glob("*.yaml")):
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=loader)
        found[file.stem] = content if isinstance(content, dict) else {}
    return found


def _heads(names: dict[str, Any], group: str) -> dict[str, Any]:
    """Top-level keys below a group -> the value if it is a leaf."""
    inside = {n.removeprefix(group + "."): v for n, v in names.items() if n.startswith(group + ".")}
    return {n.partition(".")[0]: v for n, v in inside.items()}


def used_keys(group: str, own: set[str], packaged: bool, kind: Any) -> set[str] | None:
    """Keys the chosen option uses; None = every key of the group. `kind` is its discriminator's value."""
    options = packaged_options(group)
    discriminator = DISCRIMINATORS.get(group)
    if discriminator is None:
        return own if packaged else None
    same = [content for content in options.values() if content.get(discriminator) == kind]
    return own.union(*same) if same else None


def find_unused(layers: list[Layer], found: dict[str, Origin], tree: Any, choices: dict[str, str]) -> Unused:
    """Compare what is set with what the chosen options use.

    layers: files of the composition. found: origin of each leaf. tree: plain dict of the composed values (unresolved).
    choices: group -> option that the command line names (such a choice wins over a discriminator set by an overlay).
    """
    result = Unused()
    for group in sorted({layer.group for layer in layers if layer.group}):
        options = [layer for layer in layers if layer.group == group]
        listed: dict[str, Any] = {}
        for layer in options:
            listed.update(_heads(layer.leaves, group))
        chosen = options[-1].config_path.partition("/")[2]
        packaged = all(layer.packaged for layer in options)
        values = tree.get(group) if isinstance(tree.get(group), dict) else {}
        kind = _settle_discriminator(group, chosen, listed, values, found, choices, result)
        used = used_keys(group, set(listed), packaged, kind)
        if used is None:
            continue
        for name in [n for n in leaves_of(values, group + ".")]:
            head = name.split(".")[1]
            if head in used or f"{group}.{head}" not in known_keys():
                continue
            _report(name, group, chosen, found.get(name), result)
    return result


def _settle_discriminator(
    group: str,
    chosen: str,
    listed: dict[str, Any],
    values: dict[str, Any],
    found: dict[str, Origin],
    choices: dict[str, str],
    result: Unused,
) -> Any:
    """The discriminator's value that holds; an overlay or a hand-set key may contradict the chosen option."""
    discriminator = DISCRIMINATORS.get(group)
    if discriminator is None:
        return None
    name = f"{group}.{discriminator}"
    own, now, origin = listed.get(discriminator), values.get(discriminator), found.get(name)
    if now == own or own is None or origin is None:
        return now
    if not origin.by_hand and group in choices:
        result.edits.append(f"{name}={own}")
        result.dropped.append(f"{name}={now} from {origin.label}: {group}={chosen} on the command line wins")
        return own
    matching = [o for o, content in packaged_options(group).items() if content.get(discriminator) == now]
    if matching:
        how = f"{group}={matching[0]}" if origin.by_hand else f"`override /{group}: {matching[0]}` in its defaults list"
        result.problems.append(f"{name}={now} ({origin.label}) contradicts {group}={chosen}; choose the option: {how}")
    return now


def _report(name: str, group: str, chosen: str, origin: Origin | None, result: Unused) -> None:
    head = ".".join(name.split(".")[:2])
    users = [f"{group}={o}" for o, content in packaged_options(group).items() if head.split(".")[1] in content]
    if origin is not None and origin.by_hand:
        other = f"; it is used by {', '.join(users)}" if users else ""
        result.problems.append(f"{name} ({origin.label}) is not used by {group}={chosen}{other}")
    else:
        source = origin.label if origin else "?"
        result.dropped.append(f"{name} from {source}: not used by {group}={chosen}")
        edit = f"~{head}"  # an unused key goes with all that lies below it
        if edit not in result.edits:
            result.edits.append(edit)
