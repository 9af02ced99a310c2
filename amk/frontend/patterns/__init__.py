"""The ops of the model graph as patterns over canonical expressions.

A pattern looks down from one expression to values that already have a name, and checks everything in between: which
constant, which dimension, which operand. What it looked at it lists in ``parts``; whatever no pattern lists in the end
makes the model refused. ``NoMatch`` says only that this pattern is not it.

A pattern may match what another one matched and more (a scaled embedding, the rows of a fused matrix). The op of the
smaller one is then read by nothing, and is dropped.
"""

from __future__ import annotations

from collections.abc import Callable

from amk.frontend.expressions import Expr
from amk.frontend.patterns.attention import attention
from amk.frontend.patterns.match import Match
from amk.frontend.patterns.norms import layer_norm, rms_norm
from amk.frontend.patterns.projections import add, embed, gated_mul, linear, linear_rows, scaled_embed
from amk.frontend.patterns.rotary import partial_rope, rope
from amk.ir.graph import AnyOp

PATTERNS: dict[str, tuple[Callable[[Match, Expr], AnyOp], ...]] = {
    "add": (add, rope),
    "cat": (partial_rope,),
    "embedding": (embed,),
    "layer_norm": (layer_norm,),
    "linear": (linear,),
    "mul": (rms_norm, gated_mul, scaled_embed),
    "slice": (linear_rows,),
    "vecmat": (attention,),
}
"""Patterns to try, by the op at the top."""
