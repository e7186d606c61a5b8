"""The tokenizer of `model.path`, with the chat template that `model.template` asks for."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from runner.config.schema import Config, Model
from runner.errors import UserError
from runner.model.location import check_location, hub_errors

TEMPLATES = Path(__file__).parent / "templates"
BUILT_IN = {"qwen": "qwen.jinja", "chatml": "chatml.jinja"}


def load_tokenizer(cfg: Config) -> PreTrainedTokenizerBase:
    """Tokenizer with chat template, pad token and right padding set.

    Raises `UserError` where the path holds no tokenizer or the template cannot be read.
    """
    model = cfg.model
    check_location(model.path)
    with hub_errors(model.path, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(
            model.path,
            revision=model.revision or "main",
            trust_remote_code=model.trust_remote_code,
            **({"gguf_file": model.gguf_file} if model.gguf_file else {}),
        )
    tokenizer.padding_side = "right"
    if model.template != "auto":
        tokenizer.chat_template = read_template(model)
        add_turn_tokens(tokenizer)
    if tokenizer.pad_token is None:
        known = tokenizer.get_vocab()
        tokenizer.pad_token = "<|endoftext|>" if "<|endoftext|>" in known else tokenizer.eos_token
    if tokenizer.pad_token is None:
        raise UserError(
            f"model.path={model.path}: its tokenizer has neither a pad nor an end token; rows cannot be padded."
        )
    return tokenizer


def read_template(model: Model) -> str:
    """Text of the built-in or user's jinja template that `model.template` names."""
    if model.template in BUILT_IN:
        return (TEMPLATES / BUILT_IN[model.template]).read_text(encoding="utf-8")
    path = Path(model.template)
    if not path.is_file():
        raise UserError(
            f"model.template={model.template} is neither auto, {', '.join(BUILT_IN)}, nor a .jinja file that exists."
        )
    return path.read_text(encoding="utf-8")


def add_turn_tokens(tokenizer: PreTrainedTokenizerBase) -> None:
    """Make the turn tokens that the template writes single tokens; a vocabulary that has them is left as it is."""
    template = str(tokenizer.chat_template)
    known = tokenizer.get_vocab()
    missing = [t for t in ("<|im_start|>", "<|im_end|>") if t in template and t not in known]
    if missing:
        tokenizer.add_special_tokens({"additional_special_tokens": missing}, replace_extra_special_tokens=False)
