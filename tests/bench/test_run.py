"""The runner of workloads, on twins and the reference machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import amk
from amk.frontend.aliases import shipped_config
from amk.frontend.twin import shrink
from amk.measure.arms import TORCH_ARMS
from amk.measure.result import LEFT_OUT
from amk.target import TARGETS
from bench import run as room
from bench.runs import Run, read_run
from bench.workloads import WORKLOADS, Workload

TINY = Workload(model="SmolLM2-135M", contexts=(8, 16), max_context=64, real_weights=True, arms=("eager",))


def options(tmp_path: Path, **fields: object) -> room.Options:
    settled: dict[str, object] = {
        "checkpoint": None,
        "out": tmp_path / "results",
        "rounds": 2,
        "tokens": 2,
        "contexts": None,
        "against": None,
        "dtype": "bf16",
        "arch": "cpu",
        "chip": None,
        "target": TARGETS["cpu"],
        "twin": True,
        **fields,
    }
    return room.Options(**settled)  # type: ignore[arg-type]


def measured(workload: Workload, how: room.Options, ends: float = float("inf")) -> Run:
    begun = room._begun(workload, how, "abc1234", None, 1.0)
    room.measure(workload, how, begun, ends)
    found = read_run(begun.path(how.out))
    assert found is not None
    return found


def test_each_workload_fits_its_model() -> None:
    assert list(WORKLOADS) == ["smollm2-135m", "llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b"]
    for workload in WORKLOADS.values():
        config = json.loads(shipped_config(workload.model).read_text())
        assert workload.max_context <= config["max_position_embeddings"]
        assert max(workload.contexts) + room.TOKENS <= workload.max_context
        assert set(workload.arms) <= set(TORCH_ARMS)


def test_processes_of_their_own_leave_a_file_each(
    amk_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    words = ["--twin", "--arch", "cpu", "--commit", "abc1234", "--out", str(tmp_path), "--workload", "smollm2-135m"]
    words += ["llama-3.2-1b", "--contexts", "8,12", "--against", "eager", "--rounds", "2", "--tokens", "2"]
    assert room.main(words) == 0
    shown = capsys.readouterr().out
    files = sorted((tmp_path / "cpu").iterdir())
    assert [path.name[10:] for path in files] == [
        "-abc1234-llama-3.2-1b-twin.json",
        "-abc1234-smollm2-135m-twin.json",
    ]
    for path in files:
        found = read_run(path)
        assert found is not None
        assert found.result is not None
        assert (found.failure, found.result.parity.verdict) == ("", "pass")
        assert [(row.context, row.arm) for row in found.rows] == [(8, "amk"), (8, "eager"), (12, "amk"), (12, "eager")]
        assert all(len(row.us_per_token) == 2 and not row.failure for row in found.rows)
        assert f"done; parity: pass; {path}" in shown


def test_eight_bit_weights_are_another_run(amk_home: Path, tmp_path: Path) -> None:
    """Beside PyTorch in bf16, which streams twice the bytes."""
    run = measured(TINY, options(tmp_path, dtype="w8a16"))
    assert (run.workload, run.title) == ("smollm2-135m-twin-w8a16", "SmolLM2-135M, twin, w8a16")
    result = run.result
    assert result is not None
    assert (result.dtype, result.parity.verdict) == ("w8a16", "pass")
    for row in result.rows:
        assert row.weight_bytes == (0 if row.arm == "amk" else 2 * result.weight_bytes)
        assert result.bytes_of(row) == (row.weight_bytes or result.weight_bytes) + row.kv_bytes


def test_when_the_time_is_over_a_workload_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--arch", "cpu", "--commit", "abc1234", "--out", str(tmp_path), "--budget-seconds", "0"]
    assert room.main([*words, "--workload", "llama-3.1-8b"]) == 1
    (path,) = (tmp_path / "cpu").iterdir()
    found = read_run(path)
    assert found is not None
    assert (found.failure, found.result, found.budget_s) == (LEFT_OUT, None, 0.0)
    assert LEFT_OUT in capsys.readouterr().out


def test_what_was_measured_stays_when_the_rest_fails(amk_home: Path, tmp_path: Path) -> None:
    found = measured(TINY, options(tmp_path, contexts=[8, 63]))  # the cache has 64 positions: no room for two more
    assert found.failure.startswith("ContextOverflowError: AMK-")
    assert [(row.context, row.arm) for row in found.rows] == [(8, "amk"), (8, "eager")]


def test_a_process_that_dies_is_recorded_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dead:
        def __init__(self, *, target: object, args: tuple[object, ...]) -> None:
            self.exitcode = -9

        def start(self) -> None: ...

        def join(self) -> None: ...

    monkeypatch.setattr(room.multiprocessing, "get_context", lambda kind: type("Context", (), {"Process": Dead}))
    words = ["--arch", "cpu", "--commit", "abc1234", "--out", str(tmp_path), "--workload", "smollm2-135m"]
    assert room.main([*words, "llama-3.2-1b"]) == 1
    found = [read_run(path) for path in sorted((tmp_path / "cpu").iterdir())]
    assert [run.failure for run in found if run] == ["its process ended with -9"] * 2


def test_a_checkpoint_of_another_model_is_refused(amk_home: Path, tmp_path: Path) -> None:
    config = json.loads(shipped_config("SmolLM2-135M").read_text())
    folder = tmp_path / "other"
    room.random_model({**shrink(config), "rope_theta": 7.0}).save_pretrained(folder)
    found = measured(TINY, options(tmp_path, twin=False, checkpoint=folder))
    assert found.failure.startswith("ValueError: ")
    assert "is no SmolLM2-135M" in found.failure
    assert "hidden_size" in found.failure


def test_a_checkpoint_is_read(amk_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = shrink(json.loads(shipped_config("SmolLM2-135M").read_text()))
    shipped, folder = tmp_path / "shipped.json", tmp_path / "given"
    shipped.write_text(json.dumps(config))
    model = room.random_model(config)
    model.save_pretrained(folder)
    monkeypatch.setattr(room, "shipped_config", lambda alias: shipped)
    found = measured(TINY, options(tmp_path, twin=False, checkpoint=folder, contexts=[8], against=[]))
    assert (found.failure, found.weights, found.workload) == ("", "given", "smollm2-135m")
    assert found.result is not None
    expected = amk.compile(folder, arch="cpu", max_context=64, progress=False)
    assert found.result.weights == expected.manifest.weights_digest


def test_random_weights_are_the_same_each_time() -> None:
    config = shrink(json.loads(shipped_config("Llama-3.2-1B").read_text()))
    first, second = (room.random_model(config).state_dict() for _ in range(2))
    assert all(bool((first[name] == second[name]).all()) for name in first)


def test_words_that_say_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (["--against", "mlx"], ["--contexts", "many"], ["--workload", "gpt-5"]):
        with pytest.raises(SystemExit):
            room.main(wrong)
    monkeypatch.setattr(room, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match="--commit"):
        room._commit()


def test_the_path_of_a_run(tmp_path: Path) -> None:
    begun = room._begun(TINY, options(tmp_path), "abc1234", None, 1.0)
    dated = replace(begun, date="2001-02-03T04:05:06+00:00")
    assert dated.path(tmp_path) == tmp_path / "cpu" / "2001-02-03-abc1234-smollm2-135m-twin.json"
