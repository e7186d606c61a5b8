"""launch.sh with stand-ins for Python, pip and nvidia-smi: which commands it would run, and in which order."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PYTHON = r"""#!/bin/bash
# A Python 3.11 that makes environments of itself and writes down what it is asked for.
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ $1 == -m && $2 == venv ]]; then
    printf 'venv\n' >>"$LOG"
    mkdir -p "$3/bin" && cp "$STUB" "$3/bin/python"
elif [[ $1 == -m && $2 == pip && $3 == --version ]]; then
    exit 0
elif [[ $1 == --version ]]; then
    echo "Python 3.11.0"
elif [[ $1 == -c ]]; then
    # Old enough for the version check; torch counts as installed once pip was asked for it.
    [[ $2 != *torch* ]] || grep -q '^pip install.* torch' "$LOG"
else
    shift
    { printf '%s' "$1"; shift; printf ' %s' "$@"; printf '\n'; } >>"$LOG"
    if [[ -n ${SLOW:-} && $* == *" -e "* ]]; then
        trap 'kill $!; exit 1' INT TERM
        sleep "$SLOW" &
        touch "$LOG.slow"
        wait
    fi
    [[ -z ${REFUSE:-} || " $* " != *" $REFUSE "* ]] || exit 1
    exit "${STATUS:-0}"
