"""The pages say what is true: tests they name exist, commands they print compose, links lead somewhere."""

from __future__ import annotations

import ast
import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from runner import __main__ as door
from runner.causes import table, thresholds
from runner.config.compose import Session
from runner.config.help import NOT_YET, VERBS, options
from runner.config.names import known_keys
from runner.config.schema import Config, Probes
from runner.config.sweeps import check_sweep
from runner.diagnosis.verdict import Finding
from runner.errors import ConfigError
from runner.preflight.finding import Finding as PreflightFinding
from runner.preflight.flow import Preflight
from runner.preflight.table import CHECKS
from runner.run import run
from runner.runfolder import read_json, read_rows, read_telemetry

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "README_zh.md", *sorted((ROOT / "docs").glob("*.md"))]
READMES = PAGES[:2]
NAMES = [page.name for page in READMES]
PLACEHOLDERS = re.compile(r"/my/|\.\.\.|\b(FOLDER|OWNER|NAME|FILE|MODEL|GROUP|RUN|KEY|VALUE)\b")


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, kind: str) -> list[str]:
    """Contents of the fenced code blocks of a kind."""
    return re.findall(rf"^```{kind}\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    """Every command line of the bash and console blocks, in order, without its comment."""
    found = []
    for block in re.findall(r"^```(?:bash|console)\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line.startswith(("./launch.sh", "python -m runner", "NPROC=", ".ci/run", "$ python -m runner")):
                found.append(shlex.split(line.removeprefix("$ "), comments=True))
    return found


def runner_lines(page: Path, kind: str) -> list[list[str]]:
    """Arguments of the `python -m runner` lines of the blocks of a kind; those with placeholders left out."""
    start = "python -m runner"
    lines = [line for block in blocks(page, kind) for line in block.splitlines() if line.startswith(start)]
    return [shlex.split(line.removeprefix(start), comments=True) for line in lines if not PLACEHOLDERS.search(line)]


def shown_commands(page: Path) -> list[list[str]]:
    """Arguments of the `$ python -m runner` lines of console blocks, but of those that show an error."""
    start = "$ python -m runner"
    shown = [block for block in blocks(page, "console") if "\nerror: " not in block]
    lines = [line for block in shown for line in block.splitlines() if line.startswith(start)]
    return [shlex.split(line.removeprefix(start)) for line in lines]


def tables(page: Path) -> list[list[list[str]]]:
    """Every table of a page: its rows below the header, as cells."""
    found = re.findall(r"^\|.*\n\|---.*\n((?:\|.*\n)+)", text(page), re.MULTILINE)
    return [
        [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in body.splitlines()] for body in found
    ]


def table_of(page: Path, first: str, row: int = 0) -> list[list[str]]:
    """The one table whose first cell holds `first`, or the first cell of its row `row`."""
    (found,) = [rows for rows in tables(page) if len(rows) > row and f"`{first}`" in rows[row][0]]
    return found


def named(cells: list[str]) -> set[str]:
    """Words in backquotes, dotted ones included."""
    return {word for cell in cells for word in re.findall(r"`([\w.]+)`", cell)}


@pytest.fixture
def own_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with the YAML that the README shows in its `./conf`."""
    for block in blocks(READMES[0], "yaml"):
        call = re.search(r"^# (?:python -m runner \+)?(\w+)=(\w+)", block, re.MULTILINE)
        assert call, block
        file = tmp_path / "conf" / call[1] / f"{call[2]}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@cache
def functions(file: Path) -> frozenset[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_test_a_page_names_exists(page: Path) -> None:
    tests = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text(page))
    absent = [f"{file}::{name}" for file, name in tests if name not in functions(ROOT / file)]
    assert not absent
    # A reference in another form would escape this check.
    assert len(tests) == len(re.findall(r"\.py::\w", text(page)))
    assert tests or page.name != "features.md"


def test_every_feature_has_a_test_or_says_what_is_missing() -> None:
    rows = [line for line in text(ROOT / "docs" / "features.md").splitlines() if line.startswith("|")]
    rows = [row for row in rows if not row.startswith(("| feature", "|---"))]
    assert len(rows) > 100
    for row in rows:
        cells = re.split(r"(?<!\\)\|", row)[1:-1]
        assert len(cells) == 3, row
        assert re.search(r"::test_|not tested|not yet|no test|see \*", cells[2]), row


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text(page))
    assert not [link for link in links if not (page.parent / link).exists()]


