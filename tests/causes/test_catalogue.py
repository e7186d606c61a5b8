"""The catalogue: every code has a cause, every sentence both languages, every line its tool's real words."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from string import Formatter

import pytest

from runner.causes.catalogue import CAUSES, CODES, by_code, cause
from runner.causes.cause import Cause
from runner.causes.dialects import KEYWORD
from runner.config.compose import Session
from runner.config.trainer_fields import trainer_fields

ARGUMENTS = Path(__file__).resolve().parents[3] / "shared" / "reference" / "llamafactory_args.json"
SESSION = Session()
VALUES: dict[str, object] = {
    "learning_rate": 1e-4,
    "learning_rate_tenth": 1e-5,
    "learning_rate_times_ten": 1e-3,
    "lora_learning_rate": 2e-4,
    "warmup_steps": 50,
    "max_steps": 1000,
    "warmup_three_percent": 30,
    "best_step": 400,
    "epochs_best": 1,
    "max_grad_norm": 1.0,
    "median_norm": 0.42,
    "batch": 8,
    "batch_times_four": 32,
    "row": 17,
    "step": 212,
    "logging_steps": 5,
    "precision": "bf16",
}
"""All fields that lines may hold."""

HAN = re.compile(r"[\u4e00-\u9fff]")
FLOURISHES = re.compile(r"\b(may|might|perhaps|possibly|simply|just|very|essentially|not just|rather than)\b", re.I)
every = pytest.mark.parametrize("one", list(CAUSES.values()), ids=list(CAUSES))


def lines(one: Cause, tool: str) -> list[str]:
    return [line.format(**VALUES) for line in one.changes.get(tool, ())]


def test_codes_of_the_reference_all_have_a_cause() -> None:
    assert (CODES[0], CODES[-1], len(CODES)) == ("A1", "G4", 40)
    assert [code for code in CODES if not by_code(code)] == []
    assert {c.code for c in CAUSES.values()} - {None} == set(CODES)
    assert by_code("Z9") == ()


def test_ids() -> None:
    assert all(key == c.id and re.fullmatch(r"[a-z]+\.[a-z0-9_]+", key) for key, c in CAUSES.items())
    from runner.causes import catalogue

    assert sum(len(file.CAUSES) for file in catalogue._FILES) == len(CAUSES)
    assert cause("data.sampling_noise").severity == "note"
    with pytest.raises(KeyError, match="no_such"):
        cause("no_such")


@every
def test_sentences(one: Cause) -> None:
    assert len(one.title.en) <= 90
    for text in (one.title, one.remedy, one.would_change):
        assert text.en and not HAN.search(text.en) and not FLOURISHES.search(text.en)
        assert HAN.search(text.zh) and not re.search(r"[\u4e00-\u9fff][,;:!?]", text.zh)
        assert not {"{", "}"} & set(text.en + text.zh)
    assert one.title.en[-1] != "." and one.title.zh[-1] != "。"
    for text in (one.remedy, one.would_change):
        assert text.en[-1] == "." and text.zh[-1] == "。"


@every
def test_fields(one: Cause) -> None:
    for tool, given in one.changes.items():
        assert tool in ("runner", "transformers", "llamafactory", "ms_swift") and given
        for line in given:
            assert {name for _, name, _, _ in Formatter().parse(line) if name is not None} <= set(VALUES)


@pytest.mark.parametrize("check", sorted({c.check for c in CAUSES.values()}))
def test_check_is_a_command_of_today(check: str) -> None:
    words = shlex.split(check.format(path="outputs/a/b"))
    assert words[:3] == ["python", "-m", "runner"]
    if "=" in words[3] or words[3] == "check":
        SESSION.load([word for word in words[3:] if "=" in word], files=False)
    else:
        assert words[3] in ("diagnose", "report", "replay")


@pytest.mark.slow
@pytest.mark.parametrize("exp", ["qwen14b_lora", "qwen7b_clip"])
def test_runner_lines_compose_together(exp: str) -> None:
    for given in {tuple(lines(c, "runner")) for c in CAUSES.values()} - {()}:
        SESSION.load([f"+exp={exp}", *given], files=False)


@pytest.mark.slow
def test_each_runner_line_composes_alone() -> None:
    """An unknown field takes single lines away; those that remain must still be valid."""
    for line in {line for c in CAUSES.values() for line in lines(c, "runner")}:
        SESSION.load([line], files=False)


@every
def test_transformers_words(one: Cause) -> None:
    known = trainer_fields("sft")
    for line in lines(one, "transformers"):
        compile(f"f({line})" if KEYWORD.match(line) else line, "<line>", "exec")
        if KEYWORD.match(line):
            assert line.split("=")[0] in known, line


@every
def test_llamafactory_words(one: Cause) -> None:
    import yaml

    given = lines(one, "llamafactory")
    parsed = yaml.safe_load("\n".join(given)) or {}
    assert len(parsed) == len(given)
    if not ARGUMENTS.is_file():
        pytest.skip("the list of arguments is not here")
    rooms = json.loads(ARGUMENTS.read_text(encoding="utf-8"))
    known = {name for room in rooms.values() for name in room}
    assert set(parsed) <= known


@every
def test_ms_swift_flags(one: Cause) -> None:
    own = {"modules_to_save", "torch_dtype", "attn_impl", "max_length", "dataset_shuffle", "train_dataloader_shuffle"}
    own |= {"group_by_length", "packing", "split_dataset_ratio"}
    for line in lines(one, "ms_swift"):
        flag, value = shlex.split(line)
        assert flag.startswith("--") and value
        assert flag[2:] in own | set(trainer_fields("classification")), line
