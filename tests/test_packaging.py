"""The wheel: what is in it, and that it runs from an empty folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def call(*command: str, cwd: Path, **environ: str) -> str:
    """Run a command without an error; returns what it printed."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel of this working tree."""
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), ".", cwd=ROOT)
    (path,) = folder.glob("runner-*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """PYTHONPATH of a folder into which the wheel, and nothing else, is installed."""
    target = tmp_path_factory.mktemp("site")
    call(
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)),
        cwd=target,
    )
    return {"PYTHONPATH": str(target), "PYTHONUTF8": "1"}


def test_the_wheel_holds_the_package_its_yaml_and_its_data_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name.removeprefix("runner/_share/") for name in names if name.startswith("runner/_share/")}
    for folder, pattern in (("conf", "**/*.yaml"), ("data", "dataset_info.json"), ("data", "models/**/*.safetensors")):
        files = [path.relative_to(ROOT).as_posix() for path in (ROOT / folder).glob(pattern)]
        assert files, (folder, pattern)
        assert set(files) <= shipped
    assert "runner/__main__.py" in names
    assert not [name for name in names if "__pycache__" in name or name.startswith(("tests/", "conf/", "data/"))]
    assert any(name.endswith("dist-info/licenses/LICENSE") for name in names)
    assert wheel.stat().st_size < 20e6


def test_the_installed_package_finds_its_yaml_from_an_empty_folder(installed, tmp_path):
    shown = call(sys.executable, "-m", "runner", "--cfg", "job", cwd=tmp_path, **installed)
    assert "learning_rate" in shown
    where = "import runner; print(runner.__file__)"
    assert installed["PYTHONPATH"] in call(sys.executable, "-c", where, cwd=tmp_path, **installed)


def test_the_working_folders_yaml_is_found_first(installed, tmp_path):
    (tmp_path / "conf" / "exp").mkdir(parents=True)
    mine = "# @package _global_\nname: mine\nseed: 7\n"
    (tmp_path / "conf" / "exp" / "mine.yaml").write_text(mine, encoding="utf-8")
    (tmp_path / "conf" / "exp" / "quickstart.yaml").write_text(mine.replace("7", "8"), encoding="utf-8")
    for name, seed in (("mine", 7), ("quickstart", 8)):
        shown = call(sys.executable, "-m", "runner", f"+exp={name}", "--cfg", "job", cwd=tmp_path, **installed)
        assert "name: mine" in shown
        assert f"seed: {seed}" in shown


def test_the_installed_package_trains_and_sweeps_from_an_empty_folder(installed, tmp_path):
    short = ("schedule.max_steps=2", "dataset.max_samples=40")
    call(sys.executable, "-m", "runner", *short, cwd=tmp_path, **installed)
    assert [path.name for path in tmp_path.glob("outputs/*/*/model/*.safetensors")]
    said = call(sys.executable, "-m", "runner", "-m", "seed=1,2", *short, cwd=tmp_path, **installed)
    assert "2 of 2 trials finished" in said
