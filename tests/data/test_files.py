from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runner.data.files import read_file
from runner.errors import DataError

ROWS = [{"text": "好", "label": 1}, {"text": None, "label": "x"}]


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def fails(path: Path, *parts: str) -> None:
    with pytest.raises(DataError) as error:
        read_file(path)
    for part in (path.name, *parts):
        assert part in str(error.value)


LINES = "\n".join(json.dumps(r, ensure_ascii=False) for r in ROWS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(ROWS)),
        ("a.json", json.dumps(ROWS, indent=2)),
        ("a.jsonl", LINES),
        ("lines_named.json", LINES),
        ("array_named.jsonl", json.dumps(ROWS, indent=1)),
        ("array_on_one_line.jsonl", json.dumps(ROWS)),
        ("blank.jsonl", "\n\n" + LINES.replace("\n", "\n\n  \n") + "\n\n"),
        ("crlf.jsonl", LINES.replace("\n", "\r\n")),
        ("bom.json", b"\xef\xbb\xbf" + LINES.encode()),
    ],
)
def test_json_in_every_disguise(tmp_path, name, content):
    assert read_file(write(tmp_path, name, content)) == ROWS


def test_line_separator_inside_a_string_is_no_line_end(tmp_path):
    assert read_file(write(tmp_path, "a.jsonl", '{"a": "x\u2028y"}\n{"a": "\x85"}')) == [
        {"a": "x\u2028y"},
        {"a": "\x85"},
    ]


def test_one_object_is_one_row(tmp_path):
    assert read_file(write(tmp_path, "one.jsonl", '{"messages": [{"role": "user"}]}')) == [
        {"messages": [{"role": "user"}]}
    ]
    assert read_file(write(tmp_path, "one.json", '{"text": "a"}')) == [{"text": "a"}]


def test_malformed_json_names_line_and_column(tmp_path):
    fails(write(tmp_path, "a.jsonl", '{"a": 1}\n\n{"a": }\n'), "line 3, column 7")
    fails(write(tmp_path, "b.jsonl", '{"a": 1\n{"a": 2}\n'), "line 1")
    fails(write(tmp_path, "c.json", '[\n {"a": 1},\n {"a" 2}\n]'), "line 3, column 7")
    fails(write(tmp_path, "cut.json", '[{"a": 1},'), "line 1")


def test_top_level_object_says_where_the_rows_are(tmp_path):
    fails(write(tmp_path, "a.json", '{"version": 1, "data": [{"a": 1}]}'), "not a list", "'data'", "jq '.data'")
    fails(write(tmp_path, "b.json", '{\n "a": 1\n}'), "one object (keys: a)")
    fails(write(tmp_path, "c.json", '"text"'), "str")


@pytest.mark.parametrize("content", ["", "  \n ", "[]", b"\xef\xbb\xbf"])
def test_empty(tmp_path, content):
    fails(write(tmp_path, "a.json", content), "empty")


def test_not_utf8_names_offset_and_encoding(tmp_path):
    path = write(tmp_path, "gbk.csv", b"text,label\n" + "很好,积极\n".encode("gb18030"))
    fails(path, "line 2", "offset 11", "GB18030", "iconv")
    fails(write(tmp_path, "u16.json", "[1]".encode("utf-16")), "UTF-16")


def test_unreadable_file(tmp_path):
    fails(tmp_path / "none.json", "No such file")


def test_csv(tmp_path):
    path = write(tmp_path, "a.csv", '\ufefftext,label\n"a, ""b""\nc",1\nd,\n')
    assert read_file(path) == [{"text": 'a, "b"\nc', "label": "1"}, {"text": "d", "label": ""}]
    assert read_file(write(tmp_path, "a.tsv", "text\tlabel\nx,y\tz\n")) == [{"text": "x,y", "label": "z"}]
    assert len(read_file(write(tmp_path, "long.csv", "text,label\n" + "x" * 200_000 + ",1\n"))[0]["text"]) == 200_000


def test_csv_mistakes(tmp_path):
    fails(write(tmp_path, "a.csv", "text,label\na,b\nx,y,z\n"), "line 3", "more fields")
    fails(write(tmp_path, "b.csv", "a,a\n1,2\n"), "'a' is there more than once")
    fails(write(tmp_path, "c.csv", 'a,b\n"x" y,2\n'), "line 2")
    fails(write(tmp_path, "d.csv", "a,b\n"), "empty")


def test_parquet(tmp_path):
    pq.write_table(pa.table({"text": ["a", None], "n": [1, 2]}), tmp_path / "a.parquet")
    assert read_file(tmp_path / "a.parquet") == [{"text": "a", "n": 1}, {"text": None, "n": 2}]
    fails(write(tmp_path, "bad.parquet", b"PAR1 nothing"), "not a readable parquet file")
    fails(write(tmp_path, "none.parquet", b""), "empty")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda v: st.lists(v, max_size=3),
    max_leaves=5,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=8), VALUES, max_size=4), min_size=1, max_size=6)


@given(OBJECTS, st.booleans(), st.sampled_from(["r.json", "r.jsonl"]), st.booleans())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rows_survive(tmp_path, rows, as_lines, name, ascii_only):
    if as_lines:
        if len(rows) == 1 and name == "r.json":
            return  # ambiguous with a top-level object, tested above
        text = "\n".join(json.dumps(r, ensure_ascii=ascii_only) for r in rows)
    else:
        text = json.dumps(rows, ensure_ascii=ascii_only)
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    assert read_file(path) == rows


@given(st.binary(max_size=60), st.sampled_from(["x.json", "x.jsonl", "x.csv", "x.parquet"]))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_rows_or_a_data_error(tmp_path, content, name):
    path = tmp_path / name
    path.write_bytes(content)
    try:
        assert read_file(path)
    except DataError as error:
        assert name in str(error)
