"""Reports: figures against numbers known from elsewhere, pages that obey nothing in a kernel, findings seen again."""

from __future__ import annotations

import html.parser
import itertools
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from amk.contracts.forms import Work
from amk.contracts.forms.records import USUAL
from amk.contracts.gates import gates
from amk.contracts.report import Heading, write_report
from amk.contracts.report.inputs import expression
from amk.contracts.report.plots import gate_figure, kappa_figure, status_figure, svg
from amk.contracts.report.statistics import Row, Statistics, share, statistics
from amk.contracts.report.text import block, code, markdown, printable, shortened
from amk.contracts.sources import KernelPair, kernelbench_pair
from amk.contracts.verdicts import BREAKING, Finding, Judgement
from tests.contracts.fake_judges import ORDERS, failing, judgement, pair, ratio, standard, swallowed

NAMES = {"G00": "standard test", "G01": "non-finite fidelity", "G04": "shapes", "G07": "float64 error ratio"}
OPTIONS = {"device": "cpu", "dtype": "as made", "seed": 0}

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "</svg></style></table><h1>x</h1>",
    "[click](javascript:alert(1)) ![x](http://evil.example/a.png)",
    "| cell | cell |\n# heading\n- item\n> quote\n```\ncode",
    "`code` ``` &lt;b&gt; &#60; https://evil.example www.evil.example a@evil.example <https://evil.example>",
    "{{ 7 * 7 }} {% raw %} ${x} $x$ \\",
    "\x1b[31mred\x1b[0m \u202edesrever\u202c \u200b\x00 \ud800 \u2028 tab\there",
    "''' \"\"\" '; import os; os.abort() #",
)


def heading(**changes: object) -> Heading:
    given = {
        "source": "kernels",
        "amk": "0.0",
        "gates_digest": "a" * 64,
        "options": OPTIONS,
        "machine": {"system": "Linux"},
        "names": NAMES,
        "total": 4,
        "complete": True,
        **changes,
    }
    return Heading(**given)  # type: ignore[arg-type]


def entry(found: Judgement, kernel: KernelPair | None = None, origin: str = "kernels/x.py") -> tuple[Work, Judgement]:
    return Work(name=found.kernel, origin=origin, kernel=kernel or pair(found.kernel, "conform")), found


# --- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        (0, 10, 0.0, 0.30850),  # 1 - 0.025 ** (1 / 10)
        (10, 10, 0.69150, 1.0),
        (5, 10, 0.18709, 0.81291),
        (1, 20, 0.00127, 0.24873),
        (7, 7, 0.59038, 1.0),
        (0, 0, 0.0, 1.0),
    ],
)
def test_exact_intervals(count: int, of: int, low: float, high: float) -> None:
    found = share(count, of)
    assert (found.low, found.high) == (pytest.approx(low, abs=2e-5), pytest.approx(high, abs=2e-5))


@pytest.mark.parametrize(("count", "of"), [(3, 17), (40, 90)])
def test_an_interval_is_where_a_binomial_tail_has_its_share(count: int, of: int) -> None:
    found = share(count, of)

    def tail(rate: float, counts: range) -> float:
        return sum(math.comb(of, k) * rate**k * (1 - rate) ** (of - k) for k in counts)

    assert tail(found.low, range(count, of + 1)) == pytest.approx(0.025)
    assert tail(found.high, range(count + 1)) == pytest.approx(0.025)


@pytest.fixture(scope="module")
def found() -> Statistics:
    rows = [
        Row.of(judgement("a")),
        Row.of(judgement("b", "break")),
        Row.of(judgement("c", "infinite")),
        Row.of(replace(judgement("d"), findings=(standard(3), ratio(7.0)))),
        Row.of(replace(judgement("e"), findings=(), status="failed")),
        Row.of(replace(judgement("f"), findings=(), status="not judged")),
    ]
    return statistics(rows)


