"""What is measured, declared once: models, contexts and arms."""

from __future__ import annotations

from dataclasses import dataclass

from amk.frontend.aliases import folder_name
from amk.measure.arms import TORCH_ARMS

LLAMA_CONTEXT = 8192 + 256
"""Positions of the Llamas' caches: the longest context, and tokens behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One model, timed beside PyTorch at some contexts.

    Attributes
    ----------
    model
        The alias whose ``models/<alias>/config.json`` is its shape.
    contexts
        Positions before the first token that is timed.
    max_context, kv_dtype
        Of the cache.
    real_weights
        Whether a checkpoint may be given for it; otherwise, and without one, its weights are random.
    arms
        Of PyTorch.
    """

    model: str
    contexts: tuple[int, ...]
    max_context: int
    kv_dtype: str = "float32"
    real_weights: bool = False
    arms: tuple[str, ...] = TORCH_ARMS

    @property
    def name(self) -> str:
        """In file names and on the command line."""
        return folder_name(self.model)


_ALL = (
    # SmolLM2 was made for 8,192 positions: its longest context leaves room for the tokens that are timed.
    Workload(model="SmolLM2-135M", contexts=(128, 2048, 8000), max_context=8192, real_weights=True),
    Workload(model="Llama-3.2-1B", contexts=(128, 2048, 8192), max_context=LLAMA_CONTEXT),
    Workload(model="Llama-3.2-3B", contexts=(128, 2048, 8192), max_context=LLAMA_CONTEXT),
    Workload(model="Llama-3.1-8B", contexts=(128, 2048, 8192), max_context=LLAMA_CONTEXT),
)

WORKLOADS = {workload.name: workload for workload in _ALL}
