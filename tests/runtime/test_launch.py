"""Launches: what they are given, how they end and what is booked of them, on a chip that is played."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

import amk
from amk.codegen.config import kernel_config
from amk.interpreter.errors import BadLaunchError
from amk.runtime.errors import WatchdogError
from amk.runtime.launch import KernelBackend
from tests.checkpoints import random_llama, save_llama
from tests.runtime.played import PlayedChip, counting, inputs, words


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> amk.CompiledModel:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMK_HOME", str(tmp_path_factory.mktemp("home")))
        folder = save_llama(tmp_path_factory.mktemp("tiny"))
        return amk.compile(folder, arch="sm_90", max_context=32, progress=False)


@pytest.fixture
def chip() -> PlayedChip:
    return PlayedChip()


@pytest.fixture
def backend(chip: PlayedChip, model: amk.CompiledModel) -> KernelBackend:
    return open_backend(chip, model)


def open_backend(chip: PlayedChip, model: amk.CompiledModel) -> KernelBackend:
    load, rope = model._weights()
    config = kernel_config(model.schedule)
    return KernelBackend(model._validated, config, chip, load=load, rope=rope, watchdog_s=1.5)


@pytest.mark.parametrize(
    "fields",
    [{}, {"tie_word_embeddings": False}, {"hidden_size": 76, "num_key_value_heads": 1, "head_dim": 10}],
    ids=["tiled", "plain", "padded"],
)
def test_inputs_reach_the_chip(chip: PlayedChip, fields: dict[str, Any], tmp_path: Path, amk_home: Path) -> None:
    model = amk.compile(save_llama(tmp_path, **fields), arch="sm_90", max_context=32, progress=False)
    backend = open_backend(chip, model)
    backend.begin([5, 6, 7], [2])
    backend.enter([5, 130])
    found = inputs(backend)
    assert found["prompt"].tolist() == [5, 6, 7]
    assert found["prompt_length"].tolist() == [3]
    assert found["eos"].astype(np.int32).tolist() == [2] + [-1] * 15
    table = random_llama(**fields).get_input_embeddings().weight.float()
    words = found["hidden"].view(np.float32).reshape(2, -1, 2)
    assert torch.equal(torch.from_numpy(words[..., 0].copy()), table[[5, 130]].detach())
    assert not words[..., 1].view(np.uint32).any()  # the epoch that is read by the first step of all


def test_a_launch_is_awaited_booked_and_counted(chip: PlayedChip, backend: KernelBackend) -> None:
    chip.kernel = counting(backend)
    assert list(backend.run(pos=0, tokens=8, steps=2)) == [2]
    assert list(backend.run(pos=16, tokens=1, steps=5)) == [5]
    assert [backend.token(position) for position in (16, 17, 21)] == [16, 17, 21]
    assert [params["steps_done"] for params in chip.launched] == [0, 2]
    assert {params["watchdog_clocks"] for params in chip.launched} == {1_500_000}
    assert backend.launches == 2
    chip.kernel = counting(backend, stop_after=3)
    assert list(backend.run(pos=21, tokens=1, steps=5)) == [3]
    chip.kernel = counting(backend, stop_after=0)
    assert list(backend.run(pos=24, tokens=1, steps=5)) == []
    list(backend.run(pos=24, tokens=1, steps=1))
    assert chip.launched[-1]["steps_done"] == 10


@pytest.mark.parametrize(
    ("pos", "tokens", "steps"), [(0, 9, 1), (0, 1, 33), (32, 1, 1), (30, 1, 3), (0, 1, 0), (-1, 1, 1)]
)
def test_what_was_not_proved_is_not_launched(
    chip: PlayedChip, backend: KernelBackend, pos: int, tokens: int, steps: int
) -> None:
    with pytest.raises(BadLaunchError):
        list(backend.run(pos=pos, tokens=tokens, steps=steps))
    assert chip.launched == []


def test_an_interrupt_while_waiting_is_booked_later(chip: PlayedChip, backend: KernelBackend) -> None:
    def interrupted(params: dict[str, Any]) -> None:
        chip.pending = params
        chip.kernel = counting(backend)
        raise KeyboardInterrupt

    chip.kernel = interrupted
    with pytest.raises(KeyboardInterrupt):
        list(backend.run(pos=0, tokens=1, steps=4))
    backend.begin([1], [])
    list(backend.run(pos=0, tokens=1, steps=1))
    assert [params["steps_done"] for params in chip.launched] == [0, 1]


def test_of_all_waits_the_one_the_others_stand_behind_is_named(
    chip: PlayedChip, backend: KernelBackend, model: amk.CompiledModel
) -> None:
    counters = [counter.id for counter in model.schedule.counters]
    names = backend._queues.names
    task, sampler = (next(i for i, name in enumerate(names) if name.startswith(hop)) for hop in ("L1.o#", "sample#"))

    def stuck(params: dict[str, Any]) -> None:
        reports = words(params["reports"], 132 * 2 * 6).reshape(132, 2, 6)
        reports[3, 0] = (1, sampler, 2, counters.index("head"), 5, 132)
        reports[9, 0] = (1, task, 2, counters.index("L1.attention"), 7, 8)
        reports[9, 1] = (1, 0, 3, counters.index("sample"), 0, 1)
        words(params["counters"], 1)[0] = 99
        words(params["abort"], 1)[0] = 1

    chip.kernel = stuck
    with pytest.raises(
        WatchdogError, match=r"L1\.o#\d+ \(worker 9, step 2\) waits for L1\.attention .* 8; it is at 7 \(2 o"
    ):
        list(backend.run(pos=0, tokens=1, steps=4))
    assert words(backend._counters, 1)[0] == words(backend._abort, 1)[0] == 0
    chip.kernel = counting(backend)
    assert list(backend.run(pos=0, tokens=1, steps=1)) == [1]
    assert chip.launched[-1]["steps_done"] == 0


def test_other_queues_run_to_their_end_and_move_no_counter(
    chip: PlayedChip, backend: KernelBackend, model: amk.CompiledModel
) -> None:
    chip.kernel = counting(backend)
    list(backend.run(pos=0, tokens=8, steps=2))
    schedule = model.schedule
    kept = {task.id for task in schedule.tasks if task.id.startswith("L0.")}
    queues = tuple(replace(q, tasks=tuple(name for name in q.tasks if name in kept)) for q in schedule.queues)
    apart = backend.place(replace(schedule, queues=queues))
    backend.run_apart(apart, pos=16, tokens=1)
    assert backend.token(17) == 17
    assert chip.pending is None
    assert set(apart.names) == kept
    assert (chip.launched[-1]["tasks"], chip.launched[-1]["queue_begin"]) == (apart.tasks, apart.begin)
    list(backend.run(pos=16, tokens=1, steps=1))
    assert chip.launched[-1]["tasks"] == backend._queues.tasks
    assert [params["steps_done"] for params in chip.launched] == [0, 2, 2]


def test_a_chip_is_closed_with_its_backend_or_where_none_can_be_made(
    chip: PlayedChip, backend: KernelBackend, model: amk.CompiledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    chip.kernel = counting(backend)
    run = backend.run(pos=0, tokens=1, steps=4)
    next(run)
    backend.close()
    assert (chip.closed, chip.pending) == (1, None)
    full = PlayedChip()
    monkeypatch.setattr(full, "pinned", lambda count: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_backend(full, model)
    assert full.closed == 1
