"""Engines give every kernel a judgement, whatever becomes of its judge."""

from __future__ import annotations

import builtins
import contextlib
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from amk.contracts.engines import Court, Task, engine_of
from amk.contracts.engines.local import KERNELS_PER_JUDGE, LocalEngine
from amk.contracts.errors import NoRayError
from amk.contracts.verdicts import Judgement
from amk.contracts.verify import Options
from tests.contracts.fake_judges import JUDGE, pair

ORDERS = {"ok": "conform", "shot": "die", "gone": "exit", "slow": "hang", "wrong": "break", "raised": "raise"}


def court(*, limit_s: float = 600.0) -> Court:
    return Court(judge=JUDGE, options=Options(), limit_s=limit_s)


def tasks(orders: dict[str, str], calls: Path | None = None) -> Iterator[Task]:
    for name, order in orders.items():
        yield Task(key=name, kernel=pair(name, order, calls))


@pytest.fixture(scope="module")
def all_ends(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Judgement], Counter[str]]:
    """Kernels that conform, violate, and end their judges in every way; and how often each was begun."""
    calls = tmp_path_factory.mktemp("calls") / "calls"
    engine = LocalEngine(court(limit_s=3.0), jobs=2)
    judged = {task.key: judgement for task, judgement in engine.judge(tasks(ORDERS, calls))}
    return judged, Counter(calls.read_text().split())


@pytest.mark.parametrize(
    ("kernel", "status", "why"),
    [
        ("ok", "conforms", ""),
        ("wrong", "broken", ""),
        ("raised", "not judged", "a defect in amk: RuntimeError: a defect"),
        ("shot", "not judged", "the judge's process ended: killed by SIGKILL"),
        ("gone", "not judged", "the judge's process ended: exit code 7"),
        ("slow", "not judged", "the judge had not come back after 3 s"),
    ],
)
def test_a_judge_that_ends_costs_its_own_kernel(
    all_ends: tuple[dict[str, Judgement], Counter[str]], kernel: str, status: str, why: str
) -> None:
    judged, _ = all_ends
    assert judged[kernel].status == status
    assert judged[kernel].why.endswith(why)


def test_each_kernel_is_judged_once_and_nothing_is_left(all_ends: tuple[dict[str, Judgement], Counter[str]]) -> None:
    judged, calls = all_ends
    assert sorted(judged) == sorted(ORDERS)
    assert calls == Counter(list(ORDERS))
    assert not [child for child in multiprocessing.active_children() if child.name == "amk judge"]


def test_a_judge_is_replaced_behind_so_many_kernels() -> None:
    count = KERNELS_PER_JUDGE + 3
    engine = LocalEngine(court(), jobs=1)
    judged = [task.key for task, _ in engine.judge(tasks({f"k{i}": "conform" for i in range(count)}))]
    assert judged == [f"k{i}" for i in range(count)]


def test_closing_an_engine_ends_what_is_under_way() -> None:
    engine = LocalEngine(court(), jobs=2)
    with contextlib.closing(engine.judge(tasks({"ok": "conform", "slow": "hang"}))) as judgements:
        assert next(judgements)[0].key == "ok"
        started = time.monotonic()
    assert time.monotonic() - started < 60
    assert not [child for child in multiprocessing.active_children() if child.name == "amk judge"]


def test_no_more_tasks_are_taken_than_there_are_judges() -> None:
    taken: list[str] = []

    def counted() -> Iterator[Task]:
        for task in tasks({"a": "conform", "b": "conform", "c": "conform", "d": "conform"}):
            taken.append(task.key)
            yield task

    with contextlib.closing(LocalEngine(court(), jobs=1).judge(counted())) as judgements:
        next(judgements)
        assert taken == ["a"]


def test_without_ray_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def no_ray(name: str, *rest: object) -> object:
        if name.partition(".")[0] == "ray":
            raise ImportError("No module named 'ray'")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", no_ray)
    with pytest.raises(NoRayError, match=r"pip install 'amk\[ray\]'"):
        engine_of("ray", court(), jobs=2)


def test_a_ray_cluster_of_two_workers_gives_the_same(
    all_ends: tuple[dict[str, Judgement], Counter[str]], tmp_path: Path
) -> None:
    pytest.importorskip("ray")
    local, _ = all_ends
    orders = {name: order for name, order in ORDERS.items() if order != "hang"}
    engine = engine_of("ray", court(), jobs=2)
    assert engine.jobs == 2
    judged = {task.key: judgement for task, judgement in engine.judge(tasks(orders, tmp_path / "calls"))}
    assert {name: judgement.status for name, judgement in judged.items()} == {
        name: local[name].status for name in orders
    }
    assert judged["wrong"].findings == local["wrong"].findings
    assert "Ray worker ended" in judged["shot"].why
    assert Counter((tmp_path / "calls").read_text().split()) == Counter(list(orders))
