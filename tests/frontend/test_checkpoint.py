from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from amk.errors import NoTokenizerError, UnwritablePathError
from amk.frontend.aliases import ALIASES, find_alias, models_folder, shipped_config
from amk.frontend.checkpoint import resolve
from amk.frontend.config import check_config
from amk.frontend.errors import (
    BadFieldError,
    BadJsonError,
    ConfigChangedError,
    HubError,
    MissingCheckpointError,
    ModelObjectError,
    NoConfigError,
    PickleWeightsError,
    RemoteCodeError,
    TensorMissingError,
    UnknownModelError,
    WeightsUnavailableError,
)
from amk.frontend.graphs import graph_for
from tests.frontend.examples import llama, random_model, stored, write_checkpoint

EMBEDDING = "model.embed_tokens.weight"


# --- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alias", ALIASES)
def test_an_alias_resolves_to_its_shipped_config_without_weights_or_network(alias, tmp_path):
    checkpoint = resolve(alias.swapcase(), cache_dir=tmp_path)
    assert checkpoint.name == alias
    assert checkpoint.config["_name_or_path"] == ALIASES[alias]
    assert "shipped config" in checkpoint.source
    assert "not read yet" in checkpoint.source


@pytest.mark.parametrize("alias", ALIASES)
def test_a_shipped_config_is_of_a_supported_structure(alias):
    check_config(json.loads(shipped_config(alias).read_text()))


def test_shipped_folders_are_the_aliases():
    folders = {path.name for path in models_folder().iterdir() if (path / "config.json").is_file()}
    assert folders == {alias.lower() for alias in ALIASES}
    assert all((models_folder() / name / "README.md").is_file() for name in folders)


def test_an_installed_package_has_its_models_inside(tmp_path, monkeypatch):
    import amk

    package = tmp_path / "site" / "amk"
    monkeypatch.setattr(amk, "__file__", str(package / "__init__.py"))
    assert models_folder() == tmp_path / "site" / "models"
    (package / "_models").mkdir(parents=True)
    assert models_folder() == package / "_models"


def test_a_hub_id_of_an_alias_may_use_the_shipped_config(tmp_path):
    checkpoint = resolve("HuggingFaceTB/SmolLM2-135M", cache_dir=tmp_path)
    assert checkpoint.name == "HuggingFaceTB/SmolLM2-135M"
    assert find_alias("huggingfacetb/smollm2-135m") == "SmolLM2-135M"
    with pytest.raises(HubError, match="Name or service not known"):
        resolve("HuggingFaceTB/SmolLM2-135M", cache_dir=tmp_path, revision="v0")


def test_a_hub_id_without_network_is_one_readable_error(tmp_path):
    with pytest.raises(HubError, match=r"someone/something.*ConnectionError"):
        resolve("someone/something", cache_dir=tmp_path)


@pytest.mark.parametrize("model", ["SmolLM3-9T", "not a model", ""])
def test_an_unknown_name_lists_the_known(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownModelError) as error:
        resolve(model)
    assert "SmolLM2-135M-Instruct" in error.value.remedy


@pytest.mark.parametrize("model", ["./nowhere", "/no/such/folder", "~/no/such", "missing.gguf", Path("SmolLM2-135M")])
def test_a_missing_path_is_named(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingCheckpointError, match=Path(model).name):
        resolve(model)


# --- order and identity ----------------------------------------------------------------------------------------------


def test_a_prepared_folder_wins_over_the_shipped_config(home):
    write_checkpoint(home / "checkpoints" / "smollm2-135m", llama())
    checkpoint = resolve("SmolLM2-135M", local_files_only=True)
    assert checkpoint.config["vocab_size"] == 131
    assert EMBEDDING in checkpoint.tensor_index()
    assert "prepared folder" in checkpoint.source


def test_the_instruct_folder_never_serves_the_base_checkpoint(home, tmp_path):
    write_checkpoint(home / "checkpoints" / "smollm2-135m-instruct", llama())
    base = resolve("SmolLM2-135M", cache_dir=tmp_path)
    assert base.config["vocab_size"] == 49152
    with pytest.raises(WeightsUnavailableError):
        base.tensor_index()
    by_id = resolve("HuggingFaceTB/SmolLM2-135M-Instruct", cache_dir=tmp_path)
    with pytest.raises(WeightsUnavailableError):
        by_id.tensor_index()


def cached(cache: Path, repo: str, config: dict, **content) -> Path:
    """A HuggingFace cache that holds one revision of ``repo``."""
    folder = cache / f"models--{repo.replace('/', '--')}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    return write_checkpoint(folder / "snapshots" / ("0" * 40), config, content or None)


def test_the_huggingface_cache_wins_over_the_shipped_config(tmp_path):
    cached(tmp_path, ALIASES["SmolLM2-360M"], llama())
    checkpoint = resolve("SmolLM2-360M", cache_dir=tmp_path, local_files_only=True)
    assert "HuggingFace cache" in checkpoint.source
    assert checkpoint.load(EMBEDDING).shape == (131, 64)


