"""`model`: which weights a run starts from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass
class Model:
    """A local folder or a hub id, and how it is loaded."""

    path: str = "???"
    """Local folder or hub id (Qwen/Qwen2.5-7B). HF_ENDPOINT (a mirror) and HF_HUB_OFFLINE are honoured."""

    revision: str | None = None
    """Branch, tag or commit on the hub; null = main. Not used for a local folder."""

    trust_remote_code: bool = False
    """Run Python code that the model's repository ships. Off unless you have read that code."""

    attn_implementation: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """Attention kernel. auto = what transformers picks for the model (sdpa on most); flash_attention_2 needs a GPU."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: about 30 % slower, far less memory. Never switched on in silence."""

    quantization: Literal["4bit", "8bit"] | None = None
    """Load the frozen base in 4 or 8 bits (bitsandbytes, needs a GPU). Only with lora.method=lora."""

    template: str = "auto"
    """Chat template: auto = the tokenizer's own, qwen, chatml, or the path of a .jinja file."""

    gguf_file: str | None = None
    """File name of a GGUF inside `path`; it is dequantised to fp32 at loading (needs the gguf package)."""
