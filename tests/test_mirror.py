"""A hub name through `HF_ENDPOINT`: a mirror of one model on this machine, asked by the real client."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.runfolder import read_json

ROOT = Path(__file__).resolve().parents[1]
COMMIT = "0" * 40
NAME = "someone/micro"


class Mirror(http.server.BaseHTTPRequestHandler):
    """Answers what huggingface_hub asks about one repository: its file list, and each file."""

    folder: Path
    asked: list[str]

    def __init__(self, folder: Path, asked: list[str], *args: object):
        self.folder, self.asked = folder, asked
        super().__init__(*args)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, body: bool) -> None:
        path = self.path.partition("?")[0]
        self.asked.append(path)
        resolve = f"/{NAME}/resolve/"
        if path.startswith(resolve):
            file = self.folder / path.removeprefix(resolve).partition("/")[2]
            if file.is_file():
                return self.send(200, file.read_bytes(), body)
        elif path.startswith(f"/api/models/{NAME}"):
            names = sorted(p.name for p in self.folder.iterdir())
            if "/tree/" in path:
                listed: object = [{"type": "file", "path": n, "size": 1, "oid": "0"} for n in names]
            else:
                listed = {"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": n} for n in names]}
            return self.send(200, json.dumps(listed).encode(), body)
        return self.send(404, b"", body, {"X-Error-Code": "EntryNotFound"})

    def send(self, status: int, content: bytes, body: bool, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        headers = {"Content-Length": str(len(content)), "ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
        for key, value in (headers | {"X-Repo-Commit": COMMIT} | (more or {})).items():
            self.send_header(key, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Silence."""


@pytest.fixture
def mirror(micro_model: Path) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Mirror, micro_model, asked))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", asked
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_a_hub_name_loads_through_a_mirror_and_then_offline(tmp_path: Path, mirror: tuple[str, list[str]]) -> None:
    address, asked = mirror
    variables = {k: v for k, v in os.environ.items() if k not in ("HF_HUB_OFFLINE", "HF_TOKEN")}
    variables |= {
        "PYTHONPATH": str(ROOT), "HF_ENDPOINT": address, "HF_HOME": str(tmp_path / "hub"),
        "RUNNER_CACHE": str(tmp_path / "cache"), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
    }  # fmt: skip

    def train(*more: str) -> None:
        command = [
            sys.executable, "-m", "runner", "model=path", f"model.path={NAME}", "schedule.max_steps=2",
            "dataset.max_samples=20", "dataset.preview=0", *more,
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr

    train(f"output_dir={tmp_path / 'online'}")
    assert f"/{NAME}/resolve/main/model.safetensors" in asked or any("model.safetensors" in path for path in asked)
    online = read_json(tmp_path / "online" / "run.json")
    assert online is not None and online["state"] == "finished"

    asked.clear()
    train(f"output_dir={tmp_path / 'offline'}", "hub=offline")
    assert asked == [], "hub=offline asks nobody"
