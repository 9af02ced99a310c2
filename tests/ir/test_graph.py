"""Graphs as data: they read back as they were written, and their digest is of everything in them."""

from __future__ import annotations

import json

import msgspec
import pytest
from msgspec.structs import replace

from amk.ir.graph import Graph, RopeTable
from tests.builders import llama_graph


@pytest.mark.parametrize("tied", [True, False])
def test_round_trip(tied: bool) -> None:
    graph = llama_graph(tied=tied)
    data = graph.to_json()
    assert Graph.from_json(data) == graph
    assert Graph.from_json(data).to_json() == data
    assert b" " not in data
    json.loads(data, object_pairs_hook=assert_sorted)


def assert_sorted(pairs: list[tuple[str, object]]) -> None:
    names = [name for name, _ in pairs]
    assert names == sorted(set(names))


def test_the_digest_is_of_everything() -> None:
    graph = llama_graph()
    other_rope = RopeTable(head_dim=graph.ropes[0].head_dim, spec=(("rope_theta", "1000000.0"),))
    variants = [
        graph,
        llama_graph(tied=False),
        llama_graph(vocab=98),
        replace(graph, ropes=(other_rope,)),
        replace(graph, family="mistral"),
        replace(graph, context_limit=graph.context_limit + 1),
        replace(graph, ops=graph.ops[:-1]),
    ]
    assert len({variant.digest() for variant in variants}) == len(variants)
    assert llama_graph().digest() == graph.digest()


def test_a_tensor_is_found_by_name() -> None:
    graph = llama_graph(hidden=64, vocab=97)
    assert graph.tensor("model.embed_tokens.weight").shape == (97, 64)
    with pytest.raises(KeyError, match=r"lm_head\.weight"):
        graph.tensor("lm_head.weight")


def test_a_tied_table_is_one_tensor() -> None:
    names = [tensor.name for tensor in llama_graph(tied=True).tensors]
    assert names == sorted(set(names))
    assert "lm_head.weight" not in names
    assert "lm_head.weight" in {tensor.name for tensor in llama_graph(tied=False).tensors}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"op":"add"', b'"op":"subtract"'),
        (b'"version":1', b'"version":2'),
        (b'"family":"llama"', b'"family":"llama","extra":1'),
        (b'"vocab":97', b'"vocab":"97"'),
        (b'"vocab":97', b'"vocab":true'),
    ],
)
def test_what_is_not_a_graph_is_refused(old: bytes, new: bytes) -> None:
    # The version is the default, so it is not written; make it explicit to change it.
    data = llama_graph().to_json()[:-1] + b',"version":1}'
    assert Graph.from_json(data)
    assert old in data
    with pytest.raises(msgspec.ValidationError):
        Graph.from_json(data.replace(old, new, 1))
