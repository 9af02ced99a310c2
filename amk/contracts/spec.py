"""Contract files: YAML, versioned, and strict; an unknown key is an error with its file and line.

A contract says what a compiled model owes and to whom. This version states the numerical clause, of which decode
parity is the test.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import yaml

from amk.contracts.errors import ContractFileError
from amk.errors import UnreadableInputError
from amk.ir.record import Record

Positive = Annotated[float, msgspec.Meta(gt=0)]


class Scope(Record):
    """Where a contract holds: ``context`` is the inclusive range of positions."""

    op: Literal["decode"]
    dtype: tuple[Literal["bf16", "w8a16"], ...]
    kv_dtype: tuple[Literal["float32", "bfloat16"], ...]
    arch: tuple[Literal["cpu", "host", "sm_80", "sm_90", "sm_120"], ...]
    context: tuple[int, int]


class Numerical(Record):
    """Decode parity: the oracle, and the largest range of the logits' difference that any position may show."""

    oracle: Literal["float32"]
    logit_range_max: Positive


class Contract(Record):
    """One contract. ``contract`` is its name, ``model/op``."""

    contract: str
    version: Literal[1]
    scope: Scope
    numerical: Numerical

    @classmethod
    def load(cls, path: Path) -> Contract:
        """Read a contract file.

        Raises
        ------
        UnreadableInputError
            There is no such file, or it cannot be read.
        ContractFileError
            It is not YAML, or a key is unknown, missing or of the wrong type; names the line.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UnreadableInputError(path=path, why=error, fix="pass the path of a contract.yaml file") from error
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            tree = yaml.safe_load(text)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            raise ContractFileError(path=path, line=line, why=error.problem) from error
        try:
            return msgspec.convert(tree, type=cls)
        except msgspec.ValidationError as error:
            raise ContractFileError(path=path, line=_line(root, str(error)), why=error) from error


def _line(root: yaml.Node | None, message: str) -> int:
    """The line a validation message speaks of: that of the unknown key, else of the value at its path."""
    where = re.search(r"at `\$([^`]*)`", message)
    unknown = re.search(r"unknown field `([^`]*)`", message)
    keys = re.findall(r"\.(\w+)|\[(\d+)\]", where.group(1) if where else "")
    node = root
    for name, index in keys:
        inner = _child(node, name or int(index))
        node = inner[1] if inner else node
    if unknown and (found := _child(node, unknown.group(1))):
        return found[0].start_mark.line + 1
    return node.start_mark.line + 1 if node else 1


def _child(node: yaml.Node | None, key: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    """(key node, value node) of a mapping's key, or an item of a sequence twice."""
    if isinstance(node, yaml.MappingNode):
        return next(((k, v) for k, v in node.value if k.value == key), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
        return node.value[key], node.value[key]
    return None
