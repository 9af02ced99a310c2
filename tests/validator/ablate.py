"""Without any one rule, or any one part of a rule, some test fails.

    python -m tests.validator.ablate [--parts] [--json out.json]

A rule is taken out by losing whatever it reports; a part, by putting something that says nothing in the place of the
function that is it. Then the corpus and the tests beside it run, and those that fail are named. What no test would miss
might as well not be there.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from amk.validator import RULES, validator_digest
from amk.validator.findings import Report, Rule
from amk.validator.order import Order, Window
from amk.validator.rules import kv

ROOM = Path(__file__).resolve().parent
TESTS = [str(ROOM / f"test_{name}.py") for name in ("corpus", "tricky", "refusals", "stop")]

Change = tuple[str, Any]


def nothing(*_: Any, **__: Any) -> None: ...


def none_of(*_: Any, **__: Any) -> tuple[()]:
    return ()


def yes(*_: Any, **__: Any) -> bool:
    return True


def itself(found: Any, *_: Any, **__: Any) -> Any:
    return found


_DRIFTED, _EXTENT = Order._drifted, kv._Buffer._extent


def no_drift(order: Order) -> Any:
    order.drift = 0
    return _DRIFTED(order)


def not_beyond(buffer: Any, box: int) -> tuple[bool, bool, bool]:
    past, new, _ = _EXTENT(buffer, box)
    return past, new, False


def one_step(program: Any, *, drift: int, **_: Any) -> Window:
    return Window(order=Order(program, 1, drift), exact=True, streams_exact=True)


# Parts of rules, and what the order is made of: where each is, and what stands in for it.
PARTS: dict[str, Change] = {
    "capacity: fields of the target": ("rules.capacity._impossible", none_of),
    "capacity: shared memory": ("rules.capacity._shared_memory", none_of),
    "capacity: tiles against the ring": ("rules.capacity._tiles", none_of),
    "capacity: launch format": ("rules.capacity._format", none_of),
    "capacity: int32 spans": ("rules.capacity._spans", none_of),
    "structure: unique ids": ("rules.structure._unique", nothing),
    "structure: queues": ("rules.structure._queues", nothing),
    "expressible: ranges": ("rules.expressible.check_range", nothing),
    "footprint: accesses of a kind": ("rules.footprint._compare", nothing),
    "footprint: buffers of operands": ("operands.Operands._buffer", none_of),
    "footprint: written operands": ("operands.Operands.written", none_of),
    "footprint: GEMV": ("operands.Operands._gemv", none_of),
    "footprint: prologue": ("operands.Operands._prologue", none_of),
    "footprint: epilogue": ("operands.Operands._epilogue", none_of),
    "footprint: argmax": ("operands.Operands._argmax", none_of),
    "footprint: shape of attention": ("operands.Operands._attention_shape", none_of),
    "footprint: attention": ("operands.Operands._attention", none_of),
    "footprint: sampler": ("operands.Operands._sample", none_of),
    "regions: inside the buffer": ("rules.regions._fault", lambda *_, **__: ""),
    "regions: canonical bounds": ("rules.regions._sane", yes),
    "regions: granules": ("rules.regions._multiple", yes),
    "regions: lags and streams": ("rules.regions._check_names", nothing),
    "regions: versions": ("rules.regions._check_version", nothing),
    "regions: buffers": ("rules.regions.check_buffers", nothing),
    "race: pairs of one step": ("rules.race._Buffer._same_step", nothing),
    "race: two writes of one task": ("rules.race._Buffer._twice", nothing),
    "race: write, then access in a later step": ("rules.race._Buffer._write_first", nothing),
    "race: access, then write in a later step": ("rules.race._Buffer._write_last", nothing),
    "race: steps beyond the window": ("rules.race._Buffer._beyond_window", nothing),
    "reads: of this step": ("rules.reads._Buffer._this_step", nothing),
    "reads: of the step before": ("rules.reads._Buffer._step_before", nothing),
    "kv: whole row blocks": ("rules.kv._Buffer._appends", yes),
    "kv: once a step": ("rules.kv._Buffer._once", nothing),
    "kv: rows that are appended": ("rules.kv._Buffer._appended", nothing),
    "kv: rows of this step": ("rules.kv._Buffer._new_rows", nothing),
    "kv: no rows past the step": ("rules.kv._Buffer._extent", not_beyond),
    "outputs: holes": ("rules.outputs._wanted", lambda *_: np.zeros(0, np.int64)),
    "tags: written twice": ("rules.tag_writer._twice", nothing),
    "tags: never written": ("rules.tag_writer._never", nothing),
    "tags: readers of the version before": ("rules.tag_overwritten._overwritten", nothing),
    "tags: steps beyond the window": ("rules.tag_overwritten._beyond_window", nothing),
    "tags: waits that differ with the rows": ("check.by_tag_waits", lambda _, reach: [reach]),
    "order: gates are waits for a deadlock": ("program.Program.with_gates_as_waits", itself),
    "order: tags are waits": ("program.Program.with_tag_waits", itself),
    "order: warps drift": ("order.Order._drifted", no_drift),
    "order: heads are joined": ("order.Order.heads_joined", yes),
    "order: streams are joined": ("order.Order.streams_joined", yes),
    "order: streams follow gates alone": (
        "rules.race.seen",
        lambda order, kind, instances, workers: Order.before_read(order, instances, workers),
    ),
    "order: more steps than one": ("check.window", one_step),
    "bounded: pieces": ("boxes.few", nothing),
    "bounded: sweeps": ("order.Order._settle", lambda order, levels: [order._lower(level) for level in levels]),
}


class Failed:
    """A pytest plugin that keeps the names of tests that fail."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.names.append(report.nodeid.removeprefix("tests/validator/"))


