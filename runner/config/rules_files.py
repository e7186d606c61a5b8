"""Rules that look at the disk or at installed packages. Nothing is imported to find out."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from runner.config.nearby import looks_local, near
from runner.config.schema import Config


def _absent(path: str | None) -> bool:
    return path is not None and looks_local(path) and not Path(path).expanduser().exists()


def installed(package: str) -> bool:
    """Whether a package could be imported."""
    return importlib.util.find_spec(package) is not None


def model_path(c: Config) -> str | None:
    """A local model that is not there."""
    if _absent(c.model.path):
        return (
            f"model.path={c.model.path}: there is no such folder{near(Path(c.model.path))}. Give a local folder or a "
            "hub id such as Qwen/Qwen2.5-0.5B"
        )
    return None


def adapter_path(c: Config) -> str | None:
    """An adapter that is not there."""
    if c.lora.method == "lora" and _absent(c.lora.adapter):
        return f"lora.adapter={c.lora.adapter}: there is no such folder{near(Path(str(c.lora.adapter)))}"
    return None


def template_path(c: Config) -> str | None:
    """A template file that is not there, or a name that is none."""
    name = c.model.template
    if name in ("auto", "qwen", "chatml"):
        return None
    if not name.endswith((".jinja", ".jinja2", ".j2")):
        return f"model.template={name} is not known; it takes auto, qwen, chatml or the path of a .jinja file"
    return None if Path(name).expanduser().is_file() else f"model.template={name}: there is no such file"


def source_paths(c: Config) -> str | None:
    """Files of rows that are not there."""
    absent = [
        f"dataset.sources.{n}.path={s.path}: there is no such file or folder{near(Path(s.path))}"
        for n, s in c.dataset.sources.items()
        if _absent(s.path)
    ]
    return "; ".join(absent) or None


def dataset_info(c: Config) -> str | None:
    """dataset=llamafactory without its index."""
    folder = c.dataset.dir
    if folder is None or c.dataset.names is None or (Path(folder).expanduser() / "dataset_info.json").is_file():
        return None
    return f"dataset.dir={folder} holds no dataset_info.json; give the data folder of LLaMA-Factory"


def resume_path(c: Config) -> str | None:
    """A run to resume that is not there."""
    where = c.checkpoint.resume
    if where is None or where == "auto" or Path(where).expanduser().exists():
        return None
    return f"checkpoint.resume={where}: there is no such folder; it takes auto, a run folder or one of its checkpoints"


def tracker(c: Config) -> str | None:
    """A tracker that is not installed."""
    name = c.tracking.report_to
    found = name == "none" or installed(name) or (name == "tensorboard" and installed("tensorboardX"))
    return None if found else f"tracking={name} needs its package: pip install {name}"


def quantizer(c: Config) -> str | None:
    """bitsandbytes that is not installed."""
    if c.model.quantization and not installed("bitsandbytes"):
        return f"model.quantization={c.model.quantization} needs a GPU and bitsandbytes: pip install bitsandbytes"
    return None


def gguf(c: Config) -> str | None:
    """gguf that is not installed."""
    if c.model.gguf_file and not installed("gguf"):
        return "model.gguf_file needs the gguf package: pip install gguf"
    return None


def stable_adamw(c: Config) -> str | None:
    """StableAdamW comes from torch-optimi, as transformers takes it."""
    if c.optim.name == "stable_adamw" and not installed("optimi"):
        return "optim=stable_adamw needs pip install torch-optimi"
    return None


def output_folder(c: Config) -> str | None:
    """A run folder that cannot be made."""
    import os

    place = Path(c.output_dir).expanduser().absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir():
        return f"output_dir={c.output_dir}: {place} is a file; choose another output_dir"
    return (
        None
        if os.access(place, os.W_OK)
        else f"output_dir={c.output_dir}: {place} cannot be written to; choose another output_dir"
    )


FILE_RULES: tuple[tuple[str, tuple[str, ...], Callable[[Config], str | None]], ...] = (
    ("model.path_missing", ("model.path",), model_path),
    ("model.template", ("model.template",), template_path),
    ("lora.adapter_missing", ("lora.adapter",), adapter_path),
    ("dataset.path_missing", ("dataset.path", "dataset.sources"), source_paths),
    ("dataset.no_dataset_info", ("dataset.dir",), dataset_info),
    ("checkpoint.resume_missing", ("checkpoint.resume",), resume_path),
    ("tracking.not_installed", ("tracking.report_to",), tracker),
    ("model.quantizer_missing", ("model.quantization",), quantizer),
    ("model.gguf_missing", ("model.gguf_file",), gguf),
    ("optim.not_installed", ("optim.name",), stable_adamw),
    ("config.output_dir", ("output_dir",), output_folder),
)
"""(id, keys, check) of each rule; runner.config.rules takes them into its table."""
