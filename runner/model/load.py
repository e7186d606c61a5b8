"""Loading a causal language model or a sequence classifier, and making sure that every weight was filled."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from runner.config.schema import Config
from runner.errors import UserError
from runner.model.formats import DTYPES, Formats
from runner.model.location import hub_errors


def load_model(
    cfg: Config,
    tokenizer: PreTrainedTokenizerBase,
    labels: list[str] | None,
    formats: Formats,
    end_of_turn: int | None = None,
) -> PreTrainedModel:
    """The start model; see `load_with_info`."""
    return load_with_info(cfg, tokenizer, labels, formats, end_of_turn)[0]


def load_with_info(
    cfg: Config,
    tokenizer: PreTrainedTokenizerBase,
    labels: list[str] | None,
    formats: Formats,
    end_of_turn: int | None = None,
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """The start model, in the frozen dtype under LoRA and in the trainable dtype otherwise, and transformers' loading
    info (missing_keys, unexpected_keys, mismatched_keys).

    `labels` are the class names in id order (classification), `end_of_turn` the id of the token that ends an answer.
    Raises `UserError` where the path cannot be loaded or
    weights other than a new classification head are missing from it.
    """
    torch.manual_seed(cfg.seed)
    name = formats.frozen if cfg.lora.method == "lora" else formats.trainable
    options: dict[str, Any] = {"dtype": DTYPES[name], "trust_remote_code": cfg.model.trust_remote_code}
    options["revision"] = cfg.model.revision or "main"
    if cfg.model.attn_implementation != "auto":
        options["attn_implementation"] = cfg.model.attn_implementation
    if cfg.model.gguf_file:
        options["gguf_file"] = cfg.model.gguf_file
    if cfg.model.quantization:
        options["quantization_config"] = quantization(cfg, formats)
    loader: Any = AutoModelForCausalLM
    if cfg.task.name == "classification":
        assert labels is not None
        loader = AutoModelForSequenceClassification
        options["num_labels"] = len(labels)
        options["id2label"] = dict(enumerate(labels))
        options["label2id"] = {label: i for i, label in enumerate(labels)}
    with hub_errors(cfg.model.path, "weights"):
        # Shapes that do not fit are refused by check_filled, by name; only a new classification head may differ.
        options["ignore_mismatched_sizes"] = True
        model, info = loader.from_pretrained(cfg.model.path, output_loading_info=True, **options)
    check_filled(cfg, model, info)
    if cfg.model.gguf_file:
        # The GGUF was dequantised at loading; Trainer and a saved model must not believe otherwise.
        model.hf_quantizer.remove_quantization_config(model)
    fit_embeddings(cfg, model, tokenizer)
    set_tokens(model, tokenizer, end_of_turn)
    return model, info


def quantization(cfg: Config, formats: Formats) -> Any:
    """bitsandbytes settings for `model.quantization`. Raises `UserError` without a GPU or the package."""
    from importlib.util import find_spec

    from transformers import BitsAndBytesConfig

    if not torch.cuda.is_available() or find_spec("bitsandbytes") is None:
        raise UserError(
            f"model.quantization={cfg.model.quantization} needs a CUDA GPU and the bitsandbytes package. Install it, "
            "or set model.quantization=null."
        )
    if cfg.model.quantization == "8bit":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=DTYPES[formats.compute],
    )


def head_names(model: PreTrainedModel) -> list[str]:
    """Names of the top-level modules that are not the backbone: the classification head (score, classifier, ...)."""
    return [name for name, _ in model.named_children() if name != model.base_model_prefix]


def trunk_keys(model: PreTrainedModel, keys: Iterable[str], absent: Collection[str]) -> list[str]:
    """Those of `keys`, sorted, that do not belong to a head. `absent` are all keys that the files lack.

    What stands outside the backbone is head. A model that names no backbone has a head where every weight of a
    top-level module is absent, unless that holds for all of them.
    """
    prefix = model.base_model_prefix
    if prefix and hasattr(model, prefix):
        return sorted(k for k in keys if k.split(".")[0] == prefix)
    filled = {k.split(".")[0] for k in model.state_dict() if k not in absent}
    return sorted(k for k in keys if k.split(".")[0] in filled or not filled)


def check_filled(cfg: Config, model: PreTrainedModel, info: dict[str, Any]) -> None:
    """Raise `UserError` where the files left weights unfilled: such a run starts from noise, or from NaN."""
    mismatched = [str(k[0] if isinstance(k, tuple) else k) for k in info.get("mismatched_keys", ())]
    missing = sorted(set(info.get("missing_keys", ())) - set(mismatched))
    if cfg.task.name == "classification":
        absent = {*missing, *mismatched}
        missing, mismatched = trunk_keys(model, missing, absent), trunk_keys(model, mismatched, absent)
    if missing:
        unknown = sorted(info.get("unexpected_keys", ()))
        strange = f" The files hold {len(unknown)} others ({', '.join(unknown[:2])})." if unknown else ""
        raise UserError(
            f"model.path={cfg.model.path}: {len(missing)} weights are not in its files and would start random "
            f"({', '.join(missing[:4])}{', ...' if len(missing) > 4 else ''}).{strange} The download is incomplete, or "
            "it is another architecture than its config.json says.",
            finding="weights.keys_do_not_match",
            where=missing,
        )
    if mismatched:
        raise UserError(
            f"model.path={cfg.model.path}: shapes in its files do not fit its config.json "
            f"({', '.join(sorted(mismatched)[:4])}).",
            finding="weights.keys_do_not_match",
            where=sorted(mismatched),
        )


def fit_embeddings(cfg: Config, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    """Grow the embedding where the tokenizer has more entries than it has rows; never shrink it.

    Raises `UserError` under LoRA, where new rows of a frozen embedding would stay random.
    """
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) <= rows:
        return
    saved = cfg.lora.modules_to_save or []
    if cfg.lora.method == "lora" and "embed_tokens" not in saved:
        raise UserError(
            f"model.template={cfg.model.template} needs {len(tokenizer) - rows} tokens that {cfg.model.path} lacks; "
            "under LoRA their embeddings would stay untrained. Set lora.modules_to_save=[embed_tokens,lm_head], or "
            "model.template=auto.",
            finding="weights.token_rows",
            where=tokenizer.convert_ids_to_tokens(list(range(rows, len(tokenizer)))),
        )
    model.resize_token_embeddings(len(tokenizer))


def set_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end_of_turn: int | None) -> None:
    """Tell the model its pad token, and its generation config that the end-of-turn token ends an answer."""
    model.config.pad_token_id = tokenizer.pad_token_id
    generation = getattr(model, "generation_config", None)
    if generation is None:
        return
    generation.pad_token_id = tokenizer.pad_token_id
    known = generation.eos_token_id if generation.eos_token_id is not None else tokenizer.eos_token_id
    ends = [known] if isinstance(known, int) else list(known or [])
    if end_of_turn is not None and end_of_turn not in ends:
        generation.eos_token_id = [end_of_turn, *ends]
