"""Loading: what is filled, what is refused, what is grown, what ends an answer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from runner.errors import UserError
from runner.model.formats import resolve_formats
from runner.model.load import load_model
from runner.model.tokenizer import load_tokenizer

LABELS = ["neg", "neu", "pos"]


def load(cfg: Any, labels: list[str] | None = None, stop_id: int | None = None) -> Any:
    return load_model(cfg, load_tokenizer(cfg), labels, resolve_formats(cfg), stop_id)


def test_a_missing_folder_names_its_neighbour(make_config: Callable[..., Any], micro_model: Path) -> None:
    cfg = make_config(model__path=str(micro_model.parent / "modl"))
    with pytest.raises(UserError, match=r"no such folder; near it in .*: model"):
        load(cfg)


def test_a_hub_id_that_cannot_be_had_is_one_sentence(make_config: Callable[..., Any]) -> None:
    with pytest.raises(UserError, match=r"model\.path=Qwen/Qwen2-0\.5B: no tokenizer could be loaded"):
        load(make_config(model__path="Qwen/Qwen2-0.5B"))


def test_weights_that_are_missing_from_the_files_stop_the_run(
    make_config: Callable[..., Any], micro_model: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(micro_model, broken)
    weights = load_file(broken / "model.safetensors")
    gone = next(k for k in weights if "layers.1.mlp.up_proj" in k)
    save_file({k: v for k, v in weights.items() if k != gone}, broken / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"1 weights are not in its files.*layers.1.mlp.up_proj"):
        load(make_config(model__path=str(broken)))


def test_a_truncated_file_is_one_sentence(make_config: Callable[..., Any], micro_model: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(micro_model, broken)
    data = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="incomplete or damaged"):
        load(make_config(model__path=str(broken)))


def test_code_that_a_model_ships_does_not_run_unasked(
    make_config: Callable[..., Any], micro_model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(micro_model, own)
    marker = tmp_path / "ran"
    (own / "own_code.py").write_text(
        "from pathlib import Path\nfrom transformers import Qwen2Config, Qwen2ForCausalLM\n"
        f"Path({str(marker)!r}).write_text('')\n"
        "class OwnConfig(Qwen2Config):\n    model_type = 'own_model'\n"
        "class OwnModel(Qwen2ForCausalLM):\n    config_class = OwnConfig\n"
    )
    config = json.loads((own / "config.json").read_text())
    auto_map = {"AutoConfig": "own_code.OwnConfig", "AutoModelForCausalLM": "own_code.OwnModel"}
    (own / "config.json").write_text(json.dumps({**config, "model_type": "own_model", "auto_map": auto_map}))
    cfg = make_config(model__path=str(own))
    tokenizer = load_tokenizer(make_config())
    with pytest.raises(UserError, match=r"read that code, then set model\.trust_remote_code=true"):
        load_model(cfg, tokenizer, None, resolve_formats(cfg))
    assert not marker.exists()
    cfg = make_config(model__path=str(own), model__trust_remote_code=True)
    assert type(load_model(cfg, tokenizer, None, resolve_formats(cfg))).__name__ == "OwnModel"


def test_a_new_head_is_no_missing_weight_and_depends_on_the_seed(make_config: Callable[..., Any]) -> None:
    cfg = make_config("classification")
    one, two = load(cfg, LABELS), load(cfg, LABELS)
    assert torch.equal(one.score.weight, two.score.weight)
    cfg.seed = 7
    assert not torch.equal(one.score.weight, load(cfg, LABELS).score.weight)
    assert one.config.id2label == {0: "neg", 1: "neu", 2: "pos"}
    assert one.config.pad_token_id is not None


def test_the_end_of_turn_goes_into_the_generation_config(make_config: Callable[..., Any]) -> None:
    cfg = make_config()
    tokenizer = load_tokenizer(cfg)
    turn = tokenizer.convert_tokens_to_ids("<|im_end|>")
    model = load(cfg, stop_id=turn)
    assert model.generation_config.eos_token_id == [turn, tokenizer.eos_token_id]
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id


@pytest.mark.parametrize("template", ["qwen", "chatml"])
def test_built_in_templates_add_no_system_turn(make_config: Callable[..., Any], template: str) -> None:
    tokenizer = load_tokenizer(make_config(model__template=template))
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}], tokenize=False
    )
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHo<|im_end|>\n"


def test_a_template_file_and_a_name_that_is_none(make_config: Callable[..., Any], tmp_path: Path) -> None:
    own = tmp_path / "own.jinja"
    own.write_text("{% for m in messages %}[{{ m.content }}]{% endfor %}")
    tokenizer = load_tokenizer(make_config(model__template=str(own)))
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "[x]"
    with pytest.raises(UserError, match="neither auto, qwen, chatml"):
        load_tokenizer(make_config(model__template="lama3"))


def test_embeddings_grow_and_never_shrink(make_config: Callable[..., Any], micro_model: Path, tmp_path: Path) -> None:
    cfg = make_config(lora__method="none")
    tokenizer = load_tokenizer(cfg)
    rows = load(cfg).get_input_embeddings().weight.shape[0]
    tokenizer.add_tokens([f"<new{i}>" for i in range(rows - len(tokenizer) + 3)])
    grown = load_model(cfg, tokenizer, None, resolve_formats(cfg))
    assert grown.get_input_embeddings().weight.shape[0] == len(tokenizer) == rows + 3
    cfg = make_config(lora__method="lora")
    with pytest.raises(UserError, match="modules_to_save"):
        load_model(cfg, tokenizer, None, resolve_formats(cfg))

    padded = tmp_path / "padded"
    shutil.copytree(micro_model, padded)
    config = json.loads((padded / "config.json").read_text())
    weights = load_file(padded / "model.safetensors")
    key = "model.embed_tokens.weight"
    weights[key] = torch.cat([weights[key], torch.zeros(64, weights[key].shape[1])])
    save_file(weights, padded / "model.safetensors", metadata={"format": "pt"})
    (padded / "config.json").write_text(json.dumps({**config, "vocab_size": config["vocab_size"] + 64}))
    assert load(make_config(model__path=str(padded))).get_input_embeddings().weight.shape[0] == rows + 64


def test_quantization_without_a_gpu_is_refused(make_config: Callable[..., Any]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UserError, match="needs a CUDA GPU"):
        load(make_config(model__quantization="4bit"))
