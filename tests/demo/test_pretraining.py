"""The pretraining script gives the same weights twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_two_short_runs_give_identical_weights(tmp_path: Path, data_dir: Path) -> None:
    """In processes of their own: determinism and the thread count are settings of a whole process."""
    script = data_dir / "scripts" / "pretrain_qwen2_tiny.py"
    for name in ("one", "two"):
        command = [sys.executable, str(script), "--steps", "4", "--documents", "1500", "--out", str(tmp_path / name)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        assert "validation loss" in done.stdout
    for file in sorted(path.name for path in (tmp_path / "one").iterdir() if path.name != "README.md"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
