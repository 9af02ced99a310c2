"""The rules of the CUDA sources that no compiler checks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "amk/csrc"
HOST = ROOT / "host"
SOURCES = sorted(path for path in ROOT.rglob("*") if path.is_file() and HOST not in path.parents)

# Written when a kernel is generated.
GENERATED = {"abi.cuh", "copy.cuh", "trace.cuh"}

DIRECTIVE = re.compile(r"^\s*#\s*(\w+)(.*)$", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*|/\*[\s\S]*?\*/")
LINES_MAX = 400

every_file = pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())


def code_of(path: Path) -> str:
    return COMMENT.sub("", path.read_text())


def directives(path: Path) -> list[tuple[str, str]]:
    return [(name, rest.strip()) for name, rest in DIRECTIVE.findall(code_of(path))]


def test_there_are_sources() -> None:
    assert len(SOURCES) > 10


def test_every_primitive_is_the_hosts_too() -> None:
    primitives = {path.relative_to(ROOT).as_posix() for path in (ROOT / "prim").rglob("*.cuh")}
    assert primitives == {path.relative_to(HOST).as_posix() for path in (HOST / "prim").rglob("*.cuh")}


@every_file
def test_a_file_is_a_header_that_says_what_it_holds(path: Path) -> None:
    lines = path.read_text(encoding="ascii").splitlines()
    assert path.suffix == ".cuh"
    assert lines[0].startswith("// ")
    assert directives(path)[0] == ("pragma", "once")
    assert directives(path).count(("pragma", "once")) == 1
    assert len(lines) <= LINES_MAX


@every_file
def test_includes_are_our_own(path: Path) -> None:
    # A kernel is built where no CUDA toolkit is, and its headers read by compilers that are not NVIDIA's.
    for name, rest in directives(path):
        if name == "include":
            included = rest.removeprefix('"').removesuffix('"')
            assert rest == f'"{included}"'
            assert included in GENERATED or (ROOT / included).is_file(), included


@every_file
def test_the_preprocessor_chooses_nothing(path: Path) -> None:
    assert {name for name, _ in directives(path)} <= {"include", "pragma"}
    assert {rest.split()[0] for name, rest in directives(path) if name == "pragma"} <= {"once", "unroll"}


@every_file
def test_ptx_is_in_prim_and_names_its_section(path: Path) -> None:
    text = path.read_text()
    if path.relative_to(ROOT).parts[0] != "prim":
        assert not re.search(r"\basm\b", code_of(path))
    elif re.search(r"\basm\b", code_of(path)):
        assert "PTX ISA" in text


@every_file
def test_floating_point_sums_have_one_order(path: Path) -> None:
    # Integer atomics only: a sum of floats by atomics depends on who comes first.
    assert not re.search(r"atomicAdd|red\.\S*\.f(16|32|64)|atom\.\S*\.f(16|32|64)", code_of(path))
