"""The runner of benchmarks: arms take turns on one set of weights, and no figure comes without its verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

import amk
from amk.cli.app import main
from amk.errors import EXIT_FAILED, EXIT_USAGE
from amk.measure import bench as room
from amk.measure.arms import AmkArm, EagerArm, torch_arm
from amk.measure.bench import BenchResult, bench
from amk.pipeline import CompiledModel
from tests.checkpoints import save_llama

PROMPT = [7, 3, 99, 11, 4]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledModel:
    monkeypatch.setenv("AMK_HOME", str(tmp_path / "home"))
    folder = save_llama(tmp_path / "tiny", seed=3, num_hidden_layers=2, max_position_embeddings=64)
    return amk.compile(folder, arch="cpu", progress=False)


def test_arms_take_turns_and_every_sample_is_kept(model: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, int]] = []

    def sample(arm: room.Arm, prompt: Sequence[int], tokens: int) -> float:
        order.append((arm.name, len(prompt)))
        return float(len(order))

    monkeypatch.setattr(room, "_sample", sample)
    found = bench(model, contexts=[8, 16], against=["eager"], rounds=3, tokens=4)
    assert order == [("amk", 8), ("eager", 8)] * 3 + [("amk", 16), ("eager", 16)] * 3
    assert [(row.arm, row.context, row.us_per_token, row.median) for row in found.rows] == [
        ("amk", 8, (1.0, 3.0, 5.0), 3.0),
        ("eager", 8, (2.0, 4.0, 6.0), 4.0),
        ("amk", 16, (7.0, 9.0, 11.0), 9.0),
        ("eager", 16, (8.0, 10.0, 12.0), 10.0),
    ]
    assert (found.parity.verdict, found.parity.tokens) == ("pass", room.PARITY_TOKENS)


def test_the_arms_decode_the_same_tokens(model: CompiledModel) -> None:
    ours = AmkArm(model)
    theirs = EagerArm(room._torch_model(model).float(), context=32)
    for arm in (ours, theirs):
        arm.open(PROMPT, 8)
    assert ours.decode(8) == theirs.decode(8)


def test_what_a_token_streams(model: CompiledModel) -> None:
    found = bench(model, contexts=[8], rounds=1, tokens=2)
    config = model.checkpoint.config
    hidden, layers, vocab = config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]
    heads, kv_heads, inner = (
        config["num_attention_heads"],
        config["num_key_value_heads"],
        config["intermediate_size"],
    )
    head_dim = config.get("head_dim") or hidden // heads
    rows = (heads + 2 * kv_heads) * head_dim + 2 * inner
    matrices = layers * (rows * hidden + hidden * heads * head_dim + hidden * inner) + vocab * hidden
    assert found.weight_bytes == 2 * matrices
    assert found.kv_bytes_per_position == layers * 2 * kv_heads * head_dim * 4


def test_an_arm_that_cannot_run_is_a_row_that_says_so(model: CompiledModel) -> None:
    if torch.cuda.is_available():
        pytest.skip("it can, here")
    found = bench(model, contexts=[8], against=["cublas-graph"], rounds=2, tokens=2)
    row = found.rows[-1]
    assert (row.arm, row.us_per_token) == ("cublas-graph", ())
    assert "CUDA" in row.failure
    assert len(found.rows[0].us_per_token) == 2


def test_an_unknown_arm_has_no_class(model: CompiledModel) -> None:
    with pytest.raises(KeyError):
        torch_arm("mlx", room._torch_model(model), context=8)


def test_the_command(
    model: CompiledModel, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results" / "bench.json"
    words = ["bench", model.checkpoint.name, "--arch", "cpu", "--context", "8,12", "--tokens", "2", "--rounds", "1"]
    assert main([*words, "--against", "eager", "-o", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "parity with HuggingFace float32: pass" in shown
    assert shown.count("eager") == 2
    written = json.loads(out.read_text())
    assert [row["context"] for row in written["rows"]] == [8, 8, 12, 12]
    assert main([*words, "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == set(BenchResult.__struct_fields__)
    for wrong in (["--context", "many"], ["--context", "0"], ["--against", "mlx"]):
        assert main([*words, *wrong]) == EXIT_USAGE
    real = room.decode_parity
    monkeypatch.setattr(
        room, "decode_parity", lambda *given, **more: room.msgspec.structs.replace(real(*given, **more), verdict="fail")
    )
    assert main(words) == EXIT_FAILED


def test_the_command_of_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AMK_HOME", str(tmp_path / "home"))
    for name, value in (("REPEATS", 1), ("PASSES", 1), ("HOPS_MAX", 16)):
        monkeypatch.setattr(f"amk.measure.limits.{name}", value)
    assert main(["bench", "limits", "--arch", "host"]) == 0
    assert "a hop takes" in capsys.readouterr().out
    assert main(["bench", "limits", "--arch", "host", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workers"] == 8
