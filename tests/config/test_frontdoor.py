"""The command line: quoting, order, typos, options, duplicates."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.config.compose import Loaded, Session
from runner.config.quote import parse, quote
from runner.errors import ConfigError

SESSION = Session()


def load(*lines: str) -> Loaded:
    return SESSION.load(list(lines))


def problems(*lines: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        SESSION.load(list(lines))
    return error.value.problems


def test_two_typos_one_message() -> None:
    with pytest.raises(ConfigError) as error:
        load("optim.learnign_rate=1e-4", "batch.per_device_train_batchsize=2")
    assert "did you mean optim.learning_rate?" in str(error.value)
    assert "did you mean batch.per_device_train_batch_size?" in str(error.value)


def test_chinese_labels_and_path() -> None:
    loaded = load("task=classification", "dataset=file", "task.labels=[积极,消极,中立]", "dataset.path=数据/情感.jsonl")
    assert loaded.config.task.labels == ["积极", "消极", "中立"]
    assert loaded.config.dataset.sources["file"].path == "数据/情感.jsonl"


def test_chinese_dict_keys() -> None:
    loaded = load(
        "task=classification", "dataset=sentiment_zh", "task.labels=[好,坏]", "task.class_weights={好:1.0,坏:2}"
    )
    assert loaded.config.task.class_weights == {"好": 1.0, "坏": 2.0}


@pytest.mark.parametrize(
    "line",
    [
        "optim.learning_rate=1e-4",
        "a=1,2",
        "lora.target_modules=[q_proj, v_proj]",
        "+exp=x",
        "~lora.r",
        "a=choice(1,2)",
        'lora.trainable=["layers\\.3\\."]',
        "a={b:1}",
        "a=${oc.env:HOME}",
    ],
)
def test_valid_hydra_stays_untouched(line: str) -> None:
    assert quote(line) == line


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("a=[积极,消极]", ["积极", "消极"]),
        ("a=数据/a b (1).jsonl", "数据/a b (1).jsonl"),
        ("a={x:{y:中}}", {"x": {"y": "中"}}),
        ("a=it's", "it's"),
        ("a=b=c", "b=c"),
        ("a=C:\\数据\\b", "C:\\数据\\b"),
        ("a=.*(q|v)_proj", ".*(q|v)_proj"),
        ("a=['积极',中]", ["积极", "中"]),
        ("a=${oc.env:HOME}/数据", "${oc.env:HOME}/数据"),
        ("a=《书》", "《书》"),
    ],
)
def test_what_the_lexer_refuses_is_quoted(line: str, value: object) -> None:
    override = parse(quote(line))
    assert override is not None and override.value() == value


@pytest.mark.parametrize("line", ["a=积极,消极", "a=choice(积极,消极)"])
def test_chinese_sweeps_stay_sweeps(line: str) -> None:
    override = parse(quote(line))
    assert override is not None and override.is_sweep_override()
    assert list(override.sweep_iterator()) == list(override.sweep_iterator())
    assert [v.strip("'") for v in override.sweep_string_iterator()] == ["积极", "消极"]


@settings(max_examples=80, deadline=None)
@given(st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), max_size=20))
def test_quoting_is_idempotent_and_always_parses(value: str) -> None:
    once = quote(f"a={value}")
    assert parse(once) is not None
    assert quote(once) == once


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(alphabet="积极消中立ab1_", min_size=1, max_size=5), min_size=1, max_size=4))
def test_lists_of_words_survive(words: list[str]) -> None:
    override = parse(quote(f"a=[{','.join(words)}]"))
    assert override is not None
    assert [str(v) for v in override.value()] == [str(v) for v in parse_words(words)]  # type: ignore[union-attr]


def parse_words(words: list[str]) -> list[object]:
    single = [parse(quote(f"a={word}")) for word in words]
    return [o.value() for o in single if o is not None]


def test_a_line_without_equals_is_named() -> None:
    assert "key=value" in problems("trian.jsonl")[0]


def test_overlays_in_any_order_and_with_any_plus() -> None:
    one = load("+exp=qwen14b_lora", "+fault=lr_x100", "model=qwen2_tiny", "output_dir=o")
    for lines in (
        ["+fault=lr_x100", "+exp=qwen14b_lora"],
        ["fault=lr_x100", "exp=qwen14b_lora"],
        ["++fault=lr_x100", "++exp=qwen14b_lora"],
    ):
        other = load("model=qwen2_tiny", "output_dir=o", *lines)
        assert other.config == one.config
    assert one.config.optim.learning_rate == 1e-2
    assert one.overrides[:2] == ["+exp=qwen14b_lora", "+fault=lr_x100"]


def test_by_hand_wins_wherever_it_stands() -> None:
    assert load("optim.learning_rate=3e-4", "+fault=lr_x100").config.optim.learning_rate == 3e-4


@pytest.mark.parametrize(
    "line", ["optim.learning_rate=3e-4", "+optim.learning_rate=3e-4", "++optim.learning_rate=3e-4"]
)
def test_plus_before_a_known_key(line: str) -> None:
    assert load(line).config.optim.learning_rate == 3e-4


def test_duplicates_are_named() -> None:
    found = problems("seed=1", "seed=2")
    assert "seed is given twice" in found[0] and "seed=1" in found[0] and "seed=2" in found[0]


def test_unknown_option_lists_options_and_nearest() -> None:
    found = problems("model=qwen2_tin", "precision=fp8")
    assert "did you mean model=qwen2_tiny?" in found[0] and "qwen2_5_7b" in found[0]
    assert "auto, bf16, fp16, fp32" in found[1]


def test_planned_and_out_of_scope_options() -> None:
    for line in ("engine=zero3", "tracking=swanlab"):
        assert "planned" in SESSION.read([line]).problems[0]
    for task in ("dpo", "kto", "ppo", "rm"):
        assert "out of scope" in SESSION.read([f"task={task}"]).problems[0]
    assert "P-Tuning" in SESSION.read(["lora=ptuning"]).problems[0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("num_train_epochs=3", "use schedule.num_train_epochs=3"),
        ("per_device_train_batch_size=4", "use batch.per_device_train_batch_size=4"),
        ("dataset.columns={a: b}", "dataset.sources.NAME.columns"),
        ("dataset.sources.chat.pth=x", "did you mean dataset.sources.chat.path?"),
    ],
)
def test_the_first_answer_is_the_right_one(line: str, words: str) -> None:
    assert words in SESSION.read([line]).problems[0]


def test_a_group_is_not_a_value_and_a_dict_key_is_not_a_group() -> None:
    assert "chooses one of" in problems("lora={r: 4}")[0]
    assert "holds keys" in problems("dataset.validation=0.1")[0]


def test_a_sweep_without_m() -> None:
    assert "add -m" in problems("optim.learning_rate=1e-4,1e-3")[0]
    assert "add -m" in problems("clip=norm,none")[0]


def test_right_leaf_in_the_wrong_group() -> None:
    assert "did you mean optim.weight_decay?" in problems("schedule.weight_decay=0.1")[0]
    assert "optim.learning_rate=1e-4" in problems("learning_rate=1e-4")[0]


def test_hydras_own_overrides_pass() -> None:
    assert "hydra.verbose=true" in load("hydra.verbose=true").overrides
    assert "there are" in problems("hydra/launcher=nosuch")[0]


def test_dict_leaves_merge() -> None:
    loaded = load("dataset.sources={mine: {path: org/rows}}", "dataset.validation={fraction: 0.2}")
    assert set(loaded.config.dataset.sources) == {"demo_en", "demo_zh", "mine"}
    assert loaded.config.dataset.validation.fraction == 0.2
    assert load("dataset.sources.demo_en.max_samples=5").config.dataset.sources["demo_en"].max_samples == 5
