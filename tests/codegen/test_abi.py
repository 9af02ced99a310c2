"""The structs of the kernel: what Python packs is what a C compiler reads."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from amk.codegen import abi
from amk.codegen.abi import Field, Struct

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "abi.cuh"

STRUCTS = (abi.HEAD, *abi.TASKS.values(), abi.PARAMS, abi.STATUS)

# All that the header takes from csrc/prim/thread.cuh.
THREAD = "#pragma once\nnamespace amk { using u32 = unsigned int; using u64 = unsigned long long; }\n"


def by_name(declared: Struct) -> str:
    return declared.name


def numbered(declared: Struct, first: int = 1) -> dict[str, int | tuple[int, ...]]:
    """Fields with the values 1, 2, 3 ..."""
    values: dict[str, int | tuple[int, ...]] = {}
    for field in declared.fields:
        run = tuple(range(first, first + field.count))
        values[field.name] = run[0] if field.count == 1 else run
        first += field.count
    return values


def compile_and_run(folder: Path, main: str) -> str:
    """The output of a C++ program over the generated header."""
    compiler = shutil.which("g++")
    assert compiler, "the layout of the structs is checked with g++: install it (apt-get install g++)"
    (folder / "prim").mkdir()
    (folder / "prim/thread.cuh").write_text(THREAD)
    (folder / "abi.cuh").write_text(abi.header())
    (folder / "main.cpp").write_text(f'#include <cstddef>\n#include <cstdio>\n#include "abi.cuh"\n{main}')
    command = [compiler, "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{folder}", "-o", "main", "main.cpp"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return subprocess.run([str(folder / "main")], capture_output=True, text=True, check=True).stdout


# --- layout ----------------------------------------------------------------------------------------------------------


def test_a_c_compiler_lays_every_struct_out_as_pack_does(tmp_path: Path) -> None:
    lines = []
    for declared in STRUCTS:
        name = declared.name
        lines.append(f'std::printf("{name} %zu %zu\\n", sizeof(amk::{name}), alignof(amk::{name}));')
        lines += [
            f'std::printf("{name}.{field.name} %zu %zu\\n", offsetof(amk::{name}, {field.name}), '
            f"sizeof(amk::{name}::{field.name}));"
            for field in declared.fields
        ]
    found = compile_and_run(tmp_path, "int main() {\n" + "\n".join(lines) + "\n}\n")
    expected = []
    for declared in STRUCTS:
        expected.append(f"{declared.name} {declared.size} {declared.align}")
        expected += [
            f"{declared.name}.{field.name} {declared.offsets[field.name]} {struct.calcsize('=' + field.format)}"
            for field in declared.fields
        ]
    assert found.splitlines() == expected


@pytest.mark.parametrize("declared", STRUCTS, ids=by_name)
def test_offsets_are_where_pack_puts_the_values(declared: Struct) -> None:
    values = numbered(declared)
    data = declared.pack(**values)
    for field in declared.fields:
        found = struct.unpack_from(f"={field.format}", data, declared.offsets[field.name])
        expected = values[field.name]
        assert found == (expected if isinstance(expected, tuple) else (expected,))


@pytest.mark.parametrize("declared", abi.TASKS.values(), ids=by_name)
def test_a_task_is_an_element_of_an_array_whatever_its_kind(declared: Struct) -> None:
    assert len(declared.pack(**numbered(declared))) == abi.TASK_BYTES
    assert declared.size <= abi.TASK_BYTES
    assert abi.TASK_BYTES % declared.align == 0
    assert declared.fields[: len(abi.HEAD.fields)] == abi.HEAD.fields


@pytest.mark.parametrize("declared", [abi.PARAMS, abi.STATUS], ids=by_name)
def test_a_struct_that_is_no_task_has_the_size_of_c(declared: Struct) -> None:
    assert len(declared.pack(**numbered(declared))) == declared.size


def test_counters_lie_on_lines_of_their_own() -> None:
    assert abi.COUNTER_STRIDE * 4 == 128


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declared", STRUCTS, ids=by_name)
def test_unpack_is_the_inverse_of_pack(declared: Struct) -> None:
    values = numbered(declared)
    data = declared.pack(**values)
    assert declared.unpack(data) == values
    assert declared.unpack(memoryview(bytearray(data))) == values


MIXED = Struct("Mixed", (Field("pair", "i32", 2), Field("triple", "u32", 3), Field("share", "f32"), Field("at", "u64")))


def test_negative_and_fractional_values_survive() -> None:
    values = {"pair": (-1, 2), "triple": (1, 2, 2**32 - 1), "share": 0.5, "at": 2**64 - 1}
    assert MIXED.unpack(MIXED.pack(**values)) == values


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"at": None}, r"missing \['at'\]"),
        ({"stray": 1}, r"unknown \['stray'\]"),
        ({"pair": (1, 2, 3), "triple": (4, 5)}, "Mixed.pair takes 2 values, not 3"),
        ({"at": (1, 2)}, "Mixed.at takes 1 values, not 2"),
        ({"pair": 1}, "Mixed.pair takes 2 values, not 1"),
    ],
)
def test_fields_that_do_not_fit_are_named(change: dict[str, object], named: str) -> None:
    values = {"pair": (1, 2), "triple": (3, 4, 5), "share": 1.0, "at": 6} | change
    with pytest.raises(TypeError, match=named):
        MIXED.pack(**{name: value for name, value in values.items() if value is not None})


@pytest.mark.parametrize("change", [{"at": -1}, {"at": 2**64}, {"pair": (0, 2**31)}, {"triple": (0, 0, -1)}])
def test_a_value_out_of_range_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(struct.error):
        MIXED.pack(**({"pair": (1, 2), "triple": (3, 4, 5), "share": 1.0, "at": 6} | change))


def test_a_struct_longer_than_its_stride_is_refused() -> None:
    with pytest.raises(ValueError, match="takes 16 bytes, more than 8"):
        Struct("Long", (Field("a", "u64"), Field("b", "u64")), 8)


# --- header ----------------------------------------------------------------------------------------------------------


def test_the_golden_header(update_golden: bool) -> None:
    if update_golden:
        GOLDEN.write_text(abi.header())
    assert abi.header() == GOLDEN.read_text()


@pytest.mark.parametrize("codes", [abi.OPCODES, abi.PROLOGUES, abi.EPILOGUES])
def test_codes_are_distinct(codes: dict[str, int]) -> None:
    assert sorted(codes.values()) == list(range(len(codes)))


def test_every_opcode_has_a_task() -> None:
    assert set(abi.OPCODES) == set(abi.TASKS)