def test_kernels_are_counted(found: Statistics) -> None:
    assert found.kernels == 6
    assert found.statuses == {"conforms": 2, "violation": 1, "broken": 1, "failed": 1, "not judged": 1}
    assert (found.conforming.count, found.violating.count, found.broken.count, found.failed.count) == (2, 2, 1, 1)
    assert found.conforming.of == 5
    assert found.gates["G01"] == {"pass": 0, "violation": 1, "not applicable": 0, "reject": 0}
    assert found.gates["G00"]["pass"] == 4


def test_kappa_is_swept(found: Statistics) -> None:
    assert [(point.kappa, point.passing.count, point.passing.of) for point in found.kappa] == [
        (2, 1, 4),  # 1.5; not 3, 7 and infinity
        (4, 2, 4),
        (8, 3, 4),
        (16, 3, 4),
        (32, 3, 4),
        (64, 3, 4),
    ]


def test_a_violation_that_no_kappa_grants_passes_at_none() -> None:
    died = Finding(gate="G07", verdict="violation", why="it died", cases=1, seed=0, figures={"kappa": 1.0})
    row = Row.of(replace(judgement("a"), findings=(died,)))
    assert row.kappa == math.inf


def test_the_standard_test_is_set_beside_the_verifier(found: Statistics) -> None:
    loose, strict = found.contingency
    assert (loose.tolerance, strict.tolerance) == ("0.01", "0.0001")
    assert (loose.both_accept, loose.standard_only, loose.verifier_only, loose.neither) == (2, 2, 0, 0)
    assert (strict.both_accept, strict.standard_only, strict.verifier_only, strict.neither) == (1, 2, 1, 0)
    assert (loose.missed.count, loose.missed.of, loose.left_out) == (2, 4, 2)
    assert (strict.spared.count, strict.spared.of) == (1, 1)
    assert (loose.agreement.count, strict.agreement.count) == (2, 1)


def test_an_empty_audit_has_figures() -> None:
    found = statistics([])
    assert found.conforming.of == 0
    assert math.isnan(found.conforming.rate)
    for figure in (status_figure(found), gate_figure(found, NAMES), kappa_figure(found.kappa)):
        assert svg(figure)


def test_pictures_are_the_same_bytes_and_well_formed(found: Statistics) -> None:
    for make in (status_figure, lambda each: gate_figure(each, NAMES), lambda each: kappa_figure(each.kappa)):
        picture = svg(make(found))
        assert picture == svg(make(found))
        assert ET.fromstring(picture).tag.endswith("svg")
        assert "<metadata" not in picture
        assert not re.search(r"(href|src)=\"(?!#)", picture), "it loads something"


# --- text ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_shows_it_and_does_nothing_else(text: str) -> None:
    parser = MarkdownIt("gfm-like", {"html": True, "linkify": False}).enable("table")
    page = f"a {markdown(text)} b\n\n| x |\n| --- |\n| {markdown(text)} |\n| {code(text)} |\n\n{block(text)}\n\nend\n"
    tokens = parser.parse(page)
    kinds = {token.type for token in tokens} | {child.type for token in tokens for child in token.children or ()}
    assert not kinds & {"html_block", "html_inline", "link_open", "image", "heading_open", "bullet_list_open"}
    assert not kinds & {"blockquote_open", "em_open", "strong_open", "s_open"}
    assert sum(token.type == "tr_open" for token in tokens) == 3
    assert sum(token.type == "td_open" for token in tokens) == 2
    assert [token.content for token in tokens if token.type == "fence"] == [
        printable(text, lines=True).rstrip("\n") + "\n"
    ]
    words = "".join(child.content for child in tokens[1].children or () if child.type in {"text", "text_special"})
    assert words == f"a {printable(text)} b"
    assert tokens[-2].content == "end"


