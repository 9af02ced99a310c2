"""Each structure that is not supported, refused by the field, op or tensor at fault."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from amk.errors import EXIT_UNSUPPORTED, UnsupportedModelError
from amk.frontend import importer
from amk.frontend.config import check_config
from amk.frontend.errors import (
    BadFieldError,
    TraceError,
    UnrecognisedOpError,
    UnsupportedFieldError,
    UnsupportedStructureError,
    UnsupportedTypeError,
    UnsupportedVersionError,
)
from amk.frontend.importer import import_graph
from amk.frontend.trace import RANGES, trace_decode_step
from amk.ir.errors import NotFusableError
from tests.frontend.examples import LLAMA3, llama, of_type

FROM_THE_CONFIG = {
    "num_local_experts": llama(num_local_experts=8),
    "n_routed_experts": llama(n_routed_experts=64),
    "kv_lora_rank": llama(kv_lora_rank=512),
    "hidden_act": llama(hidden_act="relu"),
    "hidden_activation": llama(model_type="gemma", architectures=None, hidden_activation="gelu_new"),
    "quantization_config": llama(quantization_config={"quant_method": "gptq", "bits": 4}),
    "layer_types": llama(layer_types=["full_attention", "chunked_attention"]),
    "no_rope_layers": llama(model_type="smollm3", architectures=None, no_rope_layers=[1, 2]),
    "qk_layernorm": llama(model_type="stablelm", architectures=None, qk_layernorm=True),
    "use_qk_norm": llama(model_type="cohere", architectures=None, use_qk_norm=True),
    "use_parallel_residual": llama(model_type="stablelm", architectures=None, use_parallel_residual=True),
    "use_bidirectional_attention": llama(
        model_type="gemma3_text", architectures=None, use_bidirectional_attention=True
    ),
    "clip_qkv": llama(model_type="olmo", architectures=None, clip_qkv=8.0),
    "attention_chunk_size": llama(attention_chunk_size=16),
    "rope_scaling.rope_type": llama(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    "rope_parameters.rope_type": llama(rope_parameters={"rope_type": "longrope", "short_factor": [1.0]}),
    "rope_parameters.full_attention.rope_type": llama(
        model_type="gemma3_text",
        architectures=None,
        rope_parameters={"full_attention": {"rope_type": "longrope"}, "sliding_attention": {"rope_type": "default"}},
    ),
    "architectures": llama(architectures=["LlamaForSequenceClassification"]),
    "text_config": llama(text_config={"hidden_size": 1}, vision_config={"depth": 1}),
}

MALFORMED = {
    "hidden_size": llama(hidden_size=-64),
    "num_hidden_layers": llama(num_hidden_layers=0),
    "vocab_size": llama(vocab_size="131"),
    "intermediate_size": llama(intermediate_size=None),
    "num_key_value_heads": llama(num_key_value_heads=3),
    "num_attention_heads": llama(num_attention_heads=6, num_key_value_heads=6),
    "head_dim": llama(head_dim=15),
    "max_position_embeddings": llama(max_position_embeddings=True),
    "sliding_window": llama(model_type="mistral", architectures=None, sliding_window=0),
    "rms_norm_eps": llama(rms_norm_eps=-1.0),
    "layer_norm_eps": llama(layer_norm_eps="small"),
    "rope_theta": llama(rope_theta="large"),
    "residual_multiplier": llama(model_type="granite", architectures=None, residual_multiplier=0),
    "logits_scaling": llama(model_type="granite", architectures=None, logits_scaling=-8.0),
    "attn_logit_softcapping": llama(model_type="gemma2", architectures=None, attn_logit_softcapping=False),
    "partial_rotary_factor": llama(partial_rotary_factor=1.5),
    "rope_parameters.partial_rotary_factor": llama(rope_parameters={"partial_rotary_factor": 0.2}),
    "rope_parameters": llama(rope_parameters={"full_attention": {"rope_type": "default"}, "rope_theta": 1e4}),
    "rope_scaling": llama(rope_scaling="linear"),
    "rope_scaling.factor": llama(rope_scaling={"rope_type": "linear"}),
    "rope_scaling.low_freq_factor": llama(rope_scaling={**LLAMA3, "low_freq_factor": None}),
    "rope_parameters.rope_theta": llama(rope_parameters={"rope_theta": 0}),
    "layer_types": llama(layer_types=7),
}

FROM_THE_TRACE = {
    "olmo": (of_type("olmo"), "aten.layer_norm"),
    "cohere": (of_type("cohere", logit_scale=1.0), "input_layernorm.weight"),
}

BEHIND_THE_CONFIG = {
    "gate": (llama(hidden_act="relu"), "aten.relu"),
    "another gelu": (llama(hidden_act="gelu_new"), "gate_proj.weight"),
    "norms of heads": (of_type("stablelm", qk_layernorm=True), "self_attn"),
    "parallel residual": (of_type("stablelm", use_parallel_residual=True), "supported structure"),
    "attention both ways": (of_type("gemma3_text", use_bidirectional_attention=True), "self_attn"),
    "length in the rotary factors": (llama(rope_scaling={"rope_type": "dynamic", "factor": 2.0}), "cannot be traced"),
}


@pytest.mark.parametrize(("field", "config"), FROM_THE_CONFIG.items(), ids=FROM_THE_CONFIG.keys())
def test_a_field_of_the_config_is_named(field, config):
    with pytest.raises(UnsupportedFieldError) as refusal:
        check_config(config)
    assert refusal.value.facts["field"] == field
    assert refusal.value.code == "AMK-F302"
    assert refusal.value.exit_code == EXIT_UNSUPPORTED


@pytest.mark.parametrize(
    "how",
    [
        {"quant_method": "compressed-tensors", "format": "pack-quantized"},
        {"quant_method": "compressed-tensors", "format": "int-quantized"},
        {"quant_method": "torchao", "quant_type": "int8_weight_only"},
    ],
    ids=lambda how: "-".join(how.values()),
)
def test_checkpoints_that_are_integers_already_are_refused(how):
    with pytest.raises(UnsupportedFieldError, match=r"quantization_config.*before it was quantized") as refusal:
        check_config(llama(quantization_config=how))
    assert refusal.value.facts["field"] == "quantization_config"


@pytest.mark.parametrize(("field", "config"), MALFORMED.items(), ids=MALFORMED.keys())
def test_a_malformed_field_is_named(field, config):
    with pytest.raises(BadFieldError) as refusal:
        check_config(config)
    assert refusal.value.facts["field"] == field


@pytest.mark.parametrize("model_type", ["gpt2", "mixtral", "deepseek_v3", "llama4", None, 7])
def test_an_unknown_type_is_named(model_type):
    with pytest.raises(UnsupportedTypeError, match=str(model_type)):
        check_config(llama(model_type=model_type))


@pytest.mark.parametrize(("config", "named"), FROM_THE_TRACE.values(), ids=FROM_THE_TRACE.keys())
def test_a_family_is_refused_by_its_trace(config, named):
    with pytest.raises(UnsupportedModelError, match=named) as refusal:
        import_graph(config)
    assert isinstance(refusal.value, UnrecognisedOpError | UnsupportedStructureError)


@pytest.mark.parametrize(("config", "named"), BEHIND_THE_CONFIG.values(), ids=BEHIND_THE_CONFIG.keys())
def test_the_trace_refuses_what_the_config_check_would_have(config, named, monkeypatch):
    monkeypatch.setattr(importer, "check_config", lambda _: None)
    with pytest.raises(UnsupportedModelError, match=named):
        import_graph(config)


def test_a_default_of_transformers_is_checked_too(monkeypatch):
    checked = []
    monkeypatch.setattr(importer, "check_config", checked.append)
    importer.read_graph(llama(model_type="mistral", architectures=None))
    given, settled = checked
    assert "sliding_window" not in given
    assert settled["sliding_window"] == 4096


PARTIAL = {
    "llama": {"partial_rotary_factor": 0.5},
    "gemma3_text": {
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_theta": None,
    },
}


@pytest.mark.parametrize("model_type", PARTIAL)
def test_a_partial_rotary_factor_that_the_class_does_not_read_is_refused(model_type):
    config = llama(model_type=model_type, architectures=None, **PARTIAL[model_type])
    with pytest.raises(UnsupportedFieldError, match=rf"partial_rotary_factor=0\.5.*{model_type} turns the whole head"):
        import_graph(config)


def test_what_the_passes_cannot_take_is_refused(monkeypatch):
    def refuse(self, graph):
        raise NotFusableError(op="Add", value="middle", why="there is no hop for it")

    monkeypatch.setattr(importer.Fuse, "run", refuse)
    with pytest.raises(UnsupportedStructureError, match="Add middle: there is no hop for it"):
        import_graph(llama())


def test_another_class_than_that_of_the_type_is_refused():
    with pytest.raises(UnsupportedStructureError, match="MineForCausalLM"):
        import_graph(llama(architectures=["MineForCausalLM"]))


def test_what_transformers_cannot_build_is_refused(monkeypatch):
    monkeypatch.setattr(importer, "check_config", lambda _: None)
    with pytest.raises(TraceError, match="cannot be traced"):
        import_graph(llama(num_key_value_heads=3))


@pytest.mark.parametrize(
    ("package", "version"),
    [
        ("transformers", "5.16.2"),
        ("transformers", "5.25.0"),
        ("transformers", "4.57.1"),
        ("torch", "2.10.0+cpu"),
        ("torch", "2.15.0a0"),
    ],
)
def test_a_release_outside_the_range_is_refused(package, version, monkeypatch):
    versions = {"torch": "2.13.0", "transformers": "5.24.0", package: version}
    monkeypatch.setattr("importlib.metadata.version", versions.__getitem__)
    with pytest.raises(UnsupportedVersionError, match=rf"{package} {version[:4]}"):
        trace_decode_step(llama())


def test_the_ranges_are_those_of_the_package():
    wanted = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["dependencies"]
    assert all(f"{package}>={low},<{high}" in wanted for package, (low, high) in RANGES.items())


def test_refusing_from_the_config_imports_neither_torch_nor_transformers():
    program = (
        "import sys\n"
        "from amk.frontend.config import check_config\n"
        "from amk.errors import UnsupportedModelError\n"
        "try:\n"
        "    check_config({'model_type': 'llama', 'num_local_experts': 8})\n"
        "except UnsupportedModelError:\n"
        "    print(sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
