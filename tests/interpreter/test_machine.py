"""The machine: any legal order gives the same bits, stops where the sampler says, and names what it is stuck on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from msgspec.structs import replace

from amk.errors import EXIT_FAILED
from amk.interpreter.errors import BadLaunchError, MachineStuckError
from amk.ir.schedule import Schedule, Task, Wait
from tests.builders import HEAD, lower
from tests.interpreter.driving import Driver, Model

TINY = Model()
NEW = 8


def same_memory(first: Driver, second: Driver) -> bool:
    """Every buffer equal bit for bit, what was never written included."""
    return all(torch.equal(bits(first.memory[name]), bits(second.memory[name])) for name in first.memory)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


# --- order -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [2, 7, 132])
def test_any_legal_order_gives_the_same_bits(workers: int) -> None:
    ids = TINY.ids(11)
    drivers = [TINY.driver(workers=workers, seed=seed) for seed in (None, 0, 1, 2)]
    tokens = [driver.generate(ids, NEW, tokens=3) for driver in drivers]
    assert tokens[1:] == tokens[:-1]
    assert all(same_memory(drivers[0], other) for other in drivers[1:])
    digests = {tuple(order.digest for order in driver.orders) for driver in drivers}
    assert len(digests) == len(drivers), "each seed ran another order"


def test_a_seed_names_its_order() -> None:
    ids = TINY.ids(5)
    orders = []
    for _ in range(2):
        driver = TINY.driver(workers=7, seed=5)
        driver.generate(ids, NEW)
        orders.append(driver.orders)
    assert orders[0] == orders[1]


@pytest.mark.parametrize("seed", [None, 4])
def test_one_launch_of_many_steps_is_many_launches_of_one(seed: int | None) -> None:
    ids = TINY.ids(9)
    together, apart = TINY.driver(workers=5, seed=seed), TINY.driver(workers=5, seed=seed)
    assert together.generate(ids, NEW) == apart.generate(ids, NEW, single=True)
    assert same_memory(together, apart)
    assert len(apart.orders) > len(together.orders)


@pytest.mark.parametrize("workers", [1, 6, 132])
def test_a_launch_runs_every_task_once_a_step(workers: int) -> None:
    schedule = lower(TINY.graph, workers=workers)
    driver = Driver.of(TINY, schedule, seed=1)
    driver.start(TINY.ids(3))
    order = driver.launch(steps=5)
    assert (order.steps, order.tasks) == (5, 5 * len(schedule.tasks))
    assert driver.memory["token"][4:6].min() >= 0
    assert set(driver.memory["token"][6:].tolist()) == {-1}, "nothing is written past the launch"


def test_the_number_of_rows_a_step_changes_no_token() -> None:
    ids = TINY.ids(17)
    answers = [TINY.driver().generate(ids, NEW, tokens=tokens) for tokens in (1, 2, 5, 8)]
    assert answers[1:] == answers[:-1]


# --- stop ------------------------------------------------------------------------------------------------------------


def answer(ids: list[int]) -> list[int]:
    return TINY.driver().generate(ids, NEW)


@cache
def prompt_and_answer() -> tuple[list[int], list[int]]:
    """A prompt whose first three new tokens differ, so that stopping at the third is stopping there."""
    prompts = (TINY.ids(5, seed=seed) for seed in range(1, 99))
    return next((ids, new) for ids in prompts if len(set((new := answer(ids))[:3])) == 3)


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("others", [[], [96, 95]], ids=["one id", "one of several"])
def test_the_end_of_text_stops_all_workers_at_one_step(others: list[int], seed: int | None) -> None:
    ids, new = prompt_and_answer()
    assert not set(others) & set(new)
    schedule = lower(TINY.graph, workers=7)
    driver = Driver.of(TINY, schedule, seed=seed)
    driver.prefill(ids, eos=[*others, new[2]])
    order = driver.launch(steps=20)
    assert order.steps == 2
    assert order.tasks == 2 * len(schedule.tasks), "no worker ran a task of a third step"
    assert driver.memory["token"][len(ids) :].tolist() == new[:3] + [-1] * (65 - len(ids) - 3)
    assert int(driver.memory["stop"]) == 1

    again = driver.launch(steps=3)
    assert (again.steps, again.tasks) == (0, 0), "stopped is stopped until the host clears it"
    driver.memory["stop"][0] = 0
    driver.launch(steps=NEW - 3)
    assert driver.memory["token"][len(ids) : len(ids) + NEW].tolist() == new


def test_the_first_new_token_may_be_the_end() -> None:
    ids, new = prompt_and_answer()
    driver = TINY.driver()
    driver.prefill(ids, tokens=8, eos=[new[0]])
    assert driver.launch(steps=4).steps == 0
    assert int(driver.memory["token"][len(ids)]) == new[0]


def test_an_end_of_text_within_the_prompt_does_not_stop() -> None:
    ids, _ = prompt_and_answer()
    driver = TINY.driver()
    driver.prefill(ids, eos=ids)
    assert [order.steps for order in driver.orders] == [len(ids)]
    assert driver.memory["token"][1 : len(ids)].tolist() == ids[1:]


# --- argmax ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 4, 13])
def test_a_tie_goes_to_the_lowest_index_whoever_holds_it(workers: int) -> None:
    """Logits that are one product each, and so exactly equal: +x at rows 50 and 90, -x at 20 and 60, else 0."""
    model = Model(tied=False)
    driver = model.driver(workers=workers, seed=2)
    driver.memory["model.norm.weight"].zero_()[0] = 1
    driver.memory[HEAD].zero_()
    driver.memory[HEAD][[50, 90], 0] = 1
    driver.memory[HEAD][[20, 60], 0] = -1
    chosen = set()
    for seed in range(8):
        (token,) = driver.generate(model.ids(4, seed=seed), 1)
        best = (driver.logits == driver.logits.max()).nonzero().flatten().tolist()
        assert best in ([50, 90], [20, 60])
        assert token == best[0]
        chosen.add(token)
    assert chosen == {20, 50}, "both signs occurred"


def test_all_logits_equal_is_token_zero() -> None:
    model = Model(tied=False)
    driver = model.driver(workers=4)
    driver.memory[HEAD].zero_()
    assert driver.generate(model.ids(4), 3) == [0, 0, 0]


def test_negative_logits_beat_no_logits() -> None:
    """With every logit below zero, the neutral element of an idle step does not show through."""
    model = Model(tied=False)
    driver = model.driver(workers=4)
    driver.memory["model.norm.weight"].zero_()[0] = 1
    driver.memory[HEAD].zero_()
    driver.memory[HEAD][:, 0] = 1
    signs = set()
    for seed in range(8):
        (token,) = driver.generate(model.ids(4, seed=seed), 1)
        assert len(driver.logits.unique()) == 1
        assert token == 0
        signs.add(bool(driver.logits[0] < 0))
    assert signs == {True, False}, "both signs occurred"


# --- deadlocks -------------------------------------------------------------------------------------------------------


def edit(schedule: Schedule, name: str, change: Callable[[Task], Task]) -> Schedule:
    assert name in schedule.task
    return replace(schedule, tasks=tuple(change(task) if task.id == name else task for task in schedule.tasks))


def stuck(schedule: Schedule, *, steps: int = 1, seed: int | None = 0) -> MachineStuckError:
    driver = Driver.of(TINY, schedule, seed=seed)
    driver.start(TINY.ids(3))
    with pytest.raises(MachineStuckError) as caught:
        driver.launch(steps=steps)
    assert str(caught.value).startswith("AMK-R650 the schedule deadlocks at step ")
    assert caught.value.exit_code == EXIT_FAILED
    return caught.value


@pytest.mark.parametrize("seed", [None, 0])
def test_a_lost_signal_is_named(seed: int | None) -> None:
    schedule = lower(TINY.graph, workers=3, tagged=False)
    lost = edit(schedule, "L0.qkv#1", lambda task: replace(task, signals=()))
    total = schedule.signals_per_step["L0.qkv"]
    message = str(stuck(lost, seed=seed))
    assert "at step 0:" in message
    waiting = [task.id for task in schedule.tasks if Wait(counter="L0.qkv", threshold=total) in task.waits]
    assert waiting
    for task in waiting:
        worker = next(queue.index for queue in schedule.queues if task in queue.tasks)
        assert f"{task} (worker {worker}) waits for L0.qkv={total}, {total - 1} now" in message


@pytest.mark.parametrize("seed", [None, 0])
def test_words_that_nobody_writes_are_named(seed: int | None) -> None:
    schedule = lower(TINY.graph, workers=3)
    missing = edit(schedule, "L0.qkv#1", lambda task: replace(task, writes=()))
    queues = [replace(queue, tasks=tuple(n for n in queue.tasks if n != "L0.qkv#1")) for queue in schedule.queues]
    never = edit(schedule, "L0.qkv#1", lambda task: replace(task, waits=(Wait(counter="sample", threshold=9),)))
    total = sum(task.id.startswith("L0.qkv#") for task in schedule.tasks)
    assert f"waits for qkv v0={total}, {total - 1} now" in str(stuck(never, seed=seed))
    # Words that no task writes are waited for too, by whoever reads them.
    unwritten = replace(missing, queues=tuple(queues))
    none = replace(unwritten, tasks=tuple(replace(t, writes=()) if "qkv" in t.id else t for t in unwritten.tasks))
    assert "waits for qkv v0=1, 0 now" in str(stuck(none, seed=seed))


@pytest.mark.parametrize("tagged", [False, True])
def test_every_lost_signal_is_noticed(tagged: bool) -> None:
    schedule = lower(TINY.graph, workers=3, tagged=tagged)
    for task in schedule.tasks:
        if task.signals and task.signals != ("sample",):
            lost = edit(schedule, task.id, lambda task: replace(task, signals=task.signals[1:]))
            assert f"waits for {task.signals[0]}=" in str(stuck(lost))


def test_a_threshold_out_of_reach_shows_in_the_step_that_needs_it() -> None:
    schedule = lower(TINY.graph, workers=3)
    late = edit(schedule, "begin#1", lambda task: replace(task, waits=(Wait(counter="sample", threshold=1),)))
    message = str(stuck(late, steps=4))
    assert "begin#1 (worker 1) waits for sample=1, 0 now" in message


def test_a_gate_is_waited_for() -> None:
    schedule = lower(TINY.graph, workers=3)

    def shut(task: Task) -> Task:
        gate = (Wait(counter="sample", threshold=9),)
        return replace(task, streams=tuple(replace(stream, gate=gate) for stream in task.streams))

    message = str(stuck(edit(schedule, "L1.attention#1", shut)))
    assert "L1.attention#1" in message
    assert "waits for sample=9, 0 now" in message


def test_two_queues_that_wait_for_each_other() -> None:
    schedule = lower(TINY.graph, workers=2, tagged=False)
    early = edit(schedule, "L0.qkv#0", lambda task: replace(task, waits=(Wait(counter="L0.o", threshold=1),)))
    message = str(stuck(early))
    assert "L0.qkv#0" in message
    assert "waits for L0.o=1, 0 now" in message


def test_many_blocked_workers_are_counted_not_listed() -> None:
    schedule = lower(TINY.graph, workers=40)
    lost = edit(schedule, "head#1", lambda task: replace(task, signals=()))
    barred = edit(lost, "sample#0", lambda task: replace(task, waits=(Wait(counter="head", threshold=10_000),)))
    message = str(stuck(barred, steps=2))
    assert message.count("waits for") == 5
    assert "and 35 more" in message


@pytest.mark.parametrize(
    ("pos", "tokens", "steps"), [(0, 9, 1), (0, 0, 1), (0, 1, 0), (-1, 1, 1), (60, 1, 5), (57, 8, 1)]
)
def test_a_launch_outside_the_schedule_is_refused(pos: int, tokens: int, steps: int) -> None:
    driver = Model().driver(max_context=64)
    driver.start([1, 2, 3])
    with pytest.raises(BadLaunchError, match=r"1 to 8 rows .* within 64 positions"):
        driver.machine.launch(pos=pos, tokens=tokens, steps=steps)
