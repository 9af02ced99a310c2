"""Small changes to a model: each breaks it, or turns out to be harmless."""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from amk.ir.regions import Box, Region
from amk.validator.model import AccessModel, Node
from tests.oracle.pieces import PAST, SEEN, read


def _pick(rng: random.Random, model: AccessModel) -> tuple[int, int] | None:
    places = [(w, i) for w, queue in enumerate(model.queues) for i in range(len(queue))]
    return rng.choice(places) if places else None


def _with(model: AccessModel, worker: int, index: int, node: Node) -> AccessModel:
    queue = list(model.queues[worker])
    queue[index] = node
    queues = list(model.queues)
    queues[worker] = tuple(queue)
    return replace(model, queues=tuple(queues))


def _on_node(change: Callable[[random.Random, Node], Node]) -> Callable[[random.Random, AccessModel], AccessModel]:
    def apply(rng: random.Random, model: AccessModel) -> AccessModel:
        place = _pick(rng, model)
        if place is None:
            return model
        worker, index = place
        return _with(model, worker, index, change(rng, model.queues[worker][index]))

    return apply


def _drop_wait(rng: random.Random, node: Node) -> Node:
    waits = list(node.waits)
    if waits:
        waits.pop(rng.randrange(len(waits)))
    return replace(node, waits=tuple(waits))


def _shift_threshold(rng: random.Random, node: Node) -> Node:
    by = rng.choice([-2, -1, -1, 1, 1])
    waits = list(node.waits)
    if waits:
        at = rng.randrange(len(waits))
        waits[at] = replace(waits[at], threshold=waits[at].threshold + by)
    return replace(node, waits=tuple(waits))


def _drop_signal(rng: random.Random, node: Node) -> Node:
    signals = list(node.signals)
    if signals:
        signals.pop(rng.randrange(len(signals)))
    return replace(node, signals=tuple(signals))


def _double_signal(rng: random.Random, node: Node) -> Node:
    return replace(node, signals=node.signals + node.signals[:1])


def _shift_lag(rng: random.Random, node: Node) -> Node:
    reads = list(node.reads)
    plain = [at for at, r in enumerate(reads) if r.region.buffer != "kv"]
    if plain:
        at = rng.choice(plain)
        reads[at] = replace(reads[at], lag=1 - reads[at].lag)
    return replace(node, reads=tuple(reads))


def _gate_to_wait(rng: random.Random, node: Node) -> Node:
    gates = tuple(w for s in node.streams for w in s.gate)
    return replace(node, waits=node.waits + gates, streams=tuple(replace(s, gate=()) for s in node.streams))


def _wait_to_gate(rng: random.Random, node: Node) -> Node:
    if not node.streams:
        return node
    return replace(node, waits=(), streams=tuple(replace(s, gate=s.gate + node.waits) for s in node.streams))


def _stretch_past(rng: random.Random, node: Node) -> Node:
    """Stream or read this step's rows too."""

    def wide(region: Region) -> Region:
        box: Box = tuple(SEEN if interval == PAST else interval for interval in region.box)
        return replace(region, box=box)

    return replace(
        node,
        streams=tuple(replace(s, region=wide(s.region)) for s in node.streams),
        reads=tuple(replace(r, region=wide(r.region)) for r in node.reads),
    )


def _move_word(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None:
        return model
    worker, index = place
    node = model.queues[worker][index]
    writes = list(node.writes)
    plain = [at for at, w in enumerate(writes) if w.region.buffer != "kv"]
    if plain:
        at = rng.choice(plain)
        low = rng.randrange(len(model.queues))
        writes[at] = replace(writes[at], region=replace(writes[at].region, box=((low, low + 1),)))
    return _with(model, worker, index, replace(node, writes=tuple(writes)))


def _more_reads(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None:
        return model
    worker, index = place
    node = model.queues[worker][index]
    buffer = rng.choice([b for b in model.buffers if b.kind != "kv"])
    low = rng.randrange(buffer.shape[0])
    new = read(buffer.id, (low, low + 1), version=rng.randrange(buffer.versions), lag=rng.choice([0, 0, 1]))
    return _with(model, worker, index, replace(node, reads=(*node.reads, new)))


def _wider_word(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None:
        return model
    worker, index = place
    node = model.queues[worker][index]
    size = len(model.queues)
    writes = tuple(
        w if w.region.buffer == "kv" else replace(w, region=replace(w.region, box=((0, size),))) for w in node.writes
    )
    return _with(model, worker, index, replace(node, writes=writes))


def _swap(rng: random.Random, model: AccessModel) -> AccessModel:
    long = [w for w, queue in enumerate(model.queues) if len(queue) > 1]
    if not long:
        return model
    worker = rng.choice(long)
    queue = list(model.queues[worker])
    at = rng.randrange(len(queue) - 1)
    queue[at], queue[at + 1] = queue[at + 1], queue[at]
    queues = list(model.queues)
    queues[worker] = tuple(queue)
    return replace(model, queues=tuple(queues))


def _move(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None or len(model.queues) < 2:
        return model
    worker, index = place
    queues = [list(queue) for queue in model.queues]
    node = queues[worker].pop(index)
    other = rng.choice([w for w in range(len(queues)) if w != worker])
    queues[other].insert(rng.randint(0, len(queues[other])), node)
    return replace(model, queues=tuple(tuple(queue) for queue in queues))


def _other_version(rng: random.Random, model: AccessModel) -> AccessModel:
    place = _pick(rng, model)
    if place is None:
        return model
    worker, index = place
    node = model.queues[worker][index]
    writes = list(node.writes)
    plain = [at for at, w in enumerate(writes) if w.region.buffer != "kv"]
    if plain:
        at = rng.choice(plain)
        versions = model.buffer[writes[at].region.buffer].versions
        writes[at] = replace(writes[at], version=rng.randrange(versions))
    return _with(model, worker, index, replace(node, writes=tuple(writes)))


MUTATIONS: tuple[Callable[[random.Random, AccessModel], AccessModel], ...] = (
    _on_node(_drop_wait),
    _on_node(_shift_threshold),
    _on_node(_drop_signal),
    _on_node(_double_signal),
    _on_node(_shift_lag),
    _on_node(_gate_to_wait),
    _on_node(_wait_to_gate),
    _on_node(_stretch_past),
    _move_word,
    _more_reads,
    _wider_word,
    _swap,
    _move,
    _other_version,
)
