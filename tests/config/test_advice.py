"""Popular advice: every claim has an entry, every entry that can be typed or set is answered by its sentence."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from runner.causes.catalogue import CAUSES
from runner.config.advice import VERDICTS, advice, applying, by_key, by_value, contradictions, value_of
from runner.config.advice_conditions import CONDITIONS
from runner.config.compose import Session
from runner.config.names import is_known
from runner.config.renames import _table, find_rename
from runner.config.schema import Config, Source
from runner.errors import ConfigError

SESSION = Session()
ENTRIES = advice()
TABLE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "popular-advice.md"
HAN = re.compile(r"[\u4e00-\u9fff]")

ROWS: dict[str, tuple[str, ...]] = {
    "`gradient_clipping=True` in TrainingArguments": ("gradient_clipping",),
    "`from transformers import AdamW`": ("adamw_of_transformers",),
    "`lr_warmup=true`, `use_pretrained_model=true`": ("lr_warmup", "use_pretrained_model"),
    "`evaluation_strategy`, `warmup_ratio`, `group_by_length`, `logging_dir`, `max_seq_length`, `tokenizer=`": (
        "evaluation_strategy",
        "warmup_ratio",
        "group_by_length",
        "logging_dir",
        "max_seq_length",
        "tokenizer",
    ),
    "`torch.cuda.amp.GradScaler`": ("grad_scaler",),
    "bf16 weights and `fp16=True` together": ("bf16_and_fp16",),
    "BF16 with GradScaler": ("bf16_with_scaler",),
    '`device_map="auto"` under several processes': ("device_map",),
    '"raise the clip threshold when accumulating"': ("clip_and_accumulation",),
    '"LoRA usually needs no clipping"': ("lora_without_clip",),
    '"most norms above 1 mean the rate is too high"': ("norms_above_one",),
    '"max_grad_norm 0.1 makes training slow"': ("tight_clip",),
    "clip per task: SFT 1.0; long text 0.5 to 1.0; multilingual 1.0 to 1.5": ("clip_by_task",),
    '"lower the learning rate" for an oscillating loss': ("lower_the_rate",),
    '"larger batch, less accumulation" (4 x 2 to 8 x 1)': ("same_global_batch",),
    '"global batch is 4 x 2 = 8"': ("global_batch",),
    '"raise lora_rank to regularise"': ("raise_rank", "alpha_not_twice_r"),
    '"polynomial, power 0.9, cures oscillation"': ("polynomial_power",),
    '"weight decay 0.01 against oscillation"': ("weight_decay",),
    '"the model is too strong for the data"': ("model_too_strong",),
    '"use fp16 to save memory" (already on)': ("fp16_saves_memory",),
    '"evaluating often makes eval fluctuate"': ("frequent_evaluation",),
    '"validation 0.01 is too small"': ("small_validation",),
    "class imbalance causes oscillation in SFT": ("class_imbalance",),
    '"clean the data: duplicates, noise"': ("clean_data",),
    "L1 or L2 regularisation against NaN": ("regularisation_against_nan",),
    '"grad_norm 0 or NaN is exploding or vanishing gradients"': ("grad_norm_zero_or_nan",),
    "warmup_steps 50 with 30 steps in all": ("warmup_beyond_end",),
    "`padding=True` inside `map(batched=True)`, `truncation=True` without a length": (
        "padding_in_map",
        "truncation_without_length",
    ),
    "unseeded `random.shuffle`, unstratified split": ("unseeded_shuffle",),
    "a shell script with a missing `\\` after `--fp16`, the same flag twice": ("shell_flags",),
    '"Qwen2.5 needs a hub login"': ("hub_login",),
    "P-Tuning, prefix tuning": (
        "p_tuning",
        "prefix_tuning",
        "prompt_tuning",
        "dpo",
        "ppo",
        "kto",
        "grpo",
        "preference",
        "reward_models",
        "vision",
        "audio",
    ),
    "BigDL, cpuset settings": ("cpu_sets",),
}
"""First column of the table -> entries."""

NOT_SETTABLE = {"norms_above_one", "model_too_strong", "grad_norm_zero_or_nan", "shell_flags"}

WORDS = {
    "gradient_clipping": ("never existed", "clip=norm clip.max_grad_norm=1.0", "on by default", '"auto"'),
    "adamw_of_transformers": ("removed", "optim=adamw", "fused"),
    "lr_warmup": ("never existed", "schedule.warmup_ratio=0.03"),
    "use_pretrained_model": ("never existed", "model.path", "preflight shows that they were"),
    "evaluation_strategy": ("evaluation.eval_strategy",),
    "warmup_ratio": ("schedule.warmup_ratio",),
    "group_by_length": ("batch.sampler=length_grouped",),
    "logging_dir": ("output_dir",),
    "max_seq_length": ("dataset.max_length",),
    "tokenizer": ("model.path",),
    "grad_scaler": ("moved", "precision=fp16", "unscales before clipping"),
    "bf16_and_fp16": ("precision=bf16", "precision=fp16", "Qwen models were trained in bf16"),
    "bf16_with_scaler": ("range of fp32",),
    "device_map": ("its own shard", "engine=zero3", "fsdp"),
    "clip_and_accumulation": ("once per optimizer step on the averaged gradient", "lowers its norm"),
    "lora_without_clip": ("costs nothing", "how often it acted"),
    "norms_above_one": ("sampling noise", "clip rate", "line probe", "adjusted loss"),
    "tight_clip": ("SGD", "AdamW", "barely changes the step"),
    "clip_by_task": ("starting points", "+sweep=clip"),
    "lower_the_rate": ("at rate 0 oscillates as much", "about 10 times too low"),
    "same_global_batch": ("same global batch", "per device x accumulation x processes"),
    "global_batch": ("batch.global_batch_size", "processes", "printed"),
    "raise_rank": ("adds capacity", "lora_alpha = 2 r"),
    "alpha_not_twice_r": ("keeps the scale",),
    "polynomial_power": ("trend", "no effect on the noise"),
    "weight_decay": ("no effect on the noise",),
    "model_too_strong": ("adjusted loss", "probe set"),
    "fp16_saves_memory": ("same memory", "does not overflow"),
    "frequent_evaluation": ("number of held-out rows", "costs time"),
    "small_validation": ("preflight prints the smallest",),
    "class_imbalance": ("rarely", "different difficulty", "stratified batches"),
    "clean_data": ("exact duplicates", "outliers"),
    "regularisation_against_nan": ("weights, kernel or precision, never",),
    "grad_norm_zero_or_nan": ("rarely", "with the loss"),
    "warmup_beyond_end": ("never leaves warmup",),
    "padding_in_map": ("collator", "dataset.max_length"),
    "truncation_without_length": ("dataset.max_length",),
    "unseeded_shuffle": ("seed", "stratified by label and by source"),
    "shell_flags": ("never passed", "last value wins"),
    "hub_login": ("public", "HF_ENDPOINT", "ModelScope", "hub=offline"),
    "cpu_sets": ("not a cause",),
    **dict.fromkeys(
        ("p_tuning prefix_tuning prompt_tuning dpo ppo kto grpo preference reward_models vision audio").split(),
        ("out of scope",),
    ),
}
"""What the answer must say, `today` included."""

Settings = dict[str, Any]

LENGTH = {"schedule.max_steps": 30}
TWO: Settings = {"dataset.sources": {"a": Source("a.json"), "b": Source("b.json")}}
STEPS: Settings = {"evaluation.eval_strategy": "steps"}

DOES: dict[str, Settings] = {
    "bf16_and_fp16": {"precision.compute": "fp16", "precision.frozen_weights": "bf16"},
    "clip_and_accumulation": {"clip.max_grad_norm": 4.0, "batch.gradient_accumulation_steps": 4},
    "lora_without_clip": {"clip.method": "none"},
    "tight_clip": {"clip.max_grad_norm": 0.1},
    "clip_by_task": {"clip.max_grad_norm": 1.5},
    "lower_the_rate": {"optim.learning_rate": 1e-5},
    "same_global_batch": {"batch.per_device_train_batch_size": 8, "batch.gradient_accumulation_steps": 1},
    "raise_rank": {"lora.r": 64},
    "alpha_not_twice_r": {"lora.lora_alpha": 8.0},
    "polynomial_power": {"schedule.lr_scheduler_type": "polynomial", "schedule.power": 0.9},
    "weight_decay": {"optim.weight_decay": 0.01},
    "fp16_saves_memory": {"precision.compute": "fp16"},
    "frequent_evaluation": {**STEPS, "evaluation.eval_steps": 100},
    "small_validation": {"dataset.validation.fraction": 0.01},
    "class_imbalance": TWO,
    "clean_data": {"dataset.dedup": "off"},
    "warmup_beyond_end": {"schedule.warmup_steps": 50, **LENGTH},
    "vision": {"model.path": "Qwen/Qwen2-VL-7B-Instruct"},
    "audio": {"model.path": "/models/Qwen2-Audio-7B/"},
}
"""Entry with a condition -> settings that do it."""

DOES_NOT: list[tuple[str, Settings]] = [
    ("bf16_and_fp16", {"precision.compute": "fp16"}),
    ("bf16_and_fp16", {"precision.compute": "bf16", "precision.frozen_weights": "bf16"}),
    ("clip_and_accumulation", {"clip.max_grad_norm": 4.0, "batch.gradient_accumulation_steps": 1}),
    ("clip_and_accumulation", {"clip.max_grad_norm": 4.0, "batch.global_batch_size": 4}),
    ("clip_and_accumulation", {"clip.method": "value", "clip.max_grad_norm": 4.0}),
    ("lora_without_clip", {"clip.method": "none", "lora.method": "none"}),
    ("tight_clip", {"clip.method": "value", "clip.max_grad_norm": 0.1}),
    ("tight_clip", {"clip.max_grad_norm": 0.5}),
    ("clip_by_task", {"clip.max_grad_norm": 4.0}),
    ("clip_by_task", {"clip.method": "none", "clip.max_grad_norm": 1.5}),
    ("lower_the_rate", {"optim.learning_rate": 1e-5, "lora.method": "none"}),
    ("lower_the_rate", {"optim.learning_rate": 1e-4}),
    ("same_global_batch", {"batch.per_device_train_batch_size": 8}),
    ("same_global_batch", {**DOES["same_global_batch"], "batch.global_batch_size": 32}),
    ("raise_rank", {"lora.r": 63}),
    ("raise_rank", {"lora.r": 64, "lora.method": "none"}),
    ("raise_rank", {"lora.r": 64, "lora.adapter": "somebody/adapter"}),
    ("alpha_not_twice_r", {"lora.r": 16, "lora.lora_alpha": 32.0}),
    ("alpha_not_twice_r", {"lora.use_rslora": True, "lora.lora_alpha": 8.0}),
    ("polynomial_power", {"schedule.lr_scheduler_type": "polynomial"}),
    ("frequent_evaluation", {**STEPS, "evaluation.eval_steps": 500}),
    ("frequent_evaluation", {**STEPS, "evaluation.eval_steps": 2, **LENGTH}),
    ("frequent_evaluation", {"evaluation.eval_steps": 10}),
    ("small_validation", {"dataset.validation.fraction": 0.05}),
    ("class_imbalance", {**TWO, "batch.sampler": "stratified"}),
    ("class_imbalance", {**TWO, "dataset.mix": "interleave"}),
    ("class_imbalance", {**TWO, "task.name": "classification"}),
    ("warmup_beyond_end", {"schedule.warmup_steps": 29, **LENGTH}),
    ("warmup_beyond_end", {"schedule.warmup_steps": 50}),
    ("vision", {"model.path": "Qwen/Qwen2.5-7B"}),
    ("vision", {"model.path": "/my-vl-models/Qwen2-7B"}),
    ("vision", {"model.path": "vlad/novline"}),
    ("audio", {"model.path": "me/audiobooks-qwen"}),
]
"""Settings next to those of an entry that its condition leaves alone."""


def config(settings: Settings) -> Config:
    made = Config()
    for key, value in settings.items():
        group, _, leaf = key.rpartition(".")
        assert hasattr(value_of(made, group), leaf)
        setattr(value_of(made, group), leaf, value)
    return made


def written(override: str) -> Settings:
    """The setting that an override makes."""
    key, _, value = override.partition("=")
    discriminator = {"clip": "method", "precision": "compute"}
    return {f"{key}.{discriminator[key]}" if key in discriminator else key: yaml.safe_load(value)}


def problems(*lines: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        SESSION.load(list(lines))
    return error.value.problems


def test_every_row_of_the_table_has_its_entries() -> None:
    assert {id for ids in ROWS.values() for id in ids} == set(ENTRIES) == set(WORDS)
    assert len(ROWS) == 34
    if not TABLE.is_file():
        pytest.skip("the table is not here")
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    assert [line.split(" | ")[0].removeprefix("| ") for line in lines] == list(ROWS)


@pytest.mark.parametrize("id", ENTRIES)
def test_the_answer_says_what_the_table_says(id: str) -> None:
    entry = ENTRIES[id]
    answer = f"{entry.today} {entry.text.en} {' '.join(entry.overrides)}"
    assert [word for word in WORDS[id] if word not in answer] == []


@pytest.mark.parametrize("id", ENTRIES)
def test_every_entry_is_well_formed(id: str) -> None:
    entry = ENTRIES[id]
    en, zh = entry.text
    assert entry.verdict in VERDICTS and entry.row
    assert en and not HAN.search(en) and en[-1] != "." and "!" not in en
    assert HAN.search(zh) and not re.search(r"[\u4e00-\u9fff][,;:!?]", zh) and zh[-1] != "。"
    assert re.findall(r"[a-z]+\.[a-z_]{3,}(?:=\w+)?", en) == re.findall(r"[a-z]+\.[a-z_]{3,}(?:=\w+)?", zh)
    assert entry.settable == (id not in NOT_SETTABLE)
    assert entry.quoted_by is None or entry.quoted_by in CAUSES
    assert entry.when is None or (entry.when in CONDITIONS and entry.where and id in DOES)
    assert all(is_known(key) for key in entry.where)
    assert bool(entry.today) <= bool(entry.keys)


def test_no_key_and_no_value_has_two_texts() -> None:
    table = _table()
    keys = [key for a in ENTRIES.values() for key in a.keys]
    values = [pair for a in ENTRIES.values() for pair in a.values]
    assert len(set(keys)) == len(keys) and not set(keys) & set(table["keys"]) and len(set(values)) == len(values)
    assert not [v for v in values if v[1] in table["options"].get(v[0], {})]
    assert not [key for key in keys if is_known(key)]


def test_every_condition_is_used_and_no_other_is_named() -> None:
    assert {a.when for a in ENTRIES.values()} - {None} == set(CONDITIONS)


KEYS = [(key, a.id) for a in ENTRIES.values() for key in a.keys]


@pytest.mark.parametrize("spelling", ["{}=x", "++{}=x", "optim.{}=x", "training_args.{}=x"])
def test_every_key_is_answered_as_it_is_typed(spelling: str) -> None:
    for key, id in KEYS:
        found = SESSION.read([spelling.format(key)]).problems
        assert len(found) == 1 and ENTRIES[id].text.en in found[0] and (ENTRIES[id].today or "") in found[0], key


def test_every_key_is_answered_under_trainer() -> None:
    found = problems(*(f"trainer.{key}=0" for key, _ in KEYS))
    assert len(found) == len(KEYS)
    for (key, id), sentence in zip(KEYS, found, strict=True):
        assert f"trainer.{key} " in sentence and ENTRIES[id].text.en in sentence


def test_every_key_is_answered_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "exp").mkdir(parents=True)
    text = "# @package _global_\n" + yaml.safe_dump({key: 1 for key, _ in KEYS})
    (tmp_path / "conf" / "exp" / "post.yaml").write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        Session().load(["+exp=post"])
    said = "\n".join(error.value.problems)
    assert len(error.value.problems) == len(KEYS)
    assert all(ENTRIES[id].text.en in said for _, id in KEYS)


@pytest.mark.parametrize(("key", "same"), [("GradScaler", "gradscaler"), ("p_tuning", "P-Tuning"), ("AdamW", "adam_w")])
def test_keys_in_any_case(key: str, same: str) -> None:
    assert by_key(same) is by_key(f"x.{key}") is not None
    assert find_rename(same) is not None


@pytest.mark.parametrize(("group", "value", "id"), [(*pair, a.id) for a in ENTRIES.values() for pair in a.values])
def test_every_value_is_answered(group: str, value: str, id: str) -> None:
    for typed in (f"{group}={value}", f"{group}={value.replace('_', '-').upper()}"):
        found = SESSION.read([typed]).problems
        assert len(found) == 1 and ENTRIES[id].text.en in found[0], typed


def test_values_that_are_fine_keep_their_own_answer() -> None:
    assert SESSION.read(["task=sft", "lora=none", "optim=adamw"]).problems == []
    assert by_value("task", "sft") is None
    assert "sft is task=sft" in SESSION.read(["stage=sft"]).problems[0]


@pytest.mark.parametrize(
    "lines",
    [
        ["bf16=true", "fp16=true"],
        ["trainer.bf16=true", "trainer.fp16=true"],
        ["precision=bf16", "trainer.fp16=true"],
        ["trainer.bf16=True", "precision=fp16"],
        ["fp16=true", "torch_dtype=torch.bfloat16"],
        ["+exp=qwen7b_clip", "trainer.fp16=true"],
    ],
)
def test_bf16_and_fp16_together_is_one_sentence(lines: list[str]) -> None:
    found = problems(*lines)
    assert len(found) == 1 and ENTRIES["bf16_and_fp16"].text.en in found[0]
    assert all(line in found[0].replace("True", "true") for line in ("fp16", "true"))


@pytest.mark.parametrize("lines", [["bf16=true", "GradScaler=true"], ["precision=bf16", "trainer.use_grad_scaler=1"]])
def test_bf16_with_a_scaler(lines: list[str]) -> None:
    found = problems(*lines)
    assert len(found) == 1 and ENTRIES["bf16_with_scaler"].text.en in found[0]


@pytest.mark.parametrize("lines", [["bf16=true", "fp16=false"], ["bf16=false", "fp16=true"], ["fp16=1", "dtype=auto"]])
def test_one_of_them_switched_off_is_no_contradiction(lines: list[str]) -> None:
    found = problems(*lines)
    assert len(found) == 2 and not any("contradict" in sentence for sentence in found)


def test_contradictions_by_hand() -> None:
    assert contradictions([("bf16", "true")]) == []
    (entry, names), *more = contradictions([("precision", "bf16"), ("trainer.fp16", "true"), ("x.GradScaler", "true")])
    assert (entry.id, names) == ("bf16_and_fp16", ("precision", "trainer.fp16"))
    assert [(a.id, n) for a, n in more] == [("bf16_with_scaler", ("precision", "x.GradScaler"))]


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=5))
def test_other_words_contradict_nothing(asked: list[tuple[str, str]]) -> None:
    assert contradictions(asked) == []


@pytest.mark.parametrize("id", DOES)
def test_a_condition_holds_where_a_user_does_it(id: str) -> None:
    entry, made = ENTRIES[id], config(DOES[id])
    assert entry.holds(made) and not entry.holds(Config())
    assert applying(made) == ([entry] if entry.quoted_by is None else [])


@pytest.mark.parametrize(("id", "settings"), DOES_NOT)
def test_no_condition_holds_where_nobody_does_it(id: str, settings: Settings) -> None:
    assert not ENTRIES[id].holds(config(settings))


@pytest.mark.parametrize("id", [id for id in DOES if ENTRIES[id].overrides])
def test_the_overrides_end_the_condition(id: str) -> None:
    after = dict(DOES[id])
    for override in ENTRIES[id].overrides:
        after |= written(override)
    assert not ENTRIES[id].holds(config(after))


def test_the_overrides_compose() -> None:
    """Two loads: the overrides of all entries, of the same key the first and then the last."""
    every = [override for a in ENTRIES.values() for override in a.overrides]
    for order in (every, every[::-1]):
        SESSION.load(list({override.partition("=")[0]: override for override in order}.values()))


def test_the_published_warmup_is_refused_with_the_words_of_the_entry() -> None:
    assert ENTRIES["warmup_beyond_end"].text.en in problems("schedule.warmup_steps=50", "schedule.max_steps=30")[0]


def test_a_flag_given_twice_is_named() -> None:
    assert "given twice" in problems("optim.learning_rate=1e-4", "optim.learning_rate=1e-5")[0]


def test_value_of() -> None:
    assert value_of(Config(), "clip.max_grad_norm") == 1.0
    with pytest.raises(AttributeError):
        value_of(Config(), "clip.no_such")


def test_the_file_is_read_only_when_something_asks() -> None:
    """A valid command line pays nothing for it, and neither torch nor transformers come with it."""
    code = (
        "import sys; from runner.config.compose import load; from runner.config.advice import advice; "
        "load(['lora.r=16']); assert advice.cache_info().currsize == 0; advice(); "
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2], timeout=60)
