"""Pretrains the tiny base model that ships with the project: ``python data/scripts/pretrain_qwen2_tiny.py [--steps N] [--out DIR]``.

A real base model in miniature: it has seen text, so a row has a loss of its own and fine-tuning starts well below
ln(V). The number of steps is fixed (not the time), so that a seed gives the same weights on the same machine.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from pathlib import Path

import torch
from pretrain_corpus import CORPUS_SEED, documents, vocabulary
from tiny_tokenizer import VOCAB_SIZE, train_tokenizer
from torch.nn.functional import cross_entropy
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

SEED = 0
THREADS = 2
STEPS = 400
BATCH = 8
LENGTH = 256
LEARNING_RATE = 3e-3
WARMUP = 40
SMOOTHING = 0.05
"""Label smoothing: on generated text a model grows so certain that any other text costs more than guessing."""
MAX_POSITIONS = 4096
VALIDATION_DOCUMENTS = 600

README = """---
license: apache-2.0
language: [en, zh]
---

# qwen2_tiny

A Qwen2 base model of {parameters:,} parameters ({layers} layers, hidden size {hidden}, {heads} heads, {kv} key-value heads, tied
embeddings, fp32) for demos and tests. It knows templates, not the world.

    python data/scripts/make_demo_data.py       # the demo sets; not used for this model
    python data/scripts/pretrain_qwen2_tiny.py  # tokenizer and model, about {minutes:.0f} minutes on two CPU threads

Trained from scratch with seed {seed} for {steps} steps of {batch} x {length} tokens ({seen:,} tokens; the corpus has {corpus:,})
and label smoothing {smoothing} on text that `data/scripts/pretrain_corpus.py` generates from its own templates (corpus seed {corpus_seed}). No row of the demo
sets is in it. The same command on the same machine and library versions gives the same weights.

The command above printed for {validation:,} held-out documents: validation loss {loss:.4f} per token; ln V = {uniform:.4f}
with V = {vocab:,}.

Tokenizer: byte-level BPE trained on the same text, Qwen2's pre-tokenizer, `<|endoftext|>` as pad and eos, no bos, ChatML
template without a default system prompt. The base model ends texts with `<|endoftext|>`; the end of a turn,
`<|im_end|>`, is for fine-tuning to teach.

Licence: Apache-2.0, text generators and weights alike.
"""


def build_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """The untrained model, about 2 million parameters, fp32."""
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=128,
        intermediate_size=448,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        max_position_embeddings=MAX_POSITIONS,
        max_window_layers=6,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(pad_token_id=tokenizer.pad_token_id, eos_token_id=tokenizer.eos_token_id)
    return model


def encode(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> torch.Tensor:
    """All texts in one row of token ids, each closed by ``<|endoftext|>``."""
    ids = [token for row in tokenizer(texts)["input_ids"] for token in (*row, tokenizer.eos_token_id)]
    return torch.tensor(ids)


def rate(step: int, steps: int) -> float:
    """Learning rate of ``step`` (from 0): linear warmup, then cosine to a twentieth."""
    warm = min(1.0, (step + 1) / WARMUP)
    return LEARNING_RATE * warm * max(0.05, 0.5 * (1 + math.cos(math.pi * step / steps)))


def train(model: Qwen2ForCausalLM, tokens: torch.Tensor, steps: int) -> None:
    """``steps`` AdamW updates on random windows of ``tokens``, in place."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    plain = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=(0.9, 0.95),
    )
    model.train()
    begin = time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, steps)
        starts = torch.randint(0, len(tokens) - LENGTH - 1, (BATCH,))
        windows = torch.stack([tokens[i : i + LENGTH + 1] for i in starts])
        logits = model(input_ids=windows[:, :-1], use_cache=False).logits
        loss = cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten(), label_smoothing=SMOOTHING)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 50 == 0:
            print(
                f"step {step + 1} smoothed loss {loss.item():.4f} seconds {time.perf_counter() - begin:.0f}", flush=True
            )


@torch.no_grad()
def validation_loss(model: Qwen2ForCausalLM, tokens: torch.Tensor) -> float:
    """Mean loss per token over consecutive windows of ``tokens``."""
    model.eval()
    total, count = 0.0, 0
    for start in range(0, len(tokens) - 1, LENGTH):
        window = tokens[start : start + LENGTH + 1][None]
        logits = model(input_ids=window[:, :-1], use_cache=False).logits
        total += cross_entropy(logits[0], window[0, 1:], reduction="sum").item()
        count += window.shape[1] - 1
    return total / count


def main(argv: list[str] | None = None) -> None:
    """Command line entry: trains tokenizer and model, prints the validation loss, saves both with a README."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parent.parent / "models" / "qwen2_tiny"
    parser.add_argument("--out", type=Path, default=default, help="folder to write into")
    parser.add_argument("--steps", type=int, default=STEPS, help="optimizer steps")
    parser.add_argument("--documents", type=int, default=None, help="size of the corpus, for quick tries")
    options = parser.parse_args(argv)

    begin = time.perf_counter()
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    texts = documents(count=options.documents) if options.documents else documents()
    random.Random(SEED).shuffle(texts)
    held_out = min(VALIDATION_DOCUMENTS, len(texts) // 10)
    validation, training = texts[:held_out], texts[held_out:]
    tokenizer = train_tokenizer([*training, *vocabulary()], MAX_POSITIONS)
    tokens = encode(tokenizer, training)
    torch.manual_seed(SEED)
    model = build_model(tokenizer)
    print(
        f"parameters {model.num_parameters():,} vocabulary {len(tokenizer)} training tokens {len(tokens):,}", flush=True
    )
    train(model, tokens, options.steps)
    loss = validation_loss(model, encode(tokenizer, validation))
    minutes = (time.perf_counter() - begin) / 60
    print(f"validation loss {loss:.4f} ln V {math.log(len(tokenizer)):.4f} minutes {minutes:.1f}")

    options.out.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(options.out)
    (options.out / "model.safetensors").chmod(0o644)
    tokenizer.save_pretrained(options.out)
    # Saved once more as the class that Auto picks for a qwen2 model, so that the file names what is loaded.
    loaded = AutoTokenizer.from_pretrained(options.out)
    for how_loaded in ("is_local", "local_files_only"):
        loaded.init_kwargs.pop(how_loaded, None)
    loaded.save_pretrained(options.out)
    config = model.config
    (options.out / "README.md").write_text(
        README.format(
            parameters=model.num_parameters(),
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=config.num_attention_heads,
            kv=config.num_key_value_heads,
            seed=SEED,
            steps=options.steps,
            batch=BATCH,
            length=LENGTH,
            seen=options.steps * BATCH * LENGTH,
            corpus=len(tokens),
            corpus_seed=CORPUS_SEED,
            smoothing=SMOOTHING,
            validation=held_out,
            loss=loss,
            uniform=math.log(len(tokenizer)),
            vocab=len(tokenizer),
            minutes=minutes,
        ),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