fi
"""


class Clone:
    """A folder with launch.sh in it and nothing but stand-ins on PATH."""

    def __init__(self, folder: Path):
        self.folder = folder / "my clone"
        self.folder.mkdir()
        for name in ("launch.sh", "pyproject.toml", "constraints.txt"):
            shutil.copy(ROOT / name, self.folder)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in (
            "bash",
            "env",
            "cat",
            "cksum",
            "dirname",
            "getconf",
            "grep",
            "mkdir",
            "rm",
            "sleep",
            "touch",
            "cp",
        ):
            found = shutil.which(name)
            assert found, name
            (self.bin / name).symlink_to(found)
        self.stub = self.program("python3", PYTHON)
        self.log = folder / "log"
        self.log.touch()
        self.environ = {"PATH": str(self.bin), "LOG": str(self.log), "STUB": str(self.stub), "LC_ALL": "C.UTF-8"}

    def program(self, name: str, text: str) -> Path:
        """Put a program on PATH."""
        path = self.bin / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
        return path

    def start(self, *arguments: str, **environ: str) -> subprocess.Popen[str]:
        """Start launch.sh from a folder that is not its own."""
        return subprocess.Popen(
            [str(self.folder / "launch.sh"), *arguments],
            cwd=self.bin.parent,
            env=self.environ | environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __call__(self, *arguments: str, **environ: str) -> tuple[int, list[str], str]:
        """Run launch.sh; returns its status, the commands this call ran, and what it said."""
        self.log.write_text("".join(line for line in self.log.read_text().splitlines(True) if "torch" in line))
        before = len(self.log.read_text(encoding="utf-8").splitlines())
        process = self.start(*arguments, **environ)
        said = process.communicate(timeout=30)[0]
        return process.returncode, self.log.read_text(encoding="utf-8").splitlines()[before:], said


@pytest.fixture
def clone(tmp_path):
    """A fresh clone on a fresh machine without a GPU."""
    return Clone(tmp_path)


def test_the_script_parses_and_is_executable():
    for name in ("launch.sh", ".ci/run"):
        subprocess.run(["bash", "-n", ROOT / name], check=True)
        assert os.access(ROOT / name, os.X_OK), name


def test_the_first_run_installs_a_cpu_torch_then_the_package_and_the_second_only_runs(clone):
    status, commands, said = clone()
    assert status == 0, said
    assert commands == [
        "venv",
        "pip install --quiet torch==2.13.0",
        "pip install --quiet -c .venv/constraints.txt -e .",
        "runner ",
    ]
    constraints = (clone.folder / ".venv" / "constraints.txt").read_text()
    assert "transformers==" in constraints
    assert "\ntorch==" not in constraints
    assert clone()[1] == ["runner "]


def test_a_changed_pyproject_is_installed_again_into_the_same_environment(clone):
    clone()
    with (clone.folder / "pyproject.toml").open("a") as file:
        file.write("# one more dependency\n")
    assert clone()[1] == ["pip install --quiet -c .venv/constraints.txt -e .", "runner "]


def test_with_a_gpu_the_plain_torch_is_installed(clone):
    clone.program("nvidia-smi", "#!/bin/bash\necho 'GPU 0: NVIDIA H200'\n")
    assert clone()[1][1] == "pip install --quiet torch"


def test_a_driver_without_a_gpu_counts_as_none(clone):
    clone.program("nvidia-smi", "#!/bin/bash\necho 'No devices were found'\nexit 6\n")
    assert clone()[1][1] == "pip install --quiet torch==2.13.0"


def test_where_the_tested_releases_are_not_to_be_had_the_newest_are_tried(clone):
    status, commands, said = clone(REFUSE="torch==2.13.0")
    assert commands[1:3] == ["pip install --quiet torch==2.13.0", "pip install --quiet torch"]
    assert status == 0
    assert "newest torch" in said


def test_a_failed_installation_is_said_and_tried_again(clone):
    status, commands, said = clone(REFUSE="install")
    assert status == 1
    assert "the next run tries again" in said
    assert not any(command.startswith("runner") for command in commands)
    status, commands, said = clone()
    assert status == 0, said
    assert "venv" not in commands


def test_arguments_and_status_pass_unharmed(clone):
    clone()
    status, commands, _ = clone("task.labels=[积极,消极]", "+exp=a b", "x='*'", STATUS="3")
    assert status == 3
    assert commands == ["runner task.labels=[积极,消极] +exp=a b x='*'"]


def test_test_installs_the_dev_extra_and_runs_pytest(clone):
    _, commands, _ = clone("test", "-k", "a b")
    assert commands[2:] == ["pip install --quiet -c .venv/constraints.txt -e .[dev]", "pytest -k a b"]
    assert clone("test")[1] == ["pytest "]
    assert clone("seed=1")[1] == ["runner seed=1"]


@pytest.mark.parametrize("name", ["NPROC", "NUM_PROCESSES"])
def test_several_processes_are_launched_by_torchrun(clone, name):
    clone()
    _, commands, _ = clone("seed=1", **{name: "2"})
    assert commands == ["torch.distributed.run --standalone --nproc_per_node 2 -m runner seed=1"]
    assert clone(**{name: "1"})[1] == ["runner "]


def test_nonsense_and_sweeps_on_several_processes_are_refused(clone):
    status, commands, said = clone(NPROC="two")
    assert (status, commands) == (2, [])
    assert "NPROC=two" in said
    assert clone("-m", "seed=1,2", NPROC="2")[0] == 2


def test_without_a_python_the_message_says_what_to_install(clone):
    clone.program("python3", "#!/bin/bash\nexit 1\n")
    status, _, said = clone()
    assert status == 1
    assert "no Python 3.11 or newer" in said


def test_an_environment_that_is_not_ours_is_used_or_left_alone(clone):
    (clone.folder / ".venv").mkdir()
    (clone.folder / ".venv" / "precious").touch()
    status, _, said = clone()
    assert status == 1
    assert "move it away" in said
    assert (clone.folder / ".venv" / "precious").exists()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupted_installation_starts_afresh(clone, signum):
    process = clone.start(SLOW="20")
    end = time.monotonic() + 20
    while not Path(f"{clone.log}.slow").exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    os.killpg(process.pid, signum)
    said = process.communicate(timeout=20)[0]
    assert process.returncode != 0
    assert "trying the newest" not in said
    (clone.folder / ".venv" / "half").touch()
    clone.log.write_text("")
    status, commands, said = clone()
    assert status == 0, said
    assert commands[0] == "venv"
    assert not (clone.folder / ".venv" / "half").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="looks the process up in /proc")
def test_the_script_becomes_the_program_it_starts_so_that_signals_reach_it(clone):
    clone()
    clone.program("python3", PYTHON)
    stub = clone.folder / ".venv" / "bin" / "python"
    stub.write_text(stub.read_text().replace("else\n    shift\n", 'else\n    echo $$ >"$LOG.pid"; exec sleep 20\n', 1))
    process = clone.start()
    end = time.monotonic() + 20
    while not Path(f"{clone.log}.pid").exists() or not Path(f"{clone.log}.pid").read_text():
        assert time.monotonic() < end
        time.sleep(0.02)
    assert int(Path(f"{clone.log}.pid").read_text()) == process.pid
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM
