"""Audits that are killed, interrupted, refused and resumed, with judges that do as the kernels say."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from amk.contracts.audit import JOURNAL, LOCK, Audit, Plan, Step, audit
from amk.contracts.engines import Court
from amk.contracts.errors import AuditRunningError, JournalOptionsError
from amk.contracts.forms import read_works
from amk.contracts.hearing import Options
from amk.contracts.report.document import without_timings
from amk.errors import BadOptionError
from tests.contracts.fake_judges import JUDGE, REFERENCE, candidate

COUNT = 24

PROGRAM = """
import sys
from pathlib import Path
from tests.contracts.test_audit import plan
from amk.contracts.audit import audit
audit(plan(Path(sys.argv[1])))
"""


def write(root: Path, orders: dict[str, str]) -> Path:
    """A folder with one record file of kernels; each notes its calls in ``calls``."""
    rows = [
        {"name": name, "reference": REFERENCE, "candidate": candidate(order, root / "calls")}
        for name, order in orders.items()
    ]
    (root / "kernels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def plan(root: Path, out: str = "out", **changes: Any) -> Plan:
    path = root / "kernels.jsonl"
    given = {"works": read_works(path), "source": path, "options": Options(), "out": root / out, "judge": JUDGE}
    return Plan(**{**given, "jobs": 2, **changes})


def document(root: Path, out: str = "out") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / out / "report.json").read_text())
    return found


def calls(root: Path) -> Counter[str]:
    return Counter((root / "calls").read_text().split()) if (root / "calls").exists() else Counter()


def pages(root: Path, out: str) -> dict[str, bytes]:
    folder = root / out
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in {JOURNAL, LOCK, "report.json"}
    }


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


MIXED = {f"k{i:02d}": ("conform", "break", "pause", "refuse", "infinite", "raise")[i % 6] for i in range(COUNT)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Audit, list[Step]]:
    """An audit that nothing happened to."""
    root = write(tmp_path_factory.mktemp("whole"), MIXED)
    steps: list[Step] = []
    return root, audit(plan(root), note=steps.append), steps


def test_an_audit_judges_all_once_and_says_so(whole: tuple[Path, Audit, list[Step]]) -> None:
    root, found, steps = whole
    assert calls(root) == Counter(list(MIXED))
    assert sorted(step.done for step in steps) == list(range(1, COUNT + 1))
    assert {step.total for step in steps} == {COUNT}
    assert found.complete
    assert found.statistics.statuses == {"conforms": 12, "violation": 4, "broken": 4, "failed": 0, "not judged": 4}
    assert [kernel["kernel"] for kernel in document(root)["kernels"]] == list(MIXED)
    assert (root / "out/report.html").exists()
    assert len(list((root / "out/kernels").glob("*.md"))) == COUNT


def test_again_it_judges_nothing_and_reports_the_same(whole: tuple[Path, Audit, list[Step]]) -> None:
    root, first, _ = whole
    before, pages_before = document(root), pages(root, "out")
    steps: list[Step] = []
    again = audit(plan(root), note=steps.append)
    assert not steps
    assert (again.resumed, again.statistics) == (COUNT, first.statistics)
    assert without_timings(document(root)) == without_timings(before)
    assert document(root)["timings"]["seconds"] == before["timings"]["seconds"]
    assert pages(root, "out") == pages_before
    assert calls(root) == Counter(list(MIXED))


@pytest.mark.parametrize("seed", [20261130])
def test_killed_at_any_moment_it_ends_with_the_same_report(
    tmp_path: Path, whole: tuple[Path, Audit, list[Step]], seed: int
) -> None:
    root = write(tmp_path, MIXED)
    moment = random.Random(seed).randrange(2, COUNT - 2)
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(root)], cwd=Path(__file__).parents[2])
    journal = root / "out" / JOURNAL
    while lines(journal) <= moment:
        assert process.poll() is None, "it ended by itself"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with journal.open("ab") as stream:
        stream.write(b'{"key": "torn')
    time.sleep(2.0)  # judges of a parent that is gone end with what they have
    begun = calls(root)
    time.sleep(0.5)
    assert calls(root) == begun, "judges go on"
    had = lines(journal) - 1
    assert moment <= had < COUNT
    found = audit(plan(root))
    assert (found.complete, found.resumed) == (True, had)
    assert set(calls(root)) == set(MIXED)
    twice = [name for name, count in calls(root).items() if count > 1]
    assert len(twice) <= 2, "only those under way are begun again"
    assert lines(journal) == COUNT + 1
    expected = without_timings(document(whole[0]))
    assert without_timings(document(root)) == json.loads(
        json.dumps(expected).replace(str(whole[0] / "kernels.jsonl"), str(root / "kernels.jsonl"))
    )
    assert set(pages(root, "out")) == set(pages(whole[0], "out"))


def test_an_interrupt_leaves_a_report_of_what_is_done(tmp_path: Path) -> None:
    root = write(tmp_path, {f"k{i}": "conform" for i in range(6)})

    def note(step: Step) -> None:
        if step.done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    found = audit(plan(root, jobs=1), note=note)
    assert not found.complete
    assert found.statistics.kernels == 3
    assert document(root)["complete"] is False
    assert "Not complete" in (root / "out/report.html").read_text()
    found = audit(plan(root, jobs=1))
    assert (found.complete, found.resumed, found.statistics.kernels) == (True, 3, 6)
    assert max(calls(root).values()) <= 2


def test_other_options_are_refused_and_nothing_is_lost(whole: tuple[Path, Audit, list[Step]]) -> None:
    root, first, _ = whole
    with pytest.raises(JournalOptionsError, match="seed 0, now 1"):
        audit(plan(root, options=Options(seed=1)))
    assert audit(plan(root)).statistics == first.statistics


def test_fresh_judges_all_again_and_a_changed_kernel_alone(tmp_path: Path) -> None:
    root = write(tmp_path, {"a": "conform", "b": "conform"})
    audit(plan(root, jobs=1))
    write(tmp_path, {"a": "conform", "b": "break", "c": "conform"})
    found = audit(plan(root, jobs=1))
    assert (found.resumed, found.statistics.statuses["broken"]) == (1, 1)
    assert calls(root) == {"a": 1, "b": 2, "c": 1}
    audit(plan(root, jobs=1, fresh=True))
    assert calls(root) == {"a": 2, "b": 3, "c": 2}


def test_a_limit_grows(tmp_path: Path) -> None:
    root = write(tmp_path, {"a": "conform", "b": "conform", "c": "conform"})
    assert audit(plan(root, jobs=1, limit=1)).statistics.kernels == 1
    found = audit(plan(root, jobs=1, limit=2))
    assert (found.resumed, found.statistics.kernels, found.complete) == (1, 2, True)


def test_what_cannot_be_read_is_not_judged_and_ends_nothing(tmp_path: Path) -> None:
    root = write(tmp_path, {"a": "conform", "b": "conform"})
    with (root / "kernels.jsonl").open("a") as stream:
        stream.write('{"name": "empty", "reference": "", "candidate": ""}\nnot json\n')
    found = audit(plan(root, jobs=1))
    assert found.statistics.statuses["not judged"] == 2
    assert [kernel["status"] for kernel in document(root)["kernels"]] == ["conforms"] * 2 + ["not judged"] * 2
    assert document(root)["kernels"][3]["why"].startswith("it is not JSON")
    assert audit(plan(root, jobs=1)).resumed == 4


def test_two_audits_do_not_share_a_folder(whole: tuple[Path, Audit, list[Step]]) -> None:
    root, _, _ = whole
    with FileLock(root / "out" / LOCK), pytest.raises(AuditRunningError, match="out"):
        audit(plan(root))


def test_pages_are_not_written_among_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/a.py").write_text("class Model: ...\nclass ModelNew: ...\n")
    works = read_works(tmp_path / "kernels")
    for out in (tmp_path, tmp_path / "kernels/sub"):
        with pytest.raises(BadOptionError, match="it reads"):
            audit(Plan(works=works, source=tmp_path / "kernels", options=Options(), out=out))
    assert [path.name for path in tmp_path.rglob("*")] == ["kernels", "a.py"]


def test_a_judge_may_take_as_long_as_its_options_say() -> None:
    for options in (Options(), Options(timeout_s=600.0, budget_s=3600.0)):
        court = Plan(works=[], source=Path(), options=options, out=Path()).court  # type: ignore[arg-type]
        assert isinstance(court, Court)
        assert court.limit_s > 2 * options.load_timeout_s + options.budget_s + 2 * options.timeout_s
