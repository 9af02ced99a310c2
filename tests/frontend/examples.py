"""Small configs, checkpoints and an interpreter of graphs that the tests of this room share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from amk.ir.graph import Add, Attention, Embed, Graph, Linear, Logits, RMSNorm, Rope, SiluMul

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def llama(**changes: Any) -> dict[str, Any]:
    """The config.json of a tiny Llama."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "vocab_size": 131,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 0,
    }
    return {**config, **changes}


def random_model(config: dict[str, Any], seed: int = 0) -> Any:
    """The model of ``config`` with random weights; gains are moved off 1, so that a lost gain shows."""
    from transformers import AutoModelForCausalLM

    from amk.frontend.trace import hf_config, quiet

    torch.manual_seed(seed)
    with quiet():
        model = AutoModelForCausalLM.from_config(hf_config(config), attn_implementation="eager", dtype=torch.float32)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.3)
            elif "embed" not in name:
                parameter.mul_(5.0)
    return model.eval()


def stored(model: Any) -> dict[str, Tensor]:
    """The tensors a checkpoint of ``model`` stores: bf16, a tied head left out."""
    tied = model.config.tie_word_embeddings
    return {
        name: tensor.to(torch.bfloat16).clone()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }


def write_checkpoint(
    folder: Path, config: dict[str, Any], tensors: dict[str, Tensor] | None = None, shards: int = 1
) -> Path:
    """A checkpoint folder, of random weights unless ``tensors`` are given, in one file or in shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    tensors = stored(random_model(config)) if tensors is None else tensors
    if shards == 1:
        save_file(tensors, folder / "model.safetensors")
        return folder
    names = sorted(tensors)
    where = {name: f"model-{1 + i % shards:05}-of-{shards:05}.safetensors" for i, name in enumerate(names)}
    for file in set(where.values()):
        save_file({name: tensors[name] for name in names if where[name] == file}, folder / file)
    index = {"metadata": {}, "weight_map": where}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


class Interpreter:
    """Runs a graph in float32, token by token: what each op says, and nothing it does not say."""

    def __init__(self, graph: Graph, load: Callable[[str], Tensor], table: np.ndarray) -> None:
        self.graph = graph
        self.weights = {tensor.name: load(tensor.name).float() for tensor in graph.tensors}
        for tensor in graph.tensors:
            assert tuple(self.weights[tensor.name].shape) == tensor.shape
        self.table = torch.from_numpy(table)
        self.cache: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self.position = 0

    def step(self, token: int) -> Tensor:
        """Logits after ``token``."""
        values: dict[str, Tensor] = {}
        for op in self.graph.ops:
            values[op.out] = self._run(op, values, token)
        self.position += 1
        return values["logits"]

    def _run(self, op: Any, values: dict[str, Tensor], token: int) -> Tensor:
        match op:
            case Embed():
                return self.weights[op.table][token]
            case RMSNorm():
                x = values[op.x]
                return x / torch.sqrt((x * x).mean() + op.eps) * self.weights[op.gain]
            case Linear() | Logits():
                return self.weights[op.weight] @ values[op.x]
            case Rope():
                cos, sin = self.table[self.position]
                low, high = values[op.x].reshape(op.heads, 2, op.head_dim // 2).unbind(1)
                return torch.stack([low * cos - high * sin, high * cos + low * sin], dim=1).flatten()
            case Attention():
                return self._attend(op, values)
            case Add():
                return values[op.a] + values[op.b]
            case SiluMul():
                gate = values[op.gate]
                return gate / (1 + torch.exp(-gate)) * values[op.up]
        raise AssertionError(op)

    def _attend(self, op: Attention, values: dict[str, Tensor]) -> Tensor:
        rows = self.cache.setdefault(op.layer, [])
        rows.append(tuple(values[name].reshape(op.kv_heads, op.head_dim) for name in (op.k, op.v)))
        queries = values[op.q].reshape(op.heads, op.head_dim)
        heads = []
        for head, query in enumerate(queries):
            kv_head = head * op.kv_heads // op.heads
            scores = torch.stack([query @ key[kv_head] for key, _ in rows]) * op.scale
            weights = torch.softmax(scores, dim=0)
            heads.append(sum(weight * value[kv_head] for weight, (_, value) in zip(weights, rows, strict=True)))
        return torch.cat(heads)


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    """Largest difference over the spread of what is wanted."""
    return float((found - wanted).abs().max() / (wanted.max() - wanted.min()))


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12)
