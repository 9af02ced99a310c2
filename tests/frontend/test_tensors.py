from __future__ import annotations

import contextlib
import json

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from amk.frontend.errors import (
    BadJsonError,
    CorruptShardError,
    IndexMismatchError,
    MissingShardError,
    NoWeightsError,
    PickleWeightsError,
)
from amk.frontend.tensors import load_tensor, read_header, tensor_index
from tests.frontend.examples import llama, write_checkpoint

SHARD = "model-00002-of-00003.safetensors"


@pytest.fixture
def shards(tmp_path):
    return write_checkpoint(tmp_path / "shards", llama(), shards=3)


def test_one_file_and_shards_have_one_index(tmp_path, shards):
    single = tensor_index(write_checkpoint(tmp_path / "single", llama()))
    split = tensor_index(shards)
    assert {(i.name, i.shape, i.dtype) for i in single.values()} == {(i.name, i.shape, i.dtype) for i in split.values()}
    name = "model.layers.0.self_attn.k_proj.weight"
    assert (split[name].shape, split[name].dtype) == ((32, 64), "BF16")
    assert torch.equal(load_tensor(single[name]), load_tensor(split[name]))


def test_a_missing_shard_is_named(shards):
    (shards / SHARD).unlink()
    with pytest.raises(MissingShardError, match=SHARD):
        tensor_index(shards)


@pytest.mark.parametrize("kept", [0, 4, 100, -1])
def test_a_truncated_shard_is_named(shards, kept):
    data = (shards / SHARD).read_bytes()
    (shards / SHARD).write_bytes(data[:kept])
    with pytest.raises(CorruptShardError, match=SHARD):
        tensor_index(shards)


def test_bytes_after_the_last_tensor_are_refused(shards):
    with (shards / SHARD).open("ab") as file:
        file.write(b"\0\0")
    with pytest.raises(CorruptShardError, match="bytes of tensors"):
        tensor_index(shards)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_to_a_header_is_a_traceback(tmp_path, data):
    path = tmp_path / "x.safetensors"
    save_file({"a": torch.ones(2, 3), "b": torch.ones(4, dtype=torch.bfloat16)}, path)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(CorruptShardError):
        assert len(read_header(path)) <= 2


def test_an_index_that_names_a_tensor_its_shard_lacks(shards):
    index = shards / "model.safetensors.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["model.layers.9.ghost"] = SHARD
    index.write_text(json.dumps(content))
    with pytest.raises(IndexMismatchError, match=r"model\.layers\.9\.ghost"):
        tensor_index(shards)


def test_a_tensor_that_two_shards_hold(shards):
    (shards / SHARD).write_bytes((shards / "model-00001-of-00003.safetensors").read_bytes())
    with pytest.raises(IndexMismatchError, match="both hold it"):
        tensor_index(shards)


@pytest.mark.parametrize("file", ["../model.safetensors", "/etc/passwd", "..", 7])
def test_a_shard_outside_the_folder(shards, file):
    index = shards / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(IndexMismatchError, match="same folder"):
        tensor_index(shards)


def test_an_index_that_is_not_json_names_file_and_line(shards):
    index = shards / "model.safetensors.index.json"
    index.write_text('{\n  "weight_map": {\n    "a": \n  }\n}')
    with pytest.raises(BadJsonError, match=r"index\.json, line 4"):
        tensor_index(shards)


@pytest.mark.parametrize("content", ["{}", '{"weight_map": {}}', '{"weight_map": 3}'])
def test_an_index_without_a_map(shards, content):
    (shards / "model.safetensors.index.json").write_text(content)
    with pytest.raises(NoWeightsError, match="weight_map"):
        tensor_index(shards)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth"])
def test_a_pickle_is_refused_by_name(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x80\x04.")
    with pytest.raises(PickleWeightsError, match=name):
        tensor_index(tmp_path)


def test_an_index_of_pickles_is_refused_by_name(shards):
    index = shards / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "pytorch_model-00001.bin"}}))
    with pytest.raises(PickleWeightsError, match=r"pytorch_model-00001\.bin"):
        tensor_index(shards)


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(NoWeightsError, match=str(tmp_path)):
        tensor_index(tmp_path)
