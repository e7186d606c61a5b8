"""Versions and settings that are known to fail, from the table known_bad.yaml. Reads versions, imports nothing."""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from runner.config.rules_train import splitting_launcher
from runner.config.schema import Config
from runner.errors import UserError
from runner.preflight.context import Context
from runner.preflight.finding import Finding, Result, Severity, found
from runner.preflight.settings.config_json import config_json

VARIABLES = ("KMP_DUPLICATE_LIB_OK", "ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP", "ACCELERATE_MIXED_PRECISION")
"""Environment variables that rows may name as env.NAME."""

MODEL_FIELDS = ("model_type", "attn_logit_softcapping")
"""Fields of config.json that rows may name as model.json.FIELD."""

HOPPER = ("H20", "H100", "H200", "H800", "GH200")
GPUS = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver says which cards there are; asking the driver itself would need torch."""


@dataclass(frozen=True)
class Row:
    """One combination; the head of known_bad.yaml explains the fields."""

    id: str
    cause: str
    severity: Severity
    packages: Mapping[str, str]
    settings: Mapping[str, Any]
    where: Sequence[str]
    reason: str
    source: Sequence[str]
    overrides: Sequence[str]

    def holds(self, versions: Mapping[str, str | None], settings: Mapping[str, Any]) -> bool:
        """Whether all its packages are in their ranges and all its settings are given."""
        from packaging.specifiers import SpecifierSet

        for name, wanted in self.packages.items():
            version = versions.get(name)
            if version is None or not SpecifierSet(wanted).contains(version, prereleases=True):
                return False
        return all(_is_one_of(settings.get(key), wanted) for key, wanted in self.settings.items())

    def finding(self, versions: Mapping[str, str | None], settings: Mapping[str, Any]) -> Finding:
        """What the check reports, with the versions and values that it met."""
        seen = [f"{name} {versions[name]}" for name in self.packages]
        seen += [f"{key}={_said(settings[key])}" for key in self.settings if settings.get(key) is not None]
        numbers = {"row": self.id, "source": list(self.source)}
        sentence = f"{', '.join(seen)}: {self.reason} ({', '.join(self.source)})"
        return Finding(self.cause, self.severity, sentence, tuple(self.where), numbers, tuple(self.overrides))


def _is_one_of(value: Any, wanted: Any) -> bool:
    # true and 1 are equal in Python, and are not the same setting.
    one_of = wanted if isinstance(wanted, list) else [wanted]
    return any(value == w and isinstance(value, bool) == isinstance(w, bool) for w in one_of)


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@cache
def table() -> tuple[Row, ...]:
    """The rows of known_bad.yaml, in its order."""
    import yaml

    text = Path(__file__).with_name("known_bad.yaml").read_text(encoding="utf-8")
    return tuple(Row(**row) for row in yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def matching(versions: Mapping[str, str | None], settings: Mapping[str, Any], rows: Iterable[Row]) -> list[Finding]:
    """A finding for each row that holds; `versions` by distribution (None: not installed), `settings` by dotted key."""
    return [row.finding(versions, settings) for row in rows if row.holds(versions, settings)]


def known_bad(c: Context) -> Result:
    """The rows of the table that this machine, its packages and this configuration meet."""
    rows = table()
    versions = {name: version_of(name) for name in {"torch", *(n for row in rows for n in row.packages)}}
    findings = matching(versions, gathered(c.cfg, os.environ, versions["torch"]), rows)
    return found(f"{len(findings)} of {len(rows)} known combinations", *findings)


def version_of(distribution: str) -> str | None:
    """Its installed version, None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def gathered(cfg: Config, environment: Mapping[str, str], torch: str | None) -> dict[str, Any]:
    """Every setting that rows may name, by dotted key; `torch` is its installed version.

    Raises `UserError` where a DeepSpeed configuration is named and cannot be read.
    """
    settings = flat(asdict(cfg))
    settings |= {f"env.{name}": environment[name].lower() for name in VARIABLES if name in environment}
    config = config_json(cfg.model)
    settings |= {f"model.json.{name}": config[name] for name in MODEL_FIELDS if name in config}
    cards = [] if environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1") else gpu_names()
    settings["machine.nvidia"] = bool(cards)
    settings["machine.hopper"] = any(set(HOPPER) & set(card.split()) for card in cards)
    settings["torch.cuda"] = torch is not None and not torch.partition("+")[2].startswith("cpu")
    engine = deepspeed_settings(cfg, environment)
    if engine is not None:
        settings |= {f"deepspeed.{key}": value for key, value in flat(engine).items()}
        settings["deepspeed.launched"] = True
    return settings


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{dotted key: value} of the leaves of nested dicts."""
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return found


def gpu_names(folder: Path = GPUS) -> list[str]:
    """Names of the NVIDIA cards that the driver lists, such as "NVIDIA H100 80GB HBM3"; [] without a driver."""
    lines = [line for file in folder.glob("*/information") for line in file.read_text(errors="replace").splitlines()]
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]


def deepspeed_settings(cfg: Config, environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The DeepSpeed configuration of the run: that of `trainer.deepspeed`, or what accelerate makes of its environment;
    None without DeepSpeed. Raises `UserError` where the file cannot be read."""
    given = cfg.trainer.get("deepspeed")
    if isinstance(given, dict):
        return given
    if given is None and splitting_launcher() != "DeepSpeed":
        return None
    name = "trainer.deepspeed" if given is not None else "ACCELERATE_DEEPSPEED_CONFIG_FILE"
    where = str(given) if given is not None else environment.get(name, "none")
    if where == "none":
        return {
            "zero_optimization": {"stage": int(environment.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))},
            "gradient_clipping": environment.get("ACCELERATE_GRADIENT_CLIPPING", "auto"),
        }
    return _read(name, where)


def _read(name: str, where: str) -> dict[str, Any]:
    """JSON of a file, or of the base64 text that accelerate also takes."""
    try:
        path = Path(where).expanduser()
        text = path.read_text(encoding="utf-8") if path.exists() else base64.b64decode(where, validate=True).decode()
        content = json.loads(text)
    except (OSError, UnicodeDecodeError, binascii.Error, json.JSONDecodeError) as error:
        raise UserError(f"{name}={where}: no DeepSpeed JSON can be read there ({error}).") from error
    if not isinstance(content, dict):
        raise UserError(f"{name}={where}: a DeepSpeed JSON is an object, this holds {type(content).__name__}.")
    return content