@pytest.mark.parametrize("text", HOSTILE)
def test_what_is_obeyed_and_not_shown_is_written_as_its_code(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert shown.encode()
    assert "\x1b" not in printable(text, lines=True)


def test_codes_are_readable() -> None:
    assert printable("a\u202eb\n\U000e0001") == "a\\u202eb\\u000a\\U000e0001"
    assert printable("a\r\n\tb\rc", lines=True) == "a\n\tb\\u000dc"
    assert shortened("abc", 3) == "abc"
    assert shortened("abcd", 3) == "abc ... (cut)"
    assert code("") == "(empty)"
    assert code("a`b") == "``a`b``"
    assert code("`") == "`` ` ``"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("float32[7, 33]",), '(data["0"],)'),
        (("float32[2]", "3", "int64[]"), '(data["0"], 3, data["1"])'),
        (("float32[2, 3] strides [1, 2]",), '(strided(data["0"], (1, 2,), 0),)'),
        (("float32[4] offset 1", "-1.5e-3"), '(strided(data["0"], data["0"].stride(), 1), -0.0015)'),
        (("[bfloat16[2], [1, None]]", "True"), '([data["0"], [1, None]], True)'),
        ((), "()"),
        (("__import__('os').abort()",), None),
        (("float32[2]; import os",), None),
        (("'text'",), None),
        (("{a: float32[1]}",), None),
        (("[float32[2]",), None),
        (("inf",), None),
        (("0777",), None),
    ],
)
def test_inputs_become_code_only_where_they_are_understood(words: tuple[str, ...], shown: str | None) -> None:
    assert expression(words) == shown


# --- the report ------------------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """Tags, and what is loaded, linked or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.attributes: set[str] = set()
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [value or "" for name, value in attrs if name in {"href", "src", "xlink:href", "action", "data"}]

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hostile_kernel_writes_no_page(tmp_path: Path, hostile: str) -> None:
    finding = replace(swallowed(hostile), why=hostile, figures={hostile: 1.0}, failing=failing(hostile))
    finding = replace(finding, failing=replace(failing(hostile), inputs=(hostile, hostile)))
    bad = replace(judgement("bad"), findings=(standard(), finding), why=hostile, status="broken")
    kernel = kernelbench_pair("bad", reference=hostile, candidate=hostile)
    write_report(tmp_path, [entry(bad, kernel, origin=hostile)], heading(source=hostile), timings={})
    page = Page((tmp_path / "report.html").read_text())
    assert not page.tags & {"script", "img", "iframe", "object", "form", "h3"}
    assert all(link.startswith("#") or link in {"report.json", "kernels/bad.md"} for link in page.links)
    assert not {name for name in page.attributes if name.startswith("on")}
    assert printable(hostile) in page.words
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["kernels"][0]["findings"][1]["why"] == hostile
    text = (tmp_path / "kernels/bad.md").read_text()
    assert printable(text, lines=True) == text
    tokens = MarkdownIt("gfm-like", {"html": True, "linkify": False}).parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    assert not {token.type for token in itertools.chain(tokens, inline)} & {"html_block", "html_inline", "image"}
    assert [token.attrs["href"] for token in inline if token.type == "link_open"] == [
        "bad/G01.safetensors",
        "bad/candidate.py",
        "bad/reference.py",
    ]
    assert next(token.content for token in tokens if token.type == "inline") == "bad"
    assert not (tmp_path / "kernels/bad/G01.py").exists()
    assert (tmp_path / "kernels/bad/candidate.py").read_bytes() == hostile.encode(errors="surrogatepass")


def test_a_report_has_all_of_it(tmp_path: Path) -> None:
    found = [judgement(order, order, seconds=index) for index, order in enumerate(ORDERS)]
    write_report(tmp_path, map(entry, found), heading(), timings={"wall_s": 3})
    document = json.loads((tmp_path / "report.json").read_text(), parse_constant=pytest.fail)
    assert [kernel["kernel"] for kernel in document["kernels"]] == list(ORDERS)
    assert document["statistics"]["statuses"]["broken"] == 1
    assert document["timings"] == {"wall_s": 3, "seconds": {order: index for index, order in enumerate(ORDERS)}}
    assert all("seconds" not in kernel for kernel in document["kernels"])
    broken = next(kernel for kernel in document["kernels"] if kernel["kernel"] == "break")
    saved = broken["findings"][1]["failing"]["data"]
    assert (tmp_path / saved).read_bytes() == failing().data
    infinite = next(kernel for kernel in document["kernels"] if kernel["kernel"] == "infinite")
    assert infinite["findings"][1]["figures"]["kappa"] == "inf"
    page = Page((tmp_path / "report.html").read_text())
    assert {f"kernels/{order}.md" for order in ORDERS} <= set(page.links)
    assert "svg" in page.tags
    assert "Not complete" not in page.words
    assert "\N{INFINITY}" in page.words


