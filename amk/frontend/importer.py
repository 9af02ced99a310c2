"""From a config to the model graph: trace one decode step, make it canonical, recognise it, refuse the rest by name."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from amk.frontend.canonical import Expr, Step, canonical_step, flat
from amk.frontend.config import check_config
from amk.frontend.errors import UnrecognisedOpError, UnsupportedStructureError
from amk.frontend.patterns import PATTERNS, Match, NoMatch
from amk.frontend.plain import check_plain
from amk.ir.graph import AnyOp, Attention, Embed, Graph, Linear, Logits, RopeTable, WeightTensor

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
        Read from the trace of transformers' own model, every node of it accounted for.

    Raises
    ------
    UnsupportedModelError
        Its subclasses name the config field, op or tensor at fault.
    """
    check_config(config)
    from amk.frontend.trace import hf_config, trace_decode_step

    start = time.perf_counter()
    settled = hf_config(config)
    # Once more with the defaults of transformers filled in: a field left out may stand for a window or a bias.
    check_config(settled.to_dict())
    step = canonical_step(trace_decode_step(config))
    ops = recognise(step)
    graph = _graph(step, ops, settled)
    check_plain(graph)
    logger.info("imported %s: %d ops in %.1f s", graph.family, len(ops), time.perf_counter() - start)
    return graph


def recognise(step: Step) -> list[AnyOp]:
    """The ops that compute ``step``, in order.

    Every live expression must be part of an op; the caches must end as the attention ops leave them.

    Raises
    ------
    UnrecognisedOpError, UnsupportedStructureError
    """
    names: dict[Expr, str] = {}
    ops: dict[str, AnyOp] = {}
    parts: set[Expr] = set()
    rotary: set[tuple[str, float]] = set()
    for expr in step.live:
        match, op = _match(expr, names, rotary)
        if op is None:
            continue
        if op.out in ops:
            raise UnsupportedStructureError(expected="each weight to be read once", found=f"{op.out} computed twice")
        names[expr], ops[op.out] = op.out, op
        rotary = match.rotary
        parts.update((expr, *match.parts))
    left = [expr for expr in step.live if expr not in parts]
    if left:
        raise _refusal(step, left, names, ops)
    last = ops.get(names.get(flat(step.logits), ""))
    if not isinstance(last, Linear):
        raise UnsupportedStructureError(expected="the logits to be a linear map", found=step.logits.origin)
    ops[last.out] = Logits(out="logits", x=last.x, weight=last.weight)
    return list(ops.values())


def _match(expr: Expr, names: dict[Expr, str], rotary: set[tuple[str, float]]) -> tuple[Match, AnyOp | None]:
    for pattern in PATTERNS.get(expr.op, ()):
        match = Match(names=names, rotary=set(rotary))
        try:
            return match, pattern(match, expr)
        except NoMatch:
            continue
    return Match(names=names), None


def _refusal(step: Step, left: list[Expr], names: dict[Expr, str], ops: dict[str, AnyOp]) -> UnrecognisedOpError:
    """Name the first thing the model does to a recognised value that no pattern accounts for."""
    computed = [expr for expr in left if expr.args and expr.op != "view"]
    frontier = [expr for expr in computed if any(flat(arg) in names for arg in expr.args)]
    culprit = (frontier or computed or left)[0]
    return UnrecognisedOpError(
        op=culprit.origin or culprit.op, module=culprit.module, tensor=_nearest(step, culprit, names, ops)
    )


def _nearest(step: Step, culprit: Expr, names: dict[Expr, str], ops: dict[str, AnyOp]) -> str:
    """The tensor to look at: an operand of ``culprit``, else one of its module, else the one its operand came from."""
    operands = [str(arg.attrs[0]) for arg in reversed(culprit.args) if arg.op == "param"]
    of_module = [name for name in step.parameters if name.startswith(culprit.module + ".")]
    if operands or len(of_module) == 1:
        return (operands or of_module)[0]
    sources = [ops[names[flat(arg)]] for arg in culprit.args if flat(arg) in names]
    for source in sources:
        for attribute in ("weight", "gain", "table"):
            if hasattr(source, attribute):
                return str(getattr(source, attribute))
        return source.out
    return (of_module or ["no tensor"])[0]


def _graph(step: Step, ops: list[AnyOp], settled: Any) -> Graph:
    used = {str(getattr(op, field)) for op in ops for field in ("table", "gain", "weight") if hasattr(op, field)}
    (embedding,) = (step.parameters[op.table] for op in ops if isinstance(op, Embed))
    attention = [op for op in ops if isinstance(op, Attention)]
    return Graph(
        family=str(settled.model_type),
        hidden=embedding[1],
        vocab=embedding[0],
        layers=len(attention),
        context_limit=int(settled.max_position_embeddings),
        rope=RopeTable(head_dim=attention[0].head_dim, spec=_rope_spec(settled)),
        tensors=tuple(WeightTensor(name=name, shape=step.parameters[name]) for name in sorted(used)),
        ops=tuple(ops),
    )


def _rope_spec(settled: Any) -> tuple[tuple[str, str], ...]:
    """The rotary fields as transformers settled their dialects; ``type`` is only the old name of ``rope_type``."""
    fields = {key: value for key, value in settled.rope_parameters.items() if key != "type" and value is not None}
    return tuple(sorted((key, json.dumps(_number(value), sort_keys=True)) for key, value in fields.items()))


def _number(value: Any) -> Any:
    """One spelling for 500000 and 5e5."""
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value
