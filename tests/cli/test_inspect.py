"""`amk inspect`: what it says of a schedule, and a page that loads nothing and obeys nothing in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from amk.cli.app import main
from amk.cli.inspect_page.describe import printable, role_of
from amk.ir.schedule import Queue, Schedule, Wait
from amk.target import resolve_target
from tests.builders import llama_graph, lower
from tests.conftest import Run

Report = Callable[..., dict]
SCHEDULE = lower(llama_graph(), workers=4, max_context=600, tagged=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(SCHEDULE, tmp_path)


def written(schedule: Schedule, folder: Path) -> Path:
    path = folder / "schedule.json"
    path.write_bytes(schedule.to_json())
    return path


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """The JSON document of a command that passes."""

    def run(*words: str | Path) -> dict:
        assert main(["inspect", *map(str, words), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return run


def failure(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """What is said of a command that ends with 2."""
    assert main(["inspect", *map(str, words)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "mend:" in err
    return err


# --- the summary -----------------------------------------------------------------------------------------------------


def test_summary(path: Path, report: Report) -> None:
    found = report(path)
    assert found["digest"] == SCHEDULE.digest()
    assert (found["target"], found["workers"], found["max_context"]) == ("cpu", 4, 600)
    assert found["tasks"] == sum(found["tasks_by_kind"].values()) == len(SCHEDULE.tasks)
    assert found["tasks_by_kind"]["begin"] == 4
    assert found["counters"] == len(SCHEDULE.counters)
    assert sum(total["count"] for total in found["buffers"]) == len(SCHEDULE.buffers)
    weights = sum(buffer.bytes for buffer in SCHEDULE.buffers if buffer.kind == "weight")
    assert {"kind": "weight", "count": 9, "bytes": weights} in found["buffers"]
    assert found["estimate"]["pos"] == 512
    assert found["estimate"]["stuck"] == []
    assert found["html"] is None


def test_roles_gather_the_hops_of_all_layers(path: Path, report: Report) -> None:
    found = report(path)
    roles = {role["role"]: role for role in found["roles"]}
    assert list(roles) == ["begin", "qkv", "attention", "o", "gate_up", "down", "head", "sample"]
    assert roles["qkv"]["hops"] == 2
    assert sum(role["bytes"] for role in roles.values()) == found["estimate"]["bytes"]
    assert sum(role["adds_us"] for role in roles.values()) == pytest.approx(found["estimate"]["step_us"])


def test_the_summary_as_text(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert SCHEDULE.digest() in out
    assert "estimates of a cost model, not measurements" in out
    for word in ("ring", "4 workers", "gate_up", "weight", "kv", "mean wait us"):
        assert word in out


def test_position_and_tokens(path: Path, report: Report) -> None:
    found = report(path, "--pos", "100", "--tokens", "8")["estimate"]
    assert (found["pos"], found["tokens"]) == (100, 8)
    assert found["bytes"] < report(path)["estimate"]["bytes"]


# --- one task, one worker --------------------------------------------------------------------------------------------


def test_a_task(path: Path, report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(path, "--task", "L1.down#1")
    task = SCHEDULE.task["L1.down#1"]
    assert found["kind"] == "gemv"
    assert found["parameters"]["epilogue"] == "add_residual"
    assert found["parameters"]["weight"] == "model.layers.1.mlp.down_proj.weight"
    assert found["reads"][0] == "mlp[0:tokens, 0:96] v1"
    assert found["streams"] == ["model.layers.1.mlp.down_proj.weight[16:32, 0:96]"]
    (wait,) = found["waits"]
    assert (wait["counter"], wait["threshold"]) == (task.waits[0].counter, task.waits[0].threshold)
    assert len(wait["signallers"]) == wait["threshold"] == wait["signals_per_step"]
    assert wait["last"] in wait["signallers"]
    assert main(["inspect", str(path), "--task", "L1.down#1"]) == 0
    assert f"L1.gate_up >= {wait['threshold']}, from" in capsys.readouterr().out


def test_a_wait_for_the_step_before(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(path), "--task", "begin#0"]) == 0
    out = capsys.readouterr().out
    assert "sample >= 0, from the step before" in out
    assert "stop[0:1] of the step before" in out


def test_a_queue(path: Path, report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    found = report(path, "--worker", "2")
    assert tuple(task["id"] for task in found["tasks"]) == SCHEDULE.queues[2].tasks
    assert [task["place"] for task in found["tasks"]] == list(range(len(found["tasks"])))
    assert main(["inspect", str(path), "--worker", "2"]) == 0
    assert f"{len(found['tasks'])} tasks" in capsys.readouterr().out


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "L1.down#777"], "try L1.down#"),
        (["--worker", "4"], "a number from 0 to 3"),
        (["--worker", "-1"], "a number from 0 to 3"),
        (["--pos", "600"], "a number from 0 to 599"),
        (["--pos", "-1"], "a number from 0 to 599"),
        (["--tokens", "9"], "a number from 1 to 8"),
        (["--html", "/dev/null/page.html"], "--html"),
    ],
)
def test_options_out_of_range(path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert said in failure(capsys, path, *words)


def test_a_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "AMK-U110" in failure(capsys, tmp_path / "none.json")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"version":1}', b"\xff\xfe", b"[" * 100_000])
def test_a_malformed_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(data)
    assert "AMK-S401" in failure(capsys, tmp_path / "bad.json")


@pytest.mark.parametrize(
    "change", [{"tasks": ()}, {"counters": ()}, {"buffers": ()}, {"queues": (Queue(index=0, tasks=("none",)),)}]
)
def test_a_file_that_names_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, object]
) -> None:
    assert "AMK-S410" in failure(capsys, written(replace(SCHEDULE, **change), tmp_path))


def test_an_empty_schedule(tmp_path: Path, report: Report) -> None:
    page = tmp_path / "page.html"
    empty = written(replace(SCHEDULE, tasks=(), queues=(), buffers=(), counters=()), tmp_path)
    assert report(empty, "--html", page)["tasks"] == 0
    assert embedded(page.read_text())["tasks"]["id"] == []


def test_errors_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(tmp_path / "none.json"), "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "AMK-U110"


def test_a_schedule_that_blocks_is_shown(tmp_path: Path, report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    never = Wait(counter="head", threshold=99)
    last = SCHEDULE.task["sample#0"]
    tasks = tuple(replace(task, waits=(never,)) if task is last else task for task in SCHEDULE.tasks)
    blocked = written(replace(SCHEDULE, tasks=tasks), tmp_path)
    page = tmp_path / "page.html"
    assert any(line.startswith("sample#0 waits for") for line in report(blocked, "--html", page)["estimate"]["stuck"])
    assert "sample#0" in {stuck["task"] for stuck in embedded(page.read_text())["stuck"]}
    for words in (["--task", "sample#0"], ["--worker", "0"], []):
        assert main(["inspect", str(blocked), *words]) == 0
    assert "never starts" in capsys.readouterr().out


# --- the page --------------------------------------------------------------------------------------------------------


class Elements(HTMLParser):
    """The elements of a page and what is in each script, as a browser would cut them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.inside.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script" and self.inside:
            self.inside[-1] += data


