"""The operands of a task kind, wherever in its parameters they stand: found by type, replaced by path."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from amk.ir.buffers import Operand

Path = tuple[str, ...]

# Parameters that are written; all other operands are read.
WRITTEN = {
    "gemv": {("epilogue", "out"), ("epilogue", "logits"), ("epilogue", "value"), ("epilogue", "index")},
    "attention": {("out",), ("stats",)},
    "sample": {("token",), ("stop",), ("next_hidden",)},
    "add_norm": {("out",)},
    "begin": set(),
}


def operands(op: Any, path: Path = ()) -> Iterator[tuple[Path, Operand]]:
    """Every operand of a task kind, with its path."""
    for name in op.__struct_fields__:
        found = getattr(op, name)
        if isinstance(found, Operand):
            yield (*path, name), found
        elif isinstance(found, msgspec.Struct):
            yield from operands(found, (*path, name))


def is_written(op: Any, path: Path) -> bool:
    return path in WRITTEN[type(op).__struct_config__.tag]


def with_operand(op: Any, path: Path, operand: Operand) -> Any:
    """The task kind with another operand at ``path``."""
    first, *rest = path
    return replace(op, **{first: with_operand(getattr(op, first), tuple(rest), operand) if rest else operand})
