"""Each structure that is not plain Llama, refused by the field, op or tensor at fault."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

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
from amk.frontend.trace import RANGES, hf_config, trace_decode_step
from tests.frontend.examples import LLAMA3, llama


def of_type(model_type: str, **changes: Any) -> dict[str, Any]:
    """A tiny config of another family, all its other fields as its transformers class has them."""
    sizes = {key: value for key, value in llama(**changes).items() if key not in ("architectures", "model_type")}
    return hf_config({"model_type": model_type, **sizes}).to_dict()


FROM_THE_CONFIG = {
    "num_local_experts": llama(num_local_experts=8),
    "n_routed_experts": llama(n_routed_experts=64),
    "kv_lora_rank": llama(kv_lora_rank=512),
    "attention_bias": llama(attention_bias=True),
    "mlp_bias": llama(mlp_bias=True),
    "hidden_act": llama(hidden_act="gelu"),
    "quantization_config": llama(quantization_config={"quant_method": "gptq", "bits": 4}),
    "partial_rotary_factor": llama(partial_rotary_factor=0.5),
    "rope_parameters.partial_rotary_factor": None,
    "sliding_window": llama(model_type="mistral", architectures=None, sliding_window=16),
    "layer_types": llama(layer_types=["full_attention", "sliding_attention"]),
    "no_rope_layers": llama(model_type="smollm3", architectures=None, no_rope_layers=[1, 0]),
    "embedding_multiplier": llama(model_type="granite", architectures=None, embedding_multiplier=12.0),
    "residual_multiplier": llama(model_type="granite", architectures=None, residual_multiplier=0.22),
    "logits_scaling": llama(model_type="granite", architectures=None, logits_scaling=8.0),
    "attn_logit_softcapping": llama(model_type="gemma2", architectures=None, attn_logit_softcapping=50.0),
    "final_logit_softcapping": llama(model_type="gemma2", architectures=None, final_logit_softcapping=30.0),
    "rope_scaling.rope_type": llama(rope_scaling={"rope_type": "dynamic", "factor": 2.0}),
    "rope_parameters.rope_type": llama(rope_parameters={"rope_type": "longrope", "short_factor": [1.0]}),
    "architectures": llama(architectures=["LlamaForSequenceClassification"]),
    "text_config": llama(text_config={}, vision_config={"depth": 1}),
}
FROM_THE_CONFIG = {field: config for field, config in FROM_THE_CONFIG.items() if config}
FROM_THE_CONFIG["text_config"]["text_config"] = {"hidden_size": 1}

MALFORMED = {
    "hidden_size": llama(hidden_size=-64),
    "num_hidden_layers": llama(num_hidden_layers=0),
    "vocab_size": llama(vocab_size="131"),
    "intermediate_size": llama(intermediate_size=None),
    "num_key_value_heads": llama(num_key_value_heads=3),
    "num_attention_heads": llama(num_attention_heads=6, num_key_value_heads=6),
    "head_dim": llama(head_dim=15),
    "max_position_embeddings": llama(max_position_embeddings=True),
    "rms_norm_eps": llama(rms_norm_eps=-1.0),
    "rope_theta": llama(rope_theta="large"),
    "rope_scaling": llama(rope_scaling="linear"),
    "rope_scaling.factor": llama(rope_scaling={"rope_type": "linear"}),
    "rope_scaling.low_freq_factor": llama(rope_scaling={**LLAMA3, "low_freq_factor": None}),
    "rope_parameters.rope_theta": llama(rope_parameters={"rope_theta": 0}),
    "layer_types": llama(layer_types=7),
}

FROM_THE_TRACE = {
    "qwen2": (of_type("qwen2"), "q_proj.bias"),
    "qwen3": (of_type("qwen3"), "self_attn.q_norm.weight"),
    "stablelm": (of_type("stablelm", partial_rotary_factor=1.0), "aten.layer_norm"),
    "olmo": (of_type("olmo"), "aten.layer_norm"),
    "olmo2": (of_type("olmo2"), "post_feedforward_layernorm.weight"),
    "phi3": (of_type("phi3"), "qkv_proj.weight"),
    "cohere": (of_type("cohere", logit_scale=1.0), "input_layernorm.weight"),
    "gemma with a silu gate": (of_type("gemma", hidden_act="silu"), "embed_tokens.weight"),
}

BEHIND_THE_CONFIG = {
    "biases": (llama(attention_bias=True), "q_proj.bias"),
    "mlp biases": (llama(mlp_bias=True), "gate_proj.bias"),
    "gate": (llama(hidden_act="gelu"), "aten.gelu"),
    "embedding multiplier": (of_type("granite", embedding_multiplier=12.0), "embed_tokens.weight"),
    "residual multiplier": (of_type("granite", residual_multiplier=0.22), "o_proj.weight"),
    "logits scaling": (of_type("granite", logits_scaling=8.0), "embed_tokens.weight"),
    "layer without rope": (of_type("smollm3", no_rope_layers=[1, 0]), "the queries of layer 1 to be a Rope"),
    "partial rotary": (of_type("stablelm", partial_rotary_factor=0.25), "aten.layer_norm"),
    "sliding window": (of_type("mistral", sliding_window=16), "self_attn"),
}


@pytest.mark.parametrize(("field", "config"), FROM_THE_CONFIG.items(), ids=FROM_THE_CONFIG.keys())
def test_a_field_of_the_config_is_named(field, config):
    with pytest.raises(UnsupportedFieldError) as refusal:
        check_config(config)
    assert refusal.value.facts["field"] == field
    assert refusal.value.code == "AMK-F302"
    assert refusal.value.exit_code == EXIT_UNSUPPORTED


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


def test_a_default_of_transformers_is_seen_too():
    config = llama(model_type="mistral", architectures=None)
    assert "sliding_window" not in config
    with pytest.raises(UnsupportedFieldError, match="sliding_window=4096"):
        import_graph(config)


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
