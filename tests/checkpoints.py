"""Small checkpoints on disk, made by transformers from random weights that leave nothing uniform."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM


def random_llama(*, seed: int = 0, **fields: Any) -> LlamaForCausalLM:
    """A bf16 LlamaForCausalLM; ``fields`` override a tiny config."""
    config = LlamaConfig(
        **{
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "vocab_size": 131,
            "max_position_embeddings": 256,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "tie_word_embeddings": True,
            **fields,
        }
    )
    model = LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.3 * noise if parameter.dim() == 1 else noise * 1.5 / parameter.shape[1] ** 0.5)
    return model.to(torch.bfloat16).eval()


def save_llama(folder: Path, *, shard_size: str = "1GB", **fields: Any) -> Path:
    """``random_llama`` saved to ``folder``."""
    random_llama(**fields).save_pretrained(folder, max_shard_size=shard_size)
    return folder


def save_uneven_llama(folder: Path) -> Path:
    """``save_llama`` with rows of zeros, a whole matrix of them, and a row in which one weight dwarfs the others."""
    save_llama(folder, seed=3)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    down = tensors["model.layers.0.mlp.down_proj.weight"]
    down[3] = 0.0
    down[4, 5] = 900.0
    tensors["model.layers.1.self_attn.q_proj.weight"][:] = 0.0
    save_file(tensors, file, metadata={"format": "pt"})
    return folder
