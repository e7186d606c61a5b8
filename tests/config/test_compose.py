"""Types, provenance, dropped leaves, the working folder's ./conf, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.config.build import config_from_dict, config_to_dict, to_config
from runner.config.compose import Loaded, Session, Where, apply_edits, load
from runner.config.names import known_keys
from runner.config.share import find_data, packaged_conf, packaged_data
from runner.errors import ConfigError

SESSION = Session()


def ok(*lines: str) -> Loaded:
    return SESSION.load(list(lines))


def problems(*lines: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        SESSION.load(list(lines))
    return error.value.problems


def test_every_field_of_the_schema_has_a_docstring() -> None:
    assert [name for name, key in known_keys().items() if not key.doc] == []
    from runner.config.names import field_docs, fields_of
    from runner.config.schema import Source

    assert set(field_docs(Source)) == set(fields_of(Source))


@pytest.mark.parametrize(
    ("line", "takes"),
    [
        ("optim.learning_rate=abc", "a number or null"),
        ("lora.r=true", "a whole number"),
        ("lora.use_dora=1", "true or false"),
        ("batch.sampler=sorted", "one of random, stratified, length_grouped"),
        ("lora.r=1.5", "a whole number"),
        ("optim.betas=[0.9]", "2 numbers"),
        ("optim.betas=0.9", "2 numbers"),
        ("dataset.max_samples=many", "a whole number or {name: a whole number} or null"),
        ("seed=null", "a whole number"),
        ("dataset.preview=false", "a whole number"),
    ],
)
def test_wrong_values_say_what_the_key_takes_and_who_set_them(line: str, takes: str) -> None:
    found = problems(line)
    assert len(found) == 1
    assert takes in found[0] and f"command line: {line}" in found[0]


def test_values_that_pass() -> None:
    config = ok("optim.learning_rate='1e-4'", "lora.lora_alpha=16", "lora.init_lora_weights=pissa").config
    assert config.optim.learning_rate == 1e-4 and config.lora.lora_alpha == 16.0
    labels = ok("task=classification", "dataset=sentiment_zh", "task.labels=[0,1,2]").config.task.labels
    assert labels == ["0", "1", "2"]


def test_missing_values_are_named_with_the_file() -> None:
    found = problems("dataset=file")
    assert len(found) == 1 and "dataset.path is not set" in found[0] and "conf/dataset/file.yaml" in found[0]
    assert "model.path is not set" in problems("model=path")[0]


def test_provenance() -> None:
    where = ok("+exp=qwen14b_lora", "seed=7").where
    assert where["optim.learning_rate"] == "conf/exp/qwen14b_lora.yaml"
    assert where["model.path"] == "conf/model/qwen1_5_14b.yaml"
    assert where["hub"] == "conf/config.yaml"
    assert where["seed"] == "command line: seed=7"


def test_inherited_leaves_are_dropped_and_listed() -> None:
    loaded = ok("+exp=qwen14b_lora", "lora=none", "schedule=linear")
    assert loaded.config.lora.method == "none" and loaded.config.schedule.lr_scheduler_type == "linear"
    assert "r" not in loaded.tree.lora
    assert any("lora.r from conf/exp/qwen14b_lora.yaml" in d and "lora=none" in d for d in loaded.dropped)
    assert any("schedule=linear on the command line wins" in d for d in loaded.dropped)
    assert "~lora.r" in loaded.overrides
    assert SESSION.load(loaded.overrides).config.lora == loaded.config.lora


def test_by_hand_an_unused_leaf_is_an_error_that_names_its_option() -> None:
    found = problems("clip=none", "clip.max_grad_norm=0.5")
    assert "not used by clip=none" in found[0] and "clip=norm" in found[0]
    assert "precision=fp16" in problems("precision=bf16", "precision.loss_scale.initial_power=8")[0]
    assert "dataset=file" in problems("dataset.path=a.jsonl")[0]


def test_a_discriminator_by_hand() -> None:
    assert "choose the option: clip=none" in problems("clip.method=none")[0]
    config = ok("optim.name=lion_32bit", "optim.betas=[0.9,0.99]").config
    assert config.optim.name == "lion_32bit"
    assert "did you mean" in problems("optim.name=adamw_torch_fusedd")[0]


def test_warmup_of_the_higher_layer_wins() -> None:
    loaded = ok("schedule.warmup_steps=10")
    assert (loaded.config.schedule.warmup_ratio, loaded.config.schedule.warmup_steps) == (None, 10)
    assert any("warmup_ratio" in d for d in loaded.dropped)
    back = ok("+exp=qwen2_sentiment", "schedule.warmup_ratio=0.1").config.schedule
    assert (back.warmup_ratio, back.warmup_steps) == (0.1, None)
    assert "schedule.warmup_twice" in problems("schedule.warmup_ratio=0.1", "schedule.warmup_steps=10")[0]


def test_trainer_passthrough() -> None:
    assert ok("trainer.neftune_noise_alpha=5").config.trainer == {"neftune_noise_alpha": 5.0}
    assert "did you mean trainer.neftune_noise_alpha?" in problems("trainer.neftune_noise_alfa=5")[0]
    assert "use trainer.neftune_noise_alpha" in problems("neftune_noise_alpha=5")[0]
    assert "a number" in problems("trainer.neftune_noise_alpha=abc")[0]
    assert (
        "task=sft only"
        in problems("task=classification", "dataset=sentiment_zh", "trainer.activation_offloading=true")[0]
    )


OWNED = {
    "learning_rate": "optim.learning_rate",
    "fp16": "precision=fp16",
    "output_dir": "output_dir",
    "max_grad_norm": "clip.max_grad_norm",
    "per_device_train_batch_size": "batch.per_device_train_batch_size",
    "warmup_steps": "schedule.warmup_steps",
    "eval_strategy": "evaluation.eval_strategy",
    "eval_steps": "evaluation.eval_steps",
    "save_steps": "checkpoint.save_steps",
    "save_total_limit": "checkpoint.save_total_limit",
    "max_length": "dataset.max_length",
    "packing": "planned",
    "gradient_checkpointing": "model.gradient_checkpointing",
    "seed": "seed",
    "report_to": "tracking.report_to",
    "logging_steps": "tracking.logging_steps",
    "lr_scheduler_type": "schedule.lr_scheduler_type",
    "logging_nan_inf_filter": "off always",
    "remove_unused_columns": "off always",
    "train_sampling_strategy": "batch.sampler",
    "optim": "optim.name",
    "weight_decay": "optim.weight_decay",
    "adam_beta1": "optim.betas",
    "run_name": "name",
    "deepspeed": "engine",
    "evaluation_strategy": "evaluation.eval_strategy",
}


def test_a_field_a_group_owns_is_refused_with_our_key() -> None:
    found = problems(*(f"trainer.{field}=1" for field in OWNED))
    assert len(found) == len(OWNED)
    for (field, ours), sentence in zip(OWNED.items(), found, strict=True):
        assert f"trainer.{field} " in sentence and ours in sentence
    # Alone: beside fp16 it is a contradiction of its own.
    assert "precision=bf16" in problems("trainer.bf16=1")[0]


def test_json_round_trip() -> None:
    config = ok("+exp=qwen2_sentiment", "optim.args={x: 0.5}").config
    assert config_from_dict(json.loads(json.dumps(config_to_dict(config)))) == config


def test_the_tree_gives_the_same_config() -> None:
    loaded = ok("+exp=qwen7b_clip", "output_dir=here")
    assert to_config(loaded.tree) == loaded.config


def write(folder: Path, name: str, text: str) -> None:
    (folder / "conf" / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "conf" / name).write_text(text, encoding="utf-8")


def test_conf_of_the_working_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "optim/adamw.yaml", "name: adamw_torch\nlearning_rate: 0.5\n")
    write(tmp_path, "model/mine.yaml", "path: org/mine\n")
    write(tmp_path, "exp/my.yaml", "# @package _global_\nname: my\noptim: {learnign_rate: 1}\ncutoff_len: 3\n")
    monkeypatch.chdir(tmp_path)
    loaded = load(["model=mine", "model.revision=abc"])
    assert loaded.config.optim.learning_rate == 0.5
    assert loaded.where["optim.learning_rate"] == "./conf/optim/adamw.yaml"
    assert (loaded.config.model.path, loaded.config.model.revision, loaded.config.model.template) == (
        "org/mine",
        "abc",
        "auto",
    )
    with pytest.raises(ConfigError) as error:
        load(["+exp=my"])
    text = str(error.value)
    assert "./conf/exp/my.yaml" in text and "optim.learning_rate" in text and "dataset.max_length" in text
    assert len(error.value.problems) == 2


def test_an_option_of_your_own_may_use_every_key_of_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "lora/mine.yaml", "method: lora\nr: 4\n")
    monkeypatch.chdir(tmp_path)
    loaded = load(["lora=mine", "lora.lora_dropout=0.1"])
    assert (loaded.config.lora.r, loaded.config.lora.lora_dropout, loaded.dropped) == (4, 0.1, [])
    with pytest.raises(ConfigError, match="lora=freeze"):
        load(["lora=mine", "lora.trainable=[x]"])


def test_config_dir(tmp_path: Path) -> None:
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / "tight.yaml").write_text("method: norm\nmax_grad_norm: 0.1\n")
    loaded = load(["clip=tight"], Where(config_dir=str(tmp_path)))
    assert loaded.config.clip.max_grad_norm == 0.1
    with pytest.raises(ConfigError, match="no such folder"):
        load([], Where(config_dir=str(tmp_path / "absent")))


def test_hydras_searchpath(tmp_path: Path) -> None:
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / "tight.yaml").write_text("method: norm\nmax_grad_norm: 0.1\n")
    assert load(["clip=tight", f"hydra.searchpath=[file://{tmp_path}]"]).config.clip.max_grad_norm == 0.1


def test_data_of_the_working_folder_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_data("demo_en.json") == str(packaged_data() / "demo_en.json")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "demo_en.json").write_text("[]")
    assert find_data("demo_en.json") == str(tmp_path / "data" / "demo_en.json")
    assert (packaged_conf() / "config.yaml").is_file()


def test_in_the_clone_the_working_folder_is_not_searched_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    from runner.config.share import working_conf

    monkeypatch.chdir(packaged_conf().parent)
    assert working_conf() is None


def test_edits_apply_to_hydras_tree() -> None:
    loaded = ok("+exp=qwen14b_lora")
    apply_edits(loaded.tree, ["~lora.r", "schedule.lr_scheduler_type=linear"])
    assert "r" not in loaded.tree.lora and loaded.tree.schedule.lr_scheduler_type == "linear"