def test_a_report_of_a_part_says_so(tmp_path: Path) -> None:
    write_report(tmp_path, [entry(judgement("a"))], heading(complete=False, total=1000), timings={})
    assert "1 of 1,000 kernels are judged" in Page((tmp_path / "report.html").read_text()).words


def test_the_script_of_a_page_shows_the_difference(tmp_path: Path) -> None:
    """On inputs with strides and an offset of their own, in a folder that knows nothing of amk."""
    reference = """import torch
class Model(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((1,), scale))
    def forward(self, x, y, n):
        return x * self.scale, y.stride(), y.storage_offset(), y[1, 2] * n
def get_inputs():
    return [torch.rand(2), torch.rand(2, 3), 3]
def get_init_inputs():
    return [2.0]
"""
    candidate = (
        reference.replace("Model(", "ModelNew(")
        .replace("x * ", "torch.nan_to_num(x) * ")
        .replace("torch.full((1,), scale)", "torch.zeros(1)")
    )
    bad = judgement("bad", "break")
    kernel = kernelbench_pair("bad", reference=reference, candidate=candidate)
    write_report(tmp_path, [entry(bad, kernel)], heading(), timings={})
    page = (tmp_path / "kernels/bad.md").read_text()
    assert "python bad/G01.py" in page
    assert "amk audit bad/candidate.py --reference bad/reference.py --gates G01 --seed 0 --device cpu --out " in page
    ran = subprocess.run(
        [sys.executable, "-I", "bad/G01.py"], cwd=tmp_path / "kernels", capture_output=True, text=True, check=True
    )
    shown = "(tensor([2., {}], grad_fn=<MulBackward0>), (1, 2), 1, tensor(15.))"
    lines = ran.stdout.splitlines()
    assert lines[0::2] == [f"{side}, call {call}:" for side in ("reference", "candidate") for call in (1, 2)]
    assert lines[1::2] == [shown.format("nan")] * 2 + [shown.format("0.")] * 2


def test_no_files_beside_a_page_with_nothing_to_see_again(tmp_path: Path) -> None:
    write_report(tmp_path, [entry(judgement("good"))], heading(), timings={})
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == ["good.md"]


def test_a_kernel_that_is_no_text_has_a_page(tmp_path: Path) -> None:
    work = Work(name="gone", origin="records.jsonl:3", kernel=None, why="it is not JSON")
    lost = replace(judgement("gone"), findings=(), status="not judged", why="it is not JSON")
    write_report(tmp_path, [(work, lost)], heading(), timings={})
    assert "**not judged**: it is not JSON" in (tmp_path / "kernels/gone.md").read_text()


def test_the_manual_names_every_gate_as_the_code_does() -> None:
    manual = (Path(__file__).parents[2] / "docs/verifier.md").read_text()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in manual.splitlines() if line[:3] == "| G"]
    assert [(row[0], row[3], row[4] == "yes") for row in rows] == [
        (f"{gate.id} {gate.name}", gate.catches, gate.id in BREAKING) for gate in gates()
    ]
    assert [row[2].startswith("yes") for row in rows if row[0][:3] != "G12"] == [
        gate.tolerance_free for gate in gates() if gate.id != "G12"
    ]


def test_the_manual_names_every_usual_field() -> None:
    manual = (Path(__file__).parents[2] / "docs/verifier.md").read_text()
    for role, names in USUAL.items():
        assert f"| `{role}` | {', '.join(f'`{name}`' for name in names)}" in manual