def test_a_prepared_folder_wins_over_the_huggingface_cache(home, tmp_path):
    write_checkpoint(home / "checkpoints" / "smollm2-360m", llama(vocab_size=77))
    cached(tmp_path, ALIASES["SmolLM2-360M"], llama())
    assert resolve("SmolLM2-360M", cache_dir=tmp_path).config["vocab_size"] == 77


def test_a_download_whose_config_differs_from_the_shipped_one_is_named(tmp_path, monkeypatch):
    checkpoint = resolve("SmolLM2-360M", cache_dir=tmp_path)
    monkeypatch.setattr("huggingface_hub.model_info", lambda *_, **__: SimpleNamespace(siblings=[]))
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download",
        lambda repo, **_: cached(tmp_path, repo, {**checkpoint.config, "vocab_size": 5}, a=torch.ones(1)),
    )
    with pytest.raises(ConfigChangedError, match="vocab_size"):
        checkpoint.tensor_index()


def test_a_download_that_says_the_same_in_another_dialect_is_taken(tmp_path, monkeypatch):
    checkpoint = resolve("Llama-3.2-1B", cache_dir=tmp_path)
    config = {key: value for key, value in checkpoint.config.items() if not key.startswith("rope_")}
    config["rope_parameters"] = {**checkpoint.config["rope_scaling"], "rope_theta": 500000}
    monkeypatch.setattr("huggingface_hub.model_info", lambda *_, **__: SimpleNamespace(siblings=[]))
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda repo, **_: cached(tmp_path, repo, config, a=torch.ones(1))
    )
    assert set(checkpoint.tensor_index()) == {"a"}


def test_a_repository_of_pickles_is_refused_before_any_download(tmp_path, monkeypatch):
    files = [SimpleNamespace(rfilename=name) for name in ("config.json", "pytorch_model.bin")]
    monkeypatch.setattr("huggingface_hub.model_info", lambda *_, **__: SimpleNamespace(siblings=files))
    with pytest.raises(PickleWeightsError, match=r"SmolLM2-360M/pytorch_model\.bin"):
        resolve("SmolLM2-360M", cache_dir=tmp_path).tensor_index()


def test_weights_that_cannot_be_had_name_every_way(home, tmp_path):
    with pytest.raises(WeightsUnavailableError) as error:
        resolve("SmolLM2-135M-Instruct", cache_dir=tmp_path).load(EMBEDDING)
    text = str(error.value)
    for way in ("hf download", "amk.frontend.prepare", str(home / "checkpoints"), "path of a folder", "HF_TOKEN"):
        assert way in text
    with pytest.raises(WeightsUnavailableError, match="local_files_only"):
        resolve("SmolLM2-135M", cache_dir=tmp_path, local_files_only=True).tensor_index()


def test_digests_are_of_content(tmp_path):
    first = resolve(write_checkpoint(tmp_path / "a", llama()))
    again = resolve(write_checkpoint(tmp_path / "b", llama(torch_dtype="float16", _name_or_path="b")))
    assert first.config_digest() == again.config_digest()
    assert first.digest() == again.digest()
    other = resolve(write_checkpoint(tmp_path / "c", llama(), stored(random_model(llama(), seed=1))))
    assert other.config_digest() == first.config_digest()
    assert other.digest() != first.digest()
    assert resolve(write_checkpoint(tmp_path / "d", llama(rope_theta=10001.0))).config_digest() != first.config_digest()


def test_a_file_is_hashed_once(tmp_path, monkeypatch):
    checkpoint = resolve(write_checkpoint(tmp_path / "a", llama()))
    digest = checkpoint.digest()
    monkeypatch.setattr("amk.frontend.files.content_sha256", lambda _: pytest.fail("read again"))
    assert resolve(tmp_path / "a").digest() == digest


# --- configs ---------------------------------------------------------------------------------------------------------


def test_a_folder_without_config(tmp_path):
    with pytest.raises(NoConfigError, match=str(tmp_path)):
        resolve(tmp_path)


@pytest.mark.parametrize(("text", "line"), [('{\n"a": 1,\n}', 3), ("", 1), ("[1]", 1), ("\xff", 1)])
def test_a_config_that_is_not_json_names_file_and_line(tmp_path, text, line):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(BadJsonError, match=rf"config\.json, line {line}"):
        resolve(tmp_path)


def test_remote_code_is_refused(tmp_path):
    write_checkpoint(tmp_path, llama(auto_map={"AutoModelForCausalLM": "evil.Model"}))
    with pytest.raises(RemoteCodeError, match="auto_map"):
        resolve(tmp_path)


