"""Each wrong input gives one readable error, its mend, and the right exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amk.cli.app import main
from tests.checkpoints import save_llama


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in three shards."""
    return save_llama(tmp_path_factory.mktemp("tiny"), shard_size="60KB")


@pytest.fixture
def world(tmp_path: Path, tiny: Path, amk_home: Path) -> Path:
    """A folder with one of each thing that can be wrong."""
    config = json.loads((tiny / "config.json").read_text())
    for name, fields in {
        "auto_map": {"auto_map": {"AutoModel": "evil.Model"}},
        "pickle": {},
        "moe": {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"], "num_local_experts": 8},
        "relu": {"hidden_act": "relu"},
        "config_only": {},
    }.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({**config, **fields}))
    (tmp_path / "pickle" / "pytorch_model.bin").write_bytes(b"\x80\x04")
    for name in ("missing_shard", "corrupt_shard"):
        folder = tmp_path / name
        folder.mkdir()
        for file in tiny.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
    shards = sorted(tiny.glob("*.safetensors"))
    assert len(shards) >= 3
    (tmp_path / "missing_shard" / shards[1].name).unlink()
    (tmp_path / "corrupt_shard" / shards[1].name).write_bytes(shards[1].read_bytes()[:100])
    (tmp_path / "empty").mkdir()
    (tmp_path / "bad_json").mkdir()
    (tmp_path / "bad_json" / "config.json").write_text('{\n"a": 1,\n')
    (tmp_path / "schedule.json").write_text("{}")
    return tmp_path


WRONG = {
    "no such folder": (["compile", "./none"], 2, "AMK-C201"),
    "no config": (["compile", "./empty"], 2, "AMK-C203"),
    "wrong JSON": (["compile", "./bad_json"], 2, "AMK-C204"),
    "remote code": (["compile", "./auto_map"], 2, "AMK-C205"),
    "pickled weights": (["compile", "./pickle", "--arch", "cpu"], 2, "AMK-C206"),
    "missing shard": (["compile", "./missing_shard", "--arch", "cpu"], 2, "AMK-C208"),
    "corrupt shard": (["compile", "./corrupt_shard", "--arch", "cpu"], 2, "AMK-C209"),
    "no weights": (["generate", "./config_only", "--raw", "--arch", "cpu", "hi"], 2, "AMK-C207"),
    "no such alias": (["compile", "nosuch"], 2, "AMK-C202"),
    "no network": (["compile", "org/nosuch"], 2, "AMK-C212"),
    "weights not at hand": (["generate", "SmolLM2-360M", "--arch", "cpu", "hi"], 2, "AMK-C211"),
    "unsupported family": (["compile", "./moe"], 3, "AMK-F301"),
    "unsupported field": (["compile", "./relu"], 3, "AMK-F302"),
    "unknown arch": (["compile", "SmolLM2-135M", "--arch", "sm_70"], 2, "AMK-U101"),
    "unknown target": (["compile", "SmolLM2-135M", "--target", "tpu"], 2, "AMK-U102"),
    "arch and target differ": (["compile", "SmolLM2-135M", "--arch", "sm_80", "--target", "h200"], 2, "AMK-U103"),
    "context too long": (["compile", "SmolLM2-135M", "--arch", "cpu", "--max-context", "99999"], 2, "AMK-U104"),
    "output of no kind": (["compile", "SmolLM2-135M", "-o", "x.txt"], 2, "AMK-U104"),
    "empty schedule file": (["validate", "schedule.json"], 2, "AMK-S401"),
    "no schedule file": (["validate", "none.json"], 2, "AMK-U110"),
    "no artefact": (["validate", "none.amk"], 2, "AMK-U110"),
    "no prompts": (["parity", "SmolLM2-135M", "--prompts", "none.json"], 2, "AMK-U110"),
    "no such command": (["bogus"], 2, "AMK-U100"),
    "no such option": (["compile", "SmolLM2-135M", "--bogus"], 2, "AMK-U100"),
}


@pytest.mark.parametrize(("words", "exit_code", "code"), WRONG.values(), ids=WRONG)
def test_one_error_one_mend_one_exit_code(
    world: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    exit_code: int,
    code: str,
) -> None:
    monkeypatch.chdir(world)
    assert main(words) == exit_code
    err = capsys.readouterr().err
    assert err.count(code) == 1, err
    assert "mend:" in err
    assert "Traceback" not in err
    assert main([*words, "--json"]) == exit_code
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], bool(error["mend"])) == (code, True)


def test_a_missing_shard_is_named(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", str(world / "missing_shard"), "--arch", "cpu"]) == 2
    assert "-00002-of-" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AMK_HOME", "/proc/amk")
    assert main(["compile", "SmolLM2-135M", "--arch", "cpu"]) == 2
    assert "set AMK_HOME" in capsys.readouterr().err


def test_an_empty_prompt_and_one_that_is_too_long(tiny: Path, tmp_path: Path, amk_home: Path) -> None:
    import amk
    from amk.errors import ContextOverflowError, EmptyPromptError

    model = amk.compile(tiny, arch="cpu", max_context=8, progress=False)
    with pytest.raises(EmptyPromptError):
        model.generate([])
    with pytest.raises(ContextOverflowError, match="max_context>=9"):
        model.generate([1, 2, 3], max_new_tokens=7)


def test_a_gpu_program_without_a_gpu(tiny: Path, amk_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = tiny.parent / "prompts.json"
    prompts.write_text("[[1, 2, 3]]")
    assert main(["parity", str(tiny), "--arch", "sm_90", "--prompts", str(prompts), "--tokens", "2"]) == 6
    assert "AMK-R601" in capsys.readouterr().err
