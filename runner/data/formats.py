"""Recognise the layout of a source's rows, and turn each row into a chat or a labelled text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.data.conversations import TAG_NAMES, Tags, make_tags, parsed, to_chat, to_tools, to_turns
from runner.data.dropped import NO_LABEL
from runner.data.rows import Dropped, Example, Labelled, as_text
from runner.errors import DataError

_ALIASES = {
    "instruction": "prompt", "input": "query", "output": "response", "completion": "response",
    "conversations": "messages",
}  # fmt: skip
_COLUMNS: dict[str, dict[str, str]] = {
    "alpaca": {
        "prompt": "instruction",
        "query": "input",
        "response": "output",
        "system": "system",
        "history": "history",
        "tools": "tools",
    },
    "sharegpt": {"messages": "conversations", "system": "system", "tools": "tools"},
    "messages": {"messages": "messages", "system": "system", "tools": "tools"},
    "prompt_completion": {"prompt": "prompt", "response": "completion", "system": "system", "tools": "tools"},
    "classification": {"text": "text", "label": "label"},
}
_NEEDED = {
    "alpaca": ("prompt", "response"),
    "sharegpt": ("messages",),
    "messages": ("messages",),
    "prompt_completion": ("prompt", "response"),
    "classification": ("text", "label"),
}
_OUT_OF_SCOPE = {
    "chosen": "preference data (DPO)",
    "rejected": "preference data (DPO)",
    "kto_tag": "preference data (KTO)",
    "images": "vision data",
    "videos": "vision data",
    "audios": "audio data",
}


@dataclass(frozen=True)
class Reader:
    """A format with its columns resolved; call it with a row."""

    format: str
    """alpaca, sharegpt, messages, prompt_completion or classification."""

    columns: Mapping[str, str]
    """Our column name -> the name in the data."""

    tags: Tags | None
    """Role and content keys of turn lists."""

    leading_answers: bool
    """Whether the chat template allows a conversation to start with the assistant."""

    def __call__(self, row: Any, notes: list[str]) -> Example:
        """The example in `row`; changes made to it are appended to `notes`. Raises `Dropped` with the reason."""
        if not isinstance(row, Mapping):
            raise Dropped(f"the row is a {type(row).__name__}, not an object")
        return _READERS[self.format](self, row, notes)

    def get(self, row: Mapping[str, Any], column: str) -> Any:
        """The value of our `column` in `row`, None where there is none."""
        return row.get(self.columns.get(column, ""))


def make_reader(
    name: str,
    rows: list[Any],
    form: str,
    columns: Mapping[str, str],
    tags: Mapping[str, str],
    task: str,
    leading_answers: bool = True,
) -> Reader:
    """The reader for source `name`, its format recognised by the columns if `form` is auto.

    Raises DataError if a needed column is missing (the columns there are get listed), if the format does not fit the
    task, and for preference, vision and audio data.
    """
    there = _columns_of(rows)
    renames = _renames(name, columns)
    _refuse_out_of_scope(name, rows, there)
    if form == "auto":
        form = _recognise(name, rows, there, renames, task)
    if (form == "classification") != (task == "classification"):
        need = "text and label" if task == "classification" else "a conversation or an instruction with its answer"
        raise DataError(
            f"source {name!r} is in format {form}, but task={task} needs {need}; its columns: {', '.join(there)}. "
            f"Set task={'classification' if form == 'classification' else 'sft'}, or another dataset."
        )
    known = dict(_COLUMNS[form])
    if form == "sharegpt" and "conversations" not in there and "messages" in there:
        known["messages"] = "messages"
    if form == "messages" and "messages" not in there and "conversations" in there:
        known["messages"] = "conversations"
    if form == "prompt_completion" and "completion" not in there and "response" in there:
        known["response"] = "response"
    resolved = known | {k: v for k, v in renames.items() if k in known}
    missing = [c for c in _NEEDED[form] if resolved[c] not in there]
    if missing:
        wanted = ", ".join(f"{c}: ..." for c in missing)
        raise DataError(
            f"source {name!r}: format {form} needs the column "
            f"{' and '.join(repr(resolved[c]) for c in missing)}; the rows have: "
            f"{', '.join(there) or 'none'}. Name yours with 'dataset.sources.{name}.columns={{{wanted}}}', or "
            "set the right format."
        )
    unknown = [t for t in tags if t not in TAG_NAMES]
    if unknown:
        raise DataError(f"dataset.sources.{name}.tags: {unknown[0]!r} is unknown; known are {', '.join(TAG_NAMES)}.")
    turn_list = make_tags(tags, _first_turn(rows, resolved["messages"])) if "messages" in resolved else None
    return Reader(form, resolved, turn_list, leading_answers)


def _columns_of(rows: list[Any]) -> list[str]:
    return list({str(key): None for row in rows if isinstance(row, Mapping) for key in row})


def _renames(name: str, columns: Mapping[str, str]) -> dict[str, str]:
    allowed = {c for known in _COLUMNS.values() for c in known}
    renames = {_ALIASES.get(k, k): v for k, v in columns.items()}
    unknown = [k for k in renames if k not in allowed]
    if unknown:
        raise DataError(
            f"dataset.sources.{name}.columns: {unknown[0]!r} is unknown; known are {', '.join(sorted(allowed))}."
        )
    return renames


def _refuse_out_of_scope(name: str, rows: list[Any], there: list[str]) -> None:
    for column, what in _OUT_OF_SCOPE.items():
        if column in there and any(isinstance(r, Mapping) and r.get(column) not in (None, "", []) for r in rows):
            raise DataError(
                f"source {name!r} has the column {column!r}: {what}, which this runner does not train on (SFT and "
                "classification of text only). Remove the column to use the rest of the row."
            )


def _recognise(name: str, rows: list[Any], there: list[str], renames: Mapping[str, str], task: str) -> str:
    def has(*columns: str) -> bool:
        return all(c in there for c in columns)

    messages = next((c for c in (renames.get("messages"), "messages", "conversations") if c in there), None)
    if task == "classification" and has(renames.get("text", "text"), renames.get("label", "label")):
        return "classification"
    if messages is not None:
        turn = _first_turn(rows, messages)
        return "messages" if isinstance(turn, Mapping) and "role" in turn and "from" not in turn else "sharegpt"
    if has("instruction", "output") or (has("instruction") and has(renames.get("response", "output"))):
        return "alpaca"
    if has(renames.get("prompt", "prompt")) and (has(renames.get("response", "completion")) or has("response")):
        return "alpaca" if renames.get("query") else "prompt_completion"
    if has(renames.get("text", "text"), renames.get("label", "label")):
        return "classification"
    example = "{text: ..., label: ...}" if task == "classification" else "{prompt: ..., response: ...}"
    raise DataError(
        f"source {name!r}: the format cannot be recognised from the columns: "
        f"{', '.join(there) or 'none (the rows are no objects)'}. "
        "Known are instruction + output (alpaca), conversations (sharegpt), messages, prompt + completion, "
        "text + label. Set "
        f"dataset.sources.{name}.format, and your names with 'dataset.sources.{name}.columns={example}'."
    )


def _first_turn(rows: list[Any], column: str) -> Any:
    for row in rows:
        value = row.get(column) if isinstance(row, Mapping) else None
        try:
            value = parsed(value, column)
        except Dropped:
            continue
        if isinstance(value, list) and value:
            return value[0]
    return None


def _alpaca(reader: Reader, row: Mapping[str, Any], notes: list[str]) -> Example:
    prompt = as_text(reader.get(row, "prompt"), "instruction", notes)
    query = as_text(reader.get(row, "query"), "input", notes)
    answer = as_text(reader.get(row, "response"), "output", notes)
    messages = _system(reader, row, notes)
    history = parsed(reader.get(row, "history"), "history") or []
    if not isinstance(history, list):
        raise Dropped("history is not a list of [prompt, answer] pairs")
    for pair in history:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise Dropped("history is not a list of [prompt, answer] pairs")
        messages.append({"role": "user", "content": as_text(pair[0], "history", notes)})
        messages.append({"role": "assistant", "content": as_text(pair[1], "history", notes)})
    messages.append({"role": "user", "content": "\n".join(part for part in (prompt, query) if part)})
    messages.append({"role": "assistant", "content": answer})
    return to_chat(messages, to_tools(reader.get(row, "tools")), set(), notes)


def _turn_list(reader: Reader, row: Mapping[str, Any], notes: list[str]) -> Example:
    assert reader.tags is not None
    messages, unweighted = to_turns(reader.get(row, "messages"), reader.tags, notes)
    system = _system(reader, row, notes)
    if system and messages[0]["role"] != "system":
        messages, unweighted = system + messages, {i + 1 for i in unweighted}
    return to_chat(messages, to_tools(reader.get(row, "tools")), unweighted, notes, reader.leading_answers)


def _prompt_completion(reader: Reader, row: Mapping[str, Any], notes: list[str]) -> Example:
    system = _system(reader, row, notes)
    prompt = _side(reader.get(row, "prompt"), "user", "prompt", notes)
    completion = _side(reader.get(row, "response"), "assistant", "completion", notes)
    if prompt and prompt[0]["role"] == "system":
        system = []
    messages = system + prompt + completion
    context = {i for i, m in enumerate(system + prompt) if m["role"] == "assistant"}
    return to_chat(messages, to_tools(reader.get(row, "tools")), context, notes, reader.leading_answers)


def _side(value: Any, role: str, what: str, notes: list[str]) -> list[dict[str, Any]]:
    if isinstance(value, list):
        return to_turns(value, make_tags({}, value[0] if value else None), notes)[0]
    return [{"role": role, "content": as_text(value, what, notes)}]


def _system(reader: Reader, row: Mapping[str, Any], notes: list[str]) -> list[dict[str, Any]]:
    text = as_text(reader.get(row, "system"), "system", notes)
    return [{"role": "system", "content": text}] if text.strip() else []


def _classification(reader: Reader, row: Mapping[str, Any], notes: list[str]) -> Example:
    text = as_text(reader.get(row, "text"), "text", notes)
    if not text.strip():
        raise Dropped("empty text")
    label = reader.get(row, "label")
    if isinstance(label, float) and label.is_integer():
        label = int(label)  # a column of integers with one null comes back as floats
    name = as_text(label, "label", []).strip()
    if not name:
        raise Dropped(NO_LABEL)
    return Labelled(text, name)


_READERS: dict[str, Callable[[Reader, Mapping[str, Any], list[str]], Example]] = {
    "alpaca": _alpaca,
    "sharegpt": _turn_list,
    "messages": _turn_list,
    "prompt_completion": _prompt_completion,
    "classification": _classification,
}
