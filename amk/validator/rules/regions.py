"""Regions.

    Every region has its buffer's rank, names only pos and tokens, and lies inside the buffer, low <= high, for every
    reachable pos and tokens. Writes are whole granules. Versions and lags are in range.

Bounds are linear, so the corners of the reachable (pos, tokens) decide. Tagged words: their regions do not carry pos,
so that each word is written once a step and version; they are neither streamed nor kv nor output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from amk.ir.buffers import Buffer
from amk.ir.regions import POS, TOKENS, Bound, Linear, Region, coefficient, show_region, symbols, value
from amk.validator.boxes import Domain
from amk.validator.findings import Report, Rule
from amk.validator.limits import BASE_MAX, COEFFICIENT_MAX
from amk.validator.model import AccessModel, Node

RULE: Final = Rule(code="AMK-V315", title="region out of bounds", statement=__doc__ or "")

_LAGS: Final = (0, 1)


def check(model: AccessModel, reach: Domain, report: Report) -> None:
    """Report regions that leave their buffer, and accesses that cannot be meant."""
    done: dict[tuple[Region, bool], str] = {}
    for node in model.nodes():
        for region, writes in _regions(node):
            buffer = model.buffer.get(region.buffer)
            if buffer is not None and _constant_inside(region, buffer, writes=writes):
                continue
            key = (region, writes)
            if key not in done:
                done[key] = _fault(region, buffer, reach, writes=writes)
            if done[key]:
                report.add(RULE, f"{node.id}: {show_region(region)}: {done[key]}")
        _check_names(node, model, report)


def _regions(node: Node) -> Iterator[tuple[Region, bool]]:
    for read in node.reads:
        yield read.region, False
    for write in node.writes:
        yield write.region, True
    for stream in node.streams:
        yield stream.region, False


def _constant_inside(region: Region, buffer: Buffer, *, writes: bool) -> bool:
    """Whether a region without symbols is in order: most are, and need no more than this."""
    if len(region.box) != len(buffer.shape) or (writes and buffer.granule != 1):
        return False
    for (low, high), size in zip(region.box, buffer.shape, strict=True):
        if not (isinstance(low, int) and isinstance(high, int) and 0 <= low <= high <= size):
            return False
    return True


def _fault(region: Region, buffer: Buffer | None, reach: Domain, *, writes: bool) -> str:
    """What is wrong with a region; empty if nothing is."""
    if buffer is None:
        return "there is no such buffer"
    if len(region.box) != len(buffer.shape):
        return f"it has {len(region.box)} axes, the buffer {len(buffer.shape)}"
    if strange := symbols(region.box) - {POS, TOKENS}:
        return f"unknown symbol {min(strange)!r}"
    if buffer.tagged and any(coefficient(bound, POS) for interval in region.box for bound in interval):
        return "tagged words that move with pos are not supported"
    for (low, high), size in zip(region.box, buffer.shape, strict=True):
        if not (_sane(low) and _sane(high)):
            return "a bound is not in canonical form, or too large"
        for p, m in reach.corners():
            env = {POS: p, TOKENS: m}
            if not 0 <= value(low, env) <= value(high, env) <= size:
                return f"with {POS}={p}, {TOKENS}={m} it is not inside an axis of {size}"
    if writes and not all(_multiple(bound, buffer.granule) for bound in region.box[-1]):
        return f"writes are multiples of the granule, {buffer.granule} elements"
    return ""


def _sane(bound: Bound) -> bool:
    if not isinstance(bound, Linear):
        return abs(bound) <= BASE_MAX
    names = [symbol for symbol, _ in bound.terms]
    canonical = bool(names) and names == sorted(set(names))
    return canonical and abs(bound.base) <= BASE_MAX and all(0 < abs(k) <= COEFFICIENT_MAX for _, k in bound.terms)


def _multiple(bound: Bound, granule: int) -> bool:
    if not isinstance(bound, Linear):
        return bound % granule == 0
    return bound.base % granule == 0 and all(k % granule == 0 for _, k in bound.terms)


def _check_names(node: Node, model: AccessModel, report: Report) -> None:
    for read in node.reads:
        buffer = model.buffer.get(read.region.buffer)
        if buffer is None:
            continue
        if read.lag not in _LAGS:
            report.add(RULE, f"{node.id} reads {buffer.id} with lag {read.lag}; lags are 0 and 1")
        if buffer.kind == "kv" and read.lag:
            report.add(RULE, f"{node.id} reads {buffer.id} with a lag; rows of a KV buffer are named by position")
        _check_version(node, buffer, read.version, report)
    for write in node.writes:
        if buffer := model.buffer.get(write.region.buffer):
            _check_version(node, buffer, write.version, report)
    for stream in node.streams:
        buffer = model.buffer.get(stream.region.buffer)
        if buffer is not None and (buffer.tagged or buffer.kind not in {"weight", "const", "input", "kv"}):
            report.add(
                RULE, f"{node.id} streams {buffer.id}: only weights, constants, inputs and plain kv are streamed"
            )


def _check_version(node: Node, buffer: Buffer, version: int, report: Report) -> None:
    if not 0 <= version < buffer.versions:
        report.add(RULE, f"{node.id} names version {version} of {buffer.id}, which has {buffer.versions}")


def check_buffers(model: AccessModel, report: Report) -> None:
    """Buffers whose own fields do not go together."""
    for buffer in model.buffers:
        if buffer.tagged and buffer.kind in {"kv", "output"}:
            report.add(RULE, f"{buffer.id}: a {buffer.kind} buffer cannot be tagged in this version")
        if buffer.fenced and not buffer.tagged:
            report.add(RULE, f"{buffer.id} is fenced but not tagged: there is no poll to fence")
        if not buffer.shape:
            report.add(RULE, f"{buffer.id} has no axes")