@pytest.mark.parametrize(
    ("config", "generation", "wanted"),
    [(2, None, {2}), ([2, 5], None, {2, 5}), (2, [7, 8], {2, 7, 8}), (None, 3, {3}), (None, None, set()), (2, 2, {2})],
)
def test_every_end_of_text_counts(tmp_path, config, generation, wanted):
    write_checkpoint(tmp_path, llama(eos_token_id=config), {"a": torch.ones(1)})
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    assert resolve(tmp_path).eos_token_ids() == frozenset(wanted)


def test_an_end_of_text_that_is_no_token_id(tmp_path):
    write_checkpoint(tmp_path, llama(eos_token_id="</s>"), {"a": torch.ones(1)})
    with pytest.raises(BadFieldError, match="eos_token_id"):
        resolve(tmp_path).eos_token_ids()


def test_a_wrong_generation_config_names_file_and_line(tmp_path):
    write_checkpoint(tmp_path, llama(), {"a": torch.ones(1)})
    (tmp_path / "generation_config.json").write_text("{\n\n oops")
    with pytest.raises(BadJsonError, match=r"generation_config\.json, line 3"):
        resolve(tmp_path).eos_token_ids()


def test_no_tokenizer(tmp_path):
    with pytest.raises(NoTokenizerError):
        resolve(write_checkpoint(tmp_path, llama())).tokenizer()
    with pytest.raises(NoTokenizerError):
        resolve(random_model(llama())).tokenizer()


def test_a_tokenizer_that_is_code_is_refused(tmp_path):
    write_checkpoint(tmp_path, llama(), {"a": torch.ones(1)})
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"auto_map": {"AutoTokenizer": ["evil.Tokenizer", None]}})
    )
    with pytest.raises(RemoteCodeError, match="tokenizer_config"):
        resolve(tmp_path).tokenizer()


# --- weights ---------------------------------------------------------------------------------------------------------


def test_a_tensor_is_loaded_by_name(tmp_path):
    tensors = stored(random_model(llama()))
    checkpoint = resolve(write_checkpoint(tmp_path, llama(), tensors, shards=2))
    assert torch.equal(checkpoint.load(EMBEDDING), tensors[EMBEDDING])
    with pytest.raises(TensorMissingError, match=r"no\.such"):
        checkpoint.load("no.such")


@pytest.mark.parametrize(("dtype", "name"), [(torch.float32, "F32"), (torch.float16, "F16")])
def test_weights_that_will_be_rounded_are_reported(tmp_path, dtype, name):
    tensors = {key: tensor.to(dtype) for key, tensor in stored(random_model(llama())).items()}
    checkpoint = resolve(write_checkpoint(tmp_path, llama(), tensors))
    assert not checkpoint.bf16_exact
    assert name in checkpoint.notes[0]
    assert "rounded" in checkpoint.notes[0]


def test_bf16_weights_need_no_note(tmp_path):
    checkpoint = resolve(write_checkpoint(tmp_path, llama()))
    assert checkpoint.bf16_exact
    assert checkpoint.notes == ()


def test_a_model_in_memory(tmp_path):
    model = random_model(llama(tie_word_embeddings=False))
    model.generation_config.eos_token_id = [2, 9]
    checkpoint = resolve(model)
    assert checkpoint.config["architectures"] == ["LlamaForCausalLM"]
    assert torch.equal(checkpoint.load("lm_head.weight"), model.lm_head.weight)
    assert checkpoint.eos_token_ids() == {2, 9}
    assert graph_for(checkpoint).layers == 2
    digest = checkpoint.digest()
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1
    assert resolve(model).digest() != digest


def test_objects_that_are_no_models():
    with pytest.raises(ModelObjectError, match="Linear"):
        resolve(torch.nn.Linear(2, 2))
    with torch.device("meta"):
        from transformers import LlamaConfig, LlamaForCausalLM

        hollow = LlamaForCausalLM(
            LlamaConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, vocab_size=9, intermediate_size=8)
        )
    with pytest.raises(ModelObjectError, match="meta device"):
        resolve(hollow).tensor_index()


# --- the machine -----------------------------------------------------------------------------------------------------


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    checkpoint = resolve(write_checkpoint(tmp_path / "a", llama()))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AMK_HOME", str(tmp_path / "file"))
    with pytest.raises(UnwritablePathError, match="AMK_HOME"):
        checkpoint.digest()
    with pytest.raises(UnwritablePathError, match="AMK_HOME"):
        graph_for(checkpoint)


def test_resolving_imports_neither_torch_nor_transformers(tmp_path):
    write_checkpoint(tmp_path, llama())
    program = (
        "import sys\n"
        "import amk.frontend.checkpoint, amk.frontend.graphs, amk.frontend.coverage, amk.frontend.prepare\n"
        f"checkpoint = amk.frontend.checkpoint.resolve({str(tmp_path)!r})\n"
        "assert len(checkpoint.tensor_index()) == 20, len(checkpoint.tensor_index())\n"
        "checkpoint.digest(), checkpoint.eos_token_ids(), checkpoint.notes\n"
        "amk.frontend.checkpoint.resolve('SmolLM2-135M')\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n", done.stderr
