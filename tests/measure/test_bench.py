"""The runner of benchmarks: arms take turns on one set of weights, and no figure comes without its verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch
from msgspec.structs import replace

import amk
from amk.cli.app import main
from amk.errors import EXIT_FAILED, EXIT_USAGE
from amk.measure import bench as room
from amk.measure import machine as naming
from amk.measure.arms import AmkArm, EagerArm, torch_arm
from amk.measure.bench import bench
from amk.measure.result import LEFT_OUT, BenchResult
from amk.pipeline import CompiledModel
from amk.target import TARGETS
from tests.checkpoints import save_llama

PROMPT = [7, 3, 99, 11, 4]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompiledModel:
    monkeypatch.setenv("AMK_HOME", str(tmp_path / "home"))
    folder = save_llama(tmp_path / "tiny", seed=3, num_hidden_layers=2, max_position_embeddings=64)
    return amk.compile(folder, arch="cpu", progress=False)


def test_arms_take_turns_and_every_sample_is_kept(model: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[tuple[str, int]] = []

    def sample(arm: room.Arm, prompt: Sequence[int], tokens: int) -> tuple[float, float]:
        order.append((arm.name, len(prompt)))
        return float(len(order)), -float(len(order))

    monkeypatch.setattr(room, "_sample", sample)
    found = bench(model, contexts=[8, 16], against=["eager"], rounds=3, tokens=4)
    assert order == [("amk", 8), ("eager", 8)] * 3 + [("amk", 16), ("eager", 16)] * 3
    assert [(row.arm, row.context, row.us_per_token, row.median) for row in found.rows] == [
        ("amk", 8, (1.0, 3.0, 5.0), 3.0),
        ("eager", 8, (2.0, 4.0, 6.0), 4.0),
        ("amk", 16, (7.0, 9.0, 11.0), 9.0),
        ("eager", 16, (8.0, 10.0, 12.0), 10.0),
    ]
    assert [row.prompt_ms for row in found.rows] == [tuple(-us for us in row.us_per_token) for row in found.rows]
    assert (found.parity.verdict, found.parity.tokens) == ("pass", room.PARITY_TOKENS)


def test_the_arms_decode_the_same_tokens(model: CompiledModel) -> None:
    ours = AmkArm(model)
    theirs = EagerArm(room._torch_model(model).float())
    for arm in (ours, theirs):
        began = time.perf_counter()
        prompt_s = arm.open(PROMPT, 8)
        assert 0 < prompt_s <= time.perf_counter() - began
    assert ours.decode(8) == theirs.decode(8)


def test_pytorch_has_the_checkpoints_weights(model: CompiledModel) -> None:
    theirs = room._torch_model(model)
    assert theirs.lm_head.weight is theirs.model.embed_tokens.weight
    for name, parameter in theirs.named_parameters():
        assert torch.equal(parameter, model.checkpoint.load(name).to(torch.bfloat16)), name
    assert not theirs.training


def test_what_a_token_streams(model: CompiledModel) -> None:
    found = bench(model, contexts=[8], against=["eager"], rounds=1, tokens=2)
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
    kept = 8 * layers * 2 * kv_heads * head_dim
    assert [row.kv_bytes for row in found.rows] == [4 * kept, 2 * kept]  # float32 is amk's, bf16 PyTorch's
    row = found.rows[0]
    assert found.bytes_per_s(row) == pytest.approx((found.weight_bytes + 4 * kept) / (row.median / 1e6))


def test_what_ran_it(model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench(model, contexts=[8], rounds=1, tokens=2)
    assert found.machine["target"] == "cpu"
    assert found.machine["torch"] == torch.__version__
    assert "nvidia-cuda-nvrtc" in found.machine
    assert found.weights == model.checkpoint.digest()
    driver = tmp_path / "version"
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.82.07  Wed Aug 27 2025\n")
    monkeypatch.setattr(naming, "DRIVER", driver)
    monkeypatch.setattr(naming, "PACKAGES", ("torch", "no-such-package"))
    here = naming.machine(TARGETS["cpu"])
    assert here["driver"] == "580.82.07"
    assert "no-such-package" not in here


def test_an_arm_that_cannot_run_is_a_row_that_says_so(model: CompiledModel) -> None:
    if torch.cuda.is_available():
        pytest.skip("it can, here")
    found = bench(model, contexts=[8], against=["cublas-graph"], rounds=2, tokens=2)
    row = found.rows[-1]
    assert (row.arm, row.us_per_token) == ("cublas-graph", ())
    assert "CUDA" in row.failure
    assert len(found.rows[0].us_per_token) == 2


def test_when_the_time_is_over_what_is_left_out_says_so(model: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(room.time, "monotonic", lambda: float(next(clock)))
    monkeypatch.setattr(room, "_sample", lambda arm, prompt, tokens: (1.0, 1.0))
    kept: list[BenchResult] = []
    # The clock is read when it starts, before PyTorch is loaded, and before each sample.
    found = bench(model, contexts=[8, 16], against=["eager"], rounds=2, tokens=2, budget_s=5.0, keep=kept.append)
    assert [(row.context, row.arm, len(row.us_per_token), row.failure) for row in found.rows] == [
        (8, "amk", 2, ""),
        (8, "eager", 1, LEFT_OUT),
        (16, "amk", 0, LEFT_OUT),
        (16, "eager", 0, LEFT_OUT),
    ]
    assert [len(result.rows) for result in kept] == [2, 4]
    none = bench(model, contexts=[8], against=["eager"], rounds=2, tokens=2, budget_s=0.0)
    assert [(row.arm, row.failure) for row in none.rows] == [("amk", LEFT_OUT), ("eager", LEFT_OUT)]


def test_a_range_that_is_no_number_is_written_as_none(
    model: CompiledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = room.decode_parity
    monkeypatch.setattr(
        room, "decode_parity", lambda *given, **more: replace(real(*given, **more), logit_range_max=float("nan"))
    )
    found = bench(model, contexts=[8], rounds=1, tokens=2)
    found.write(tmp_path / "found.json")
    assert msgspec.json.decode((tmp_path / "found.json").read_bytes(), type=BenchResult) == found
    assert found.parity.logit_range_max is None


def test_an_unknown_arm_has_no_class(model: CompiledModel) -> None:
    with pytest.raises(KeyError):
        torch_arm("mlx", room._torch_model(model))


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
    wrongs = ["--context", "many"], ["--context", "0"], ["--against", "mlx"], ["--dtype", "int4"]
    for wrong in wrongs:
        assert main([*words, *wrong]) == EXIT_USAGE
    assert "w8a16" in capsys.readouterr().err  # which there is
    assert main([*words, "--dtype", "w8a16", "--group-size", "64"]) == 0
    capsys.readouterr()
    real = room.decode_parity
    monkeypatch.setattr(room, "decode_parity", lambda *given, **more: replace(real(*given, **more), verdict="fail"))
    assert main(words) == EXIT_FAILED
    assert "withheld" in capsys.readouterr().out


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
