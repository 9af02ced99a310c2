"""Small configs, checkpoints and an interpreter of graphs that the tests of this room share."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from amk.frontend.rope import rope_table
from amk.ir.graph import (
    Add,
    Attention,
    Embed,
    GatedMul,
    Graph,
    HeadNorm,
    LayerNorm,
    Linear,
    Logits,
    RMSNorm,
    Rope,
)

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


def of_type(model_type: str, **changes: Any) -> dict[str, Any]:
    """A tiny config of another family, all its other fields as its transformers class has them."""
    from amk.frontend.trace import hf_config

    sizes = {key: value for key, value in llama(**changes).items() if key not in ("architectures", "model_type")}
    return hf_config({"model_type": model_type, **sizes}).to_dict()


FAMILIES = {
    "llama with biases": llama(attention_bias=True, mlp_bias=True),
    "qwen2": of_type("qwen2"),
    "qwen2 with windows": of_type("qwen2", use_sliding_window=True, sliding_window=7, max_window_layers=1),
    "qwen3": of_type("qwen3", head_dim=16),
    "qwen3 of one kv head": of_type("qwen3", head_dim=16, num_key_value_heads=1),
    "mistral with a window": of_type("mistral", sliding_window=7, tie_word_embeddings=False),
    "granite": of_type(
        "granite",
        embedding_multiplier=12.0,
        attention_multiplier=0.1,
        residual_multiplier=0.22,
        logits_scaling=6.0,
    ),
    "smollm3": of_type("smollm3", num_hidden_layers=3, no_rope_layers=[1, 0, 1]),
    "phi3": of_type("phi3", sliding_window=7, tie_word_embeddings=False),
    "phi3 of partial rotary": of_type("phi3", partial_rotary_factor=0.75),
    "stablelm": of_type("stablelm", partial_rotary_factor=0.25, use_qkv_bias=True, tie_word_embeddings=False),
    "stablelm without biases": of_type("stablelm", partial_rotary_factor=0.5),
    "olmo2": of_type("olmo2", tie_word_embeddings=False),
    "olmo2 of one kv head": of_type("olmo2", num_key_value_heads=1),
    "gemma": of_type("gemma", head_dim=32, hidden_act="gelu_pytorch_tanh", hidden_size=48),
    "gemma2": of_type(
        "gemma2",
        head_dim=16,
        hidden_size=80,
        sliding_window=7,
        query_pre_attn_scalar=20,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        num_hidden_layers=3,
    ),
    "gemma3": of_type(
        "gemma3_text",
        head_dim=16,
        hidden_size=80,
        sliding_window=7,
        sliding_window_pattern=2,
        query_pre_attn_scalar=20,
        rope_theta=1e6,
        rope_local_base_freq=100.0,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        num_hidden_layers=3,
    ),
}
"""A tiny config of each family beside the plain Llama; windows are passed within a few tokens."""


def tables(graph: Graph, config: dict[str, Any], positions: int) -> list[np.ndarray]:
    """The rotary tables of ``graph``, which was made of ``config``."""
    return [rope_table(config, positions, layer_type=rope.layer_type) for rope in graph.ropes]


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


ACTIVATIONS = {
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


def cap(x: Tensor, softcap: float | None) -> Tensor:
    return x if softcap is None else softcap * torch.tanh(x / softcap)


class Interpreter:
    """Runs a graph in float32, token by token: what each op says, and nothing it does not say."""

    def __init__(self, graph: Graph, load: Callable[[str], Tensor], tables: Sequence[np.ndarray]) -> None:
        self.graph = graph
        self.weights = {tensor.name: load(tensor.name).float() for tensor in graph.tensors}
        for tensor in graph.tensors:
            assert tuple(self.weights[tensor.name].shape) == tensor.shape
        assert [table.shape[2] * 2 for table in tables] == [rope.head_dim for rope in graph.ropes]
        self.tables = [torch.from_numpy(table) for table in tables]
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
                return self.weights[op.table][token] * op.scale
            case RMSNorm():
                return self._norm(op, values[op.x])
            case HeadNorm():
                x = values[op.x].reshape(op.heads, op.head_dim)
                return self._norm(op, x if op.over == "head" else x.flatten()).flatten()
            case LayerNorm():
                x = values[op.x] - values[op.x].mean()
                normed = x / torch.sqrt((x * x).mean() + op.eps) * self.weights[op.gain]
                return normed if op.bias is None else normed + self.weights[op.bias]
            case Linear():
                rows = slice(None) if op.rows is None else slice(*op.rows)
                return self._project(op, self.weights[op.weight][rows], values)
            case Logits():
                return cap(self._project(op, self.weights[op.weight], values) * op.scale, op.softcap)
            case Rope():
                return self._turn(op, values[op.x].reshape(op.heads, op.head_dim))
            case Attention():
                return self._attend(op, values)
            case Add():
                return values[op.a] + values[op.b] * op.scale
            case GatedMul():
                return ACTIVATIONS[op.activation](values[op.gate]) * values[op.up]
        raise AssertionError(op)

    def _norm(self, op: RMSNorm | HeadNorm, x: Tensor) -> Tensor:
        gain = self.weights[op.gain] + (1 if op.plus_one else 0)
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + op.eps) * gain

    def _project(self, op: Linear | Logits, weight: Tensor, values: dict[str, Tensor]) -> Tensor:
        product = weight @ values[op.x]
        return product if op.bias is None else product + self.weights[op.bias]

    def _turn(self, op: Rope, x: Tensor) -> Tensor:
        cos, sin = self.tables[op.table][self.position]
        turning = op.rotary_dim or op.head_dim
        low, high = x[:, : turning // 2], x[:, turning // 2 : turning]
        return torch.cat([low * cos - high * sin, high * cos + low * sin, x[:, turning:]], dim=1).flatten()

    def _attend(self, op: Attention, values: dict[str, Tensor]) -> Tensor:
        rows = self.cache.setdefault(op.layer, [])
        rows.append(tuple(values[name].reshape(op.kv_heads, op.head_dim) for name in (op.k, op.v)))
        seen = rows if op.window is None else rows[-op.window :]
        queries = values[op.q].reshape(op.heads, op.head_dim)
        heads = []
        for head, query in enumerate(queries):
            kv_head = head * op.kv_heads // op.heads
            scores = cap(torch.stack([query @ key[kv_head] for key, _ in seen]) * op.scale, op.softcap)
            weights = torch.softmax(scores, dim=0)
            heads.append(sum(weight * value[kv_head] for weight, (_, value) in zip(weights, seen, strict=True)))
        return torch.cat(heads)


def relative_difference(found: Tensor, wanted: Tensor) -> float:
    """Largest difference over the spread of what is wanted."""
    return float((found - wanted).abs().max() / (wanted.max() - wanted.min()))


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12)