def embedded(page: str) -> dict:
    """The schedule's data, out of the page."""
    found = Elements(page)
    scripts = [attributes for tag, attributes in found.tags if tag == "script"]
    assert [attributes.get("type") for attributes in scripts] == ["application/json", None]
    return json.loads(found.inside[0])


@pytest.fixture
def page(path: Path, tmp_path: Path) -> str:
    html = tmp_path / "page.html"
    assert main(["inspect", str(path), "--html", str(html)]) == 0
    return html.read_text()


def test_the_page_loads_nothing(page: str) -> None:
    assert not re.search(r"(https?:)?//[a-z0-9-]+\.[a-z]", page, re.IGNORECASE)
    assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|import\(|innerHTML|document\.write", page)
    for tag, attributes in Elements(page).tags:
        assert tag not in {"link", "img", "iframe", "object", "embed", "base", "audio", "video"}
        assert not {"src", "href", "action", "srcset", "style"} & set(attributes)
    assert "default-src 'none'" in page


def test_the_page_holds_every_task(page: str) -> None:
    data = embedded(page)
    columns = data["tasks"]
    in_queues = [name for queue in SCHEDULE.queues for name in queue.tasks]
    assert columns["id"] == in_queues
    assert {len(column) for column in columns.values()} == {len(in_queues)}
    assert data["digest"] == SCHEDULE.digest()
    number = in_queues.index("L1.down#1")
    texts = data["texts"]
    assert texts[columns["kind"][number]] == "gemv"
    assert [texts[n] for n in columns["streams"][number]] == ["model.layers.1.mlp.down_proj.weight[16:32, 0:96]"]
    assert data["hops"][columns["hop"][number]] == {"name": "L1.down", "role": "down"}
    counter, threshold = data["waits"][columns["waits"][number][0]]
    assert (data["counters"][counter], threshold) == ("L1.gate_up", 4)
    assert all(0 <= start <= end for start, end in zip(columns["start"], columns["end"], strict=True))


HOSTILE = "</script><script>alert(1)</script><!-- \u2028 \u202e \x1b[31m \x00 ' \" & {{ 7*7 }} ]]>"


def renamed(schedule: Schedule, names: dict[str, str]) -> Schedule:
    """The schedule with every string that is a key of ``names`` replaced."""

    def through(value: object) -> object:
        match value:
            case str():
                return names.get(value, value)
            case dict():
                return {name: through(inner) for name, inner in value.items()}
            case list():
                return [through(inner) for inner in value]
        return value

    return Schedule.from_json(msgspec.json.encode(through(msgspec.json.decode(schedule.to_json()))))


def test_a_hostile_file_stays_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {name: f"{HOSTILE} {name}" for name in ("L0.o#0", "L0.o", "hidden", "cpu", "attn")}
    hostile = written(renamed(SCHEDULE, names), tmp_path)
    html = tmp_path / "page.html"
    assert main(["inspect", str(hostile), "--html", str(html)]) == 0
    page = html.read_text()
    assert "alert(1)</script>" not in page
    assert page.count("<!--") == 0
    assert "\u202e" not in page
    assert printable(names["L0.o#0"]) in embedded(page)["tasks"]["id"]
    for words in (["--task", names["L0.o#0"]], ["--worker", "0"]):
        assert main(["inspect", str(hostile), *words]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_the_page_of_a_large_schedule_is_small(tmp_path: Path) -> None:
    graph = llama_graph(
        hidden=576, layers=30, heads=9, kv_heads=3, head_dim=64, intermediate=1536, vocab=49152, context=8192
    )
    schedule = lower(graph, resolve_target(arch="sm_90", target=None), max_context=8192)
    html = tmp_path / "page.html"
    assert main(["inspect", str(written(schedule, tmp_path)), "--html", str(html)]) == 0
    assert len(embedded(html.read_text())["tasks"]["id"]) == len(schedule.tasks) > 12_000
    assert html.stat().st_size < 4_000_000


@pytest.mark.parametrize(
    ("raw", "shown"), [("L0.qkv#1", "L0.qkv#1"), ("a\x1b[1m\n", "a\\x1b[1m\\n"), ("\u202e\ud800é", "\\u202e\\ud800é")]
)
def test_printable(raw: str, shown: str) -> None:
    assert printable(raw) == shown


@pytest.mark.parametrize(("hop", "role"), [("L3.qkv", "qkv"), ("head", "head"), ("L3.", "L3."), ("xL3.qkv", "xL3.qkv")])
def test_roles(hop: str, role: str) -> None:
    assert role_of(hop) == role


def test_inspect_imports_no_framework(path: Path, run_python: Run) -> None:
    program = f"from amk.cli.app import main; import sys; main(['inspect', {str(path)!r}]); print(sorted(sys.modules))"
    ran = run_python(program)
    assert not {"'torch'", "'transformers'", "'jinja2'"} & set(re.findall(r"'\w+'", ran.stdout.splitlines()[-1]))
