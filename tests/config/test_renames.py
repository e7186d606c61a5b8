"""Each entry of the table of old names is found, leads to a key that exists, and says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from runner.config.compose import Session
from runner.config.frontdoor import read_command
from runner.config.names import is_known
from runner.config.renames import find_option, renames
from runner.config.trainer_fields import trainer_fields
from runner.errors import ConfigError

SESSION = Session()
TABLE = renames()
UNIQUE = {n: r for n, r in TABLE.items() if not is_known(n)}
MUST = """
gradient_clipping lr_warmup use_pretrained_model evaluation_strategy group_by_length logging_dir
max_seq_length tokenizer GradScaler AdamW device_map lora_target lora_rank cutoff_len template
val_size finetuning_type stage flash_attn bf16 fp16 pure_bf16 dataset_dir mix_strategy
interleave_probs train_on_prompt mask_history quantization_bit resume_from_checkpoint max_samples
packing streaming padding truncation model_name_or_path
"""


def test_what_every_entry_leads_to_exists() -> None:
    for old, rename in TABLE.items():
        today = rename.today or ""
        if "=" in today:
            assert not [p for line in today.split(" ") for p in SESSION.read([line]).problems], old
        elif today:
            assert is_known(today) or today in SESSION.groups, old


@pytest.mark.parametrize("spelling", ["{}=1", "++{}=1", "optim.{}=1"])
def test_every_entry_is_explained_in_every_spelling(spelling: str) -> None:
    for old, rename in UNIQUE.items():
        if spelling.startswith("optim.") and is_known(f"optim.{old}"):
            continue
        found = read_command([spelling.format(old)], SESSION.groups).problems
        assert len(found) == 1 and rename.say in found[0] and (rename.today or "") in found[0], old


def test_the_value_is_carried_over_where_only_the_name_changed() -> None:
    assert "use optim.learning_rate=1e-4" in SESSION.read(["lr=1e-4"]).problems[0]
    assert "use lora.r=16" in SESSION.read(["lora.rank=16"]).problems[0]


def test_under_trainer_and_in_yaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"evaluation\.eval_strategy"):
        SESSION.load(["trainer.evaluation_strategy=no"])
    (tmp_path / "conf" / "exp").mkdir(parents=True)
    (tmp_path / "conf" / "exp" / "old.yaml").write_text("# @package _global_\nlora_rank: 8\nlora: {rank: 8}\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        Session().load(["+exp=old"])
    assert len(error.value.problems) == 2 and all("lora.r " in p for p in error.value.problems)


@pytest.mark.parametrize("name", MUST.split())
def test_what_people_type_is_answered(name: str) -> None:
    found = SESSION.read([f"{name}=1"]).problems
    assert found and ("use " in found[0] or name in found[0])


def test_dataset_and_optim_by_their_foreign_values() -> None:
    assert "dataset=llamafactory" in SESSION.read(["dataset=alpaca_en_demo"]).problems[0]
    assert "optim.name=adamw_torch" in SESSION.read(["optim=adamw_torch"]).problems[0]


@pytest.mark.parametrize("name", ["image_max_pixels", "dpo_beta", "kto_chosen_weight", "ppo_epochs", "reward_model"])
def test_out_of_scope_by_name(name: str) -> None:
    assert "out of scope" in SESSION.read([f"{name}=1"]).problems[0]


def test_options_table() -> None:
    assert find_option("engine", "zero3") and find_option("lora", "prefix") and not find_option("clip", "norm")


def test_no_trainer_field_is_both_passed_through_and_renamed_away() -> None:
    from runner.config.renames import owned_trainer_field

    passed = [f for f in trainer_fields("sft") if owned_trainer_field(f) is None]
    assert {"neftune_noise_alpha", "label_smoothing_factor", "use_liger_kernel", "tf32"} <= set(passed)
    assert not {"bf16", "optim", "packing", "logging_nan_inf_filter", "output_dir"} & set(passed)


def test_the_table_is_plain_json_data() -> None:
    assert json.loads(json.dumps({k: [v.today, v.say] for k, v in TABLE.items()}))
