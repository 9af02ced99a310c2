"""The profile of a launch, on this processor's build of the kernel."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import amk
from amk.cli.app import main
from amk.errors import EXIT_USAGE, BadOptionError
from amk.measure.profile import DONE, PARTS, READY, STARVED, TAKEN, profile
from tests.checkpoints import save_llama

HOPS = ["qkv", "attention", "o", "gate_up", "down", "head", "sample"]


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AMK_HOME", str(tmp_path / "home"))
    return save_llama(tmp_path / "tiny", seed=3, num_hidden_layers=2, max_position_embeddings=64)


def test_every_task_of_every_step_is_stamped_and_no_bit_changes(checkpoint: Path, tmp_path: Path) -> None:
    model = amk.compile(checkpoint, arch="host", progress=False)
    found = profile(model, context=20, tokens=4)
    summary, times = found.summary, found.times
    assert summary.same_bits
    assert (summary.context, summary.steps) == (20, 4)
    assert times.shape[:2] == (4, len(model.schedule.tasks))
    assert len(set(found.names)) == len(model.schedule.tasks)
    assert bool((times[:, :, TAKEN] <= times[:, :, READY]).all())
    assert bool((times[:, :, READY] <= times[:, :, DONE]).all())
    assert bool((times[:, :, STARVED] <= times[:, :, DONE] - times[:, :, READY]).all())
    # A task is ready only after what it waits for was published, on whatever worker.
    at = {name: number for number, name in enumerate(found.names)}
    for task in model.schedule.tasks:
        waited = {wait.counter for wait in task.waits if wait.threshold > 0}
        for other in model.schedule.tasks:
            if waited & set(other.signals):
                assert bool((times[:, at[other.id], DONE] <= times[:, at[task.id], DONE]).all()), (other.id, task.id)
    assert [hop.name for hop in summary.hops] == HOPS
    assert [hop.count for hop in summary.hops] == [2, 2, 2, 2, 2, 1, 1]
    # The parts of the hops are the whole of the steps.
    ends = times[:, :, DONE].max(axis=1)
    steps = np.diff(ends, prepend=times[0, :, TAKEN].min()).mean() / 1e3
    assert sum(hop.total for hop in summary.hops) == pytest.approx(steps, rel=1e-6)
    assert sum(summary.share(part) for part in PARTS) == pytest.approx(1.0)

    path = tmp_path / "trace.json"
    found.write_trace(path, steps=1)
    events = json.loads(path.read_text())["traceEvents"]
    assert {event["name"] for event in events} == {"wait", *found.names}
    assert {event["tid"] for event in events} == set(range(len(model.schedule.queues)))
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)


def test_the_reference_machine_has_no_kernel_to_profile(checkpoint: Path) -> None:
    with pytest.raises(BadOptionError, match="runs no kernel"):
        profile(amk.compile(checkpoint, arch="cpu", progress=False), context=4, tokens=2)


def test_the_command(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "trace.json"
    words = ["profile", str(checkpoint), "--arch", "host", "--context", "8", "--tokens", "2"]
    assert main([*words, "-o", str(trace)]) == 0
    shown = capsys.readouterr().out
    assert all(hop in shown for hop in HOPS)
    assert "the same bits" in shown
    assert str(trace) in shown.replace("\n", "")
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["shares"]) == set(PARTS)
    assert main(["profile", str(checkpoint), "--arch", "cpu"]) == EXIT_USAGE