def test_every_command_of_the_readme_composes(
    own_conf: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The other language has the same ones.
    lines = [
        *runner_lines(READMES[0], "bash"),
        *(line for line in shown_commands(READMES[0]) if line[:1] not in (["replay"], ["diagnose"])),
    ]
    assert len(lines) > 12
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    session = Session()
    for line in lines:
        verb = line[0] if line and line[0].isalpha() else "train"
        assert verb in VERBS, line
        rest = line[1:] if line and line[0] == verb else line
        if "--help" in rest:
            assert door.main(line) == 0, line
            continue
        overrides = [a for a in rest if "=" in a]
        if "-m" in rest:
            assert check_sweep(session, overrides).trials, line
        else:
            session.load(overrides)
    capsys.readouterr()


@pytest.mark.parametrize("page", READMES, ids=NAMES)
def test_the_errors_shown_are_those_that_come(page: Path) -> None:
    shown = [block for block in blocks(page, "console") if "\nerror: " in block]
    assert len(shown) == 2
    for block in shown:
        command, _, said = block.partition("\n")
        with pytest.raises(ConfigError) as error:
            Session().load(shlex.split(command.removeprefix("$ python -m runner ")))
        assert said.strip() == f"error: {error.value}"


@pytest.mark.parametrize("page", READMES, ids=NAMES)
def test_the_diagnosis_shown_is_the_one_that_comes(
    page: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = [block for block in blocks(page, "console") if block.startswith("$ python -m runner diagnose ")]
    assert shown
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("LC_ALL", "C")
    for block in shown:
        command, _, said = block.partition("\n")
        assert door.main(shlex.split(command.removeprefix("$ python -m runner "))) == 0
        assert capsys.readouterr().out == said


def test_the_page_of_the_diagnosis_names_every_number_and_what_it_quotes() -> None:
    page = text(ROOT / "docs" / "diagnosis.md")
    numbers = named([row[0] for row in table_of(ROOT / "docs" / "diagnosis.md", "non_finite_losses")])
    code = "".join(text(file) for file in sorted((ROOT / "runner" / "diagnosis").glob("*.py")))
    updates = "".join(re.findall(r"signs\.numbers \|= \{[^}]*\}", code))
    set_there = set(re.findall(r'"(\w+)":', updates)) | set(re.findall(r'signs\.numbers\["(\w+)"\] =', code))
    assert len(set_there) > 40
    assert {name for name in numbers if not name.startswith("period_")} == set_there
    for quoted in blocks(ROOT / "docs" / "diagnosis.md", "python"):
        for line in quoted.splitlines():
            name, cause, value = re.fullmatch(r'(\w+)\["([\w.]+)"\] = ([^#]+?)( *#.*)?', line).groups()[:3]  # type: ignore[union-attr]
            assert getattr(table, name)[cause] == ast.literal_eval(value), line
    assert f"fewer than {thresholds.LEAST_POINTS} points" in page


@pytest.mark.parametrize("page", READMES, ids=NAMES)
def test_the_table_of_groups_is_complete(page: Path) -> None:
    groups_told = {row[0].strip("`"): row for row in table_of(page, "task")}
    groups = [name for name in known_keys() if "." not in name and (ROOT / "conf" / name).is_dir()]
    assert list(groups_told) == groups and len(groups) == 14
    for group, row in groups_told.items():
        assert sorted(re.findall(r"`(\w+)`", row[2])) == options(group), f"{page.name}: the options of {group} changed"
        unknown = [key for key in re.findall(r"`([\w.]+)`", row[3]) if f"{group}.{key}" not in known_keys()]
        assert not unknown, group


@pytest.mark.parametrize("page", READMES, ids=NAMES)
def test_policies_faults_and_modes_are_all_there(page: Path) -> None:
    assert sorted(named([row[0] for row in table_of(page, "observe")])) == options("stability")
    assert sorted(named([row[0] for row in table_of(page, "nan_loss")])) == options("fault")
    assert sorted(named([row[0] for row in table_of(page, "sampled")])) == sorted(
        get_args(known_keys()["stability.base_loss"].type)
    )


def test_the_page_of_fields_names_every_field_and_no_other(make_config: Callable[..., Any]) -> None:
    """A guarded run with a fault in it, statistics and probes at every step, against docs/telemetry.md."""
    page = ROOT / "docs" / "telemetry.md"
    cfg = Session().load(["stability=guarded", "stability.base_loss=all", "+fault=nan_weight"]).config
    cfg.stability.probes = Probes(1, 1, 1, 2, 5)
    cfg.stability.module_norms_every = 1
    cfg = make_config(schedule__max_steps=12, stability=cfg.stability, planted=cfg.planted)
    folder = run(cfg).folder

    rows = read_telemetry(folder)
    seen = {key for row in rows for key in row}
    fields = named([row[0] for row in [*table_of(page, "step"), *table_of(page, "row_ids")]])
    assert fields == seen | {"spike"}, "a run without a spike"
    assert {key for key in seen if all(key in row for row in rows)} >= named([row[0] for row in table_of(page, "step")])
    assert set(rows[0]["noise_scale"]) <= named([row[2] for row in table_of(page, "row_ids")])

    probes = table_of(page, "replay")
    for line in read_rows(folder / "probes.jsonl"):
        first = next(i for i, row in enumerate(probes) if row[0] == f"`{line['probe']}`")
        last = next((i for i in range(first + 1, len(probes)) if probes[i][0]), len(probes))
        assert set(line) - {"step", "probe"} == named([row[1] for row in probes[first:last]]), line["probe"]

    base = read_json(folder / "base_loss.json")
    assert base is not None
    fields = {word.removeprefix("noise.") for word in named([row[0] for row in table_of(page, "schema")])}
    assert fields == {*base, *base["noise"]} - {"noise"}

    facts = read_json(folder / "incident-5" / "incident.json")
    assert facts is not None
    fields = named([row[0] for row in table_of(page, "reason")])
    assert {key for key in facts if key not in seen} == fields - {"incident"} | {"schema"}
    assert set(facts["rows"][0]) <= named([row[1] for row in table_of(page, "reason")])

    summary = read_json(folder / "summary.json")
    assert summary is not None
    whole = table_of(page, "seconds")
    assert set(summary) - {"schema"} == named([row[0] for row in whole]) - {"classification", "best"}
    told = {row[0]: named(row[1:]) for row in whole}
    for key in ("train_loss", "grad_norm", "counts", "marks", "curve"):
        assert set(summary[key]) <= told[f"`{key}`"], key

    verdict = read_json(folder / "verdict.json")
    assert verdict is not None
    whole = table_of(page, "stability")
    assert set(verdict) - {"schema"} == named([row[0] for row in whole])
    assert set(verdict["source"]) <= next(named(row[1:]) for row in whole if row[0] == "`source`")
    fields = {field.name for field in dataclasses.fields(Finding)} - {"changes"}  # which is part of the remedy
    assert fields == named([row[0] for row in table_of(page, "would_change", 4)])


@pytest.mark.parametrize("page", READMES, ids=NAMES)
def test_the_two_commands_come_first(page: Path) -> None:
    head = commands(page)[:2]
    assert head == [["./launch.sh"], ["./launch.sh", "test"]]
    assert text(page).index("./launch.sh test") < 400


def test_the_page_of_preflight_lists_every_check_and_every_field() -> None:
    page = text(ROOT / "docs" / "preflight.md")
    for number, check in enumerate(CHECKS, 1):
        level = "deep" if check.deep else "quick"
        row = next(line for line in page.splitlines() if line.startswith(f"| {number} | `{check.id}` |"))
        assert f"| {check.title} |" in row and f"| {level} | {', '.join(check.codes)} |" in row
    pre = Preflight(Config(), "quick", Path(), checks=())
    entry = PreflightFinding("weights.damaged", "error", "").as_json(False)
    for field in [*pre.as_json(), *entry]:
        assert f"`{field}`" in page, field


def test_verbs_that_are_not_there_are_named_as_such() -> None:
    page = text(READMES[0])
    assert all(f"`{verb}`" in page for verb in NOT_YET)


def test_both_languages_show_the_same() -> None:
    english, chinese = READMES
    shown = [[[w for w in line if w not in ("--lang", "zh")] for line in commands(page)] for page in READMES]
    assert shown[0] == shown[1]
    for one, other in zip(blocks(english, "yaml"), blocks(chinese, "yaml"), strict=True):
        assert yaml.safe_load(one) == yaml.safe_load(other)
    headings = [len(re.findall(r"^#+ ", text(page), re.MULTILINE)) for page in READMES]
    assert headings[0] == headings[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_page_names_a_place_of_this_machine(page: Path) -> None:
    assert not re.search(r"/(work|home|root|tmp)/", text(page))


NUMBER = re.compile(r"-?\d[\d.,:_]*(e[+-]?\d+)?(?![\w])")


def masked(said: str) -> list[str]:
    """Lines without their numbers, which depend on the machine in their last digits or altogether."""
    return [
        re.sub(r" +", " ", NUMBER.sub("#", re.sub(r"20\d\d-\d\d-\d\d_\d\d-\d\d-\d\d", "FOLDER", x)))
        for x in said.splitlines()
    ]


@pytest.mark.slow
def test_the_incidents_shown_are_those_that_come(tmp_path: Path) -> None:
    """The two console blocks of *When a step breaks*: every line shown is said by the command above it."""
    shown = [block for block in blocks(READMES[0], "console") if "+fault=" in block]
    assert len(shown) == 2
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RUNNER_CACHE": str(tmp_path / "cache"), "COLUMNS": "400"}
    environment.pop("WORLD_SIZE", None)
    for block in shown:
        folder = ""
        for part in block.split("$ python -m runner ")[1:]:
            command, _, expected = part.partition("\n")
            line = [re.sub(r"outputs/.*(?=/incident)", folder, word) for word in shlex.split(command)]
            done = subprocess.run(
                [sys.executable, "-m", "runner", *line], cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            said = masked(done.stdout)
            missing = [x for x in masked(expected) if x.strip() != "..." and x not in said]
            assert not missing, done.stdout + done.stderr
            folder = folder or re.findall(r"outputs/\S+(?=/incident-\d+$)", done.stdout, re.MULTILINE)[0]