def failing() -> list[str]:
    """Tests that fail now."""
    failed = Failed()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*TESTS, "-q", "-p", "no:cacheprovider"], plugins=[failed])
    return failed.names


@contextlib.contextmanager
def without_rule(code: str) -> Iterator[None]:
    """Lose what one rule reports."""
    add, more = Report.add, Report.more

    def deaf(real: Callable[..., None]) -> Callable[..., None]:
        def method(report: Report, rule: Rule, *given: Any, **named: Any) -> None:
            if rule.code != code:
                real(report, rule, *given, **named)

        return method

    with mock.patch.object(Report, "add", deaf(add)), mock.patch.object(Report, "more", deaf(more)):
        yield


@contextlib.contextmanager
def without_part(name: str) -> Iterator[None]:
    """Put something else in the place of one part."""
    path, stand_in = PARTS[name]
    *holders, attribute = path.split(".")
    at = max(n for n in range(1, len(holders) + 1) if holders[n - 1].islower() and not holders[n - 1].startswith("_"))
    found: Any = importlib.import_module(".".join(["amk.validator", *holders[:at]]))
    for holder in holders[at:]:
        found = getattr(found, holder)
    with mock.patch.object(found, attribute, stand_in):
        yield


def main(arguments: list[str]) -> int:
    """The command above; exit code 1 if something is not missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.validator.ablate")
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--parts", action="store_true", help="take out parts of rules too")
    options = parser.parse_args(arguments)
    whole = failing()
    assert not whole, f"tests fail with every rule in place: {whole}"
    missed: dict[str, dict[str, list[str]]] = {"rules": {}, "parts": {}}
    for kind, names, without in (
        ("rules", RULES, without_rule),
        ("parts", PARTS if options.parts else {}, without_part),
    ):
        for name in names:
            with without(name):
                missed[kind][name] = failing()
            print(f"{name}: {len(missed[kind][name])} tests fail, {', '.join(missed[kind][name][:1]) or 'NONE'}")
    document = {
        "command": "python -m tests.validator.ablate" + " --parts" * options.parts,
        "validator": validator_digest(),
        "not_missed": [name for found in missed.values() for name, tests in found.items() if not tests],
        **{
            kind: {name: {"failing": len(tests), "tests": tests[:3]} for name, tests in found.items()}
            for kind, found in missed.items()
        },
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(bool(document["not_missed"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
