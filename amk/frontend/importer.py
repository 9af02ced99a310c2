"""From a config to the model graph: trace one decode step, make it canonical, recognise it, refuse the rest by name."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from amk.frontend.canonical import Step, canonical_step
from amk.frontend.config import check_config
from amk.frontend.errors import UnsupportedFieldError, UnsupportedStructureError
from amk.frontend.patterns.rotary import layer_type_of
from amk.frontend.recognise import Recognised, recognise, tensors
from amk.ir.errors import NotFusableError
from amk.ir.graph import Attention, Embed, Graph, Rope, RopeTable, WeightTensor
from amk.ir.passes.fuse import Fuse

logger = logging.getLogger("amk.frontend.importer")


def import_graph(config: dict[str, Any]) -> Graph:
    """Recognise the model that ``config`` describes.

    Parameters
    ----------
    config
        A parsed config.json.

    Returns
    -------
    Graph
        Read from the trace of transformers' own model, every node of it accounted for; the passes can lower it.

    Raises
    ------
    UnsupportedModelError
        Its subclasses name the config field, op or tensor at fault.
    """
    start = time.perf_counter()
    graph = read_graph(config)
    try:
        Fuse().run(graph)
    except NotFusableError as error:
        op, value, why = (error.facts[fact] for fact in ("op", "value", "why"))
        raise UnsupportedStructureError(expected="ops that hops can take", found=f"{op} {value}: {why}") from error
    logger.info("imported %s: %d ops in %.1f s", graph.family, len(graph.ops), time.perf_counter() - start)
    return graph


def read_graph(config: dict[str, Any]) -> Graph:
    """What the trace of ``config``'s model says, whether or not there are hops for it; raises as ``import_graph``."""
    check_config(config)
    from amk.frontend.trace import hf_config, trace_decode_step

    settled = hf_config(config)
    # Once more with the defaults of transformers filled in: a field left out may stand for another structure.
    check_config(settled.to_dict())
    step = canonical_step(trace_decode_step(config))
    graph = _graph(step, recognise(step), settled)
    _check_partial_rotary(graph, settled)
    return graph


def _graph(step: Step, recognised: Recognised, settled: Any) -> Graph:
    ops = recognised.ops
    used = {name for op in ops for name in tensors(op)}
    embedding = step.parameters[next(op.table for op in ops if isinstance(op, Embed))]
    return Graph(
        family=str(settled.model_type),
        hidden=embedding[1],
        vocab=embedding[0],
        layers=sum(isinstance(op, Attention) for op in ops),
        context_limit=int(settled.max_position_embeddings),
        ropes=tuple(_rope(recognised, number, settled) for number in range(len(recognised.tables))),
        tensors=tuple(WeightTensor(name=name, shape=step.parameters[name]) for name in sorted(used)),
        ops=ops,
    )


def _rope(recognised: Recognised, number: int, settled: Any) -> RopeTable:
    """Rotary table ``number``: every op that uses it turns as many elements, as its factors are as many."""
    user = next(op for op in recognised.ops if isinstance(op, Rope) and op.table == number)
    layer_type = layer_type_of(recognised.tables[number][0]) or ""
    fields = settled.rope_parameters[layer_type] if layer_type else settled.rope_parameters
    return RopeTable(head_dim=user.rotary_dim or user.head_dim, spec=_rope_spec(fields), layer_type=layer_type)


def _rope_spec(parameters: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The rotary fields as transformers settled their dialects; ``type`` is only the old name of ``rope_type``."""
    fields = {key: value for key, value in parameters.items() if key != "type" and value is not None}
    return tuple(sorted((key, json.dumps(_number(value), sort_keys=True)) for key, value in fields.items()))


def _number(value: Any) -> Any:
    """One spelling for 500000 and 5e5."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _check_partial_rotary(graph: Graph, settled: Any) -> None:
    """A factor below 1 that the class of the model does not read means that the config is of another model."""
    for op in graph.ops:
        if not isinstance(op, Rope) or op.rotary_dim is not None:
            continue
        fields = dict(graph.ropes[op.table].spec)
        factor = json.loads(fields.get("partial_rotary_factor", "null"))
        factor = getattr(settled, "partial_rotary_factor", None) if factor is None else factor
        if factor not in (None, 1):
            why = f"transformers' {graph.family} turns the whole head all the same"
            raise UnsupportedFieldError(field="partial_rotary_factor", value=factor, why=why)
