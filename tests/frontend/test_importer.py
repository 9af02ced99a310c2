"""The importer against HuggingFace: a graph is right if running just what it says gives HuggingFace's logits."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from amk.frontend.importer import import_graph
from amk.ir.graph import Attention, Graph, Logits, RMSNorm, Rope
from tests.frontend.examples import FAMILIES, LLAMA3, Interpreter, llama, random_model, relative_difference, tables

SHAPES = {
    "gqa 4/2, tied": llama(),
    "untied": llama(tie_word_embeddings=False),
    "gqa 9/3, hidden 576": llama(hidden_size=576, num_attention_heads=9, num_key_value_heads=3, num_hidden_layers=1),
    "gqa 7/1": llama(hidden_size=112, num_attention_heads=7, num_key_value_heads=1),
    "mha 5/5": llama(hidden_size=80, num_attention_heads=5, num_key_value_heads=5),
    "one head": llama(hidden_size=32, num_attention_heads=1, num_key_value_heads=1),
    "head_dim not hidden/heads": llama(head_dim=32),
    "head_dim null": llama(head_dim=None, num_key_value_heads=None),
    "vocab 32001": llama(vocab_size=32001, num_hidden_layers=1),
    "sizes of the traced cache": llama(hidden_size=46, num_attention_heads=23, num_key_value_heads=23, head_dim=46),
    "theta 1e6 inside": llama(rope_theta=None, rope_parameters={"rope_theta": 1e6, "rope_type": "default"}),
    "llama3 past its original context": llama(rope_scaling=LLAMA3),
    "linear": llama(rope_scaling={"type": "linear", "factor": 4.0}),
    "yarn": llama(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}),
    "mistral without a window": llama(
        model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None, tie_word_embeddings=False
    ),
    "eps 1e-3": llama(rms_norm_eps=1e-3),
    **FAMILIES,
}


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES.keys())
def test_running_the_graph_gives_the_logits_of_huggingface(config):
    model = random_model(config)
    tokens = torch.randint(0, config["vocab_size"], (1, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        wanted = model(tokens).logits[0]
    graph = import_graph(config)
    interpreter = Interpreter(graph, model.state_dict().__getitem__, tables(graph, config, tokens.shape[1]))
    found = torch.stack([interpreter.step(int(token)) for token in tokens[0]])
    assert relative_difference(found, wanted) < 2e-5
    assert torch.equal(found.argmax(-1), wanted.argmax(-1))


def test_the_ops_of_a_layer():
    graph = import_graph(llama())
    counts = Counter(type(op).__name__ for op in graph.ops)
    assert counts == {
        "Embed": 1,
        "RMSNorm": 5,
        "Linear": 14,
        "Rope": 4,
        "Attention": 2,
        "Add": 4,
        "GatedMul": 2,
        "Logits": 1,
    }
    assert (graph.family, graph.hidden, graph.vocab, graph.layers, graph.context_limit) == ("llama", 64, 131, 2, 64)
    assert isinstance(graph.ops[-1], Logits)


def test_figures_are_those_of_the_trace():
    graph = import_graph(llama(rms_norm_eps=3e-5, head_dim=32))
    attention = [op for op in graph.ops if isinstance(op, Attention)]
    assert {op.eps for op in graph.ops if isinstance(op, RMSNorm)} == {3e-5}
    assert [(op.layer, op.heads, op.kv_heads, op.head_dim, op.scale) for op in attention] == [
        (0, 4, 2, 32, 32**-0.5),
        (1, 4, 2, 32, 32**-0.5),
    ]
    assert [op.heads for op in graph.ops if isinstance(op, Rope)] == [4, 2, 4, 2]


def test_a_tied_head_is_one_tensor_and_an_untied_one_two():
    tied, untied = import_graph(llama()), import_graph(llama(tie_word_embeddings=False))
    assert tied.ops[-1].weight == "model.embed_tokens.weight"
    assert untied.ops[-1].weight == "lm_head.weight"
    assert {tensor.name for tensor in untied.tensors} - {tensor.name for tensor in tied.tensors} == {"lm_head.weight"}


def test_values_are_assigned_once_and_before_use():
    defined: set[str] = set()
    for op in import_graph(llama()).ops:
        operands = [getattr(op, field) for field in ("x", "q", "k", "v", "a", "b", "gate", "up") if hasattr(op, field)]
        assert defined.issuperset(operands)
        assert op.out not in defined
        defined.add(op.out)


def test_a_graph_survives_json_and_its_digest_is_of_what_matters():
    graph = import_graph(llama())
    assert Graph.from_json(graph.to_json()) == graph
    same = import_graph(llama(torch_dtype="float16", attention_dropout=0.1, _name_or_path="elsewhere", use_cache=False))
    assert same.digest() == graph.digest()
    assert import_graph(llama(rope_theta=1e6)).digest() != graph.digest()


DIALECTS = [
    llama(rope_theta=500000, rope_scaling=LLAMA3),
    llama(rope_theta=500000.0, rope_scaling={**LLAMA3, "type": "llama3"}),
    llama(rope_theta=None, rope_parameters={**LLAMA3, "rope_theta": 5e5}),
]


def test_dialects_of_rotary_fields_are_one_graph():
    assert len({import_graph(config).digest() for config in DIALECTS}) == 1
