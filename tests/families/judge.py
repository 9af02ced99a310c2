"""One config against HuggingFace float32: decoded and equal, refused by name, or wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from amk.errors import UnsupportedModelError
from amk.frontend.importer import import_graph
from amk.frontend.rope import rope_table
from amk.frontend.twin import random_tensors
from amk.interpreter.threads import one_thread
from amk.ir.passes import Passes
from amk.ir.passes.tile import Tile
from amk.parity.compare import HuggingFaceOracle, compare, summarise
from amk.runtime.backend import MachineBackend
from amk.runtime.session import Session
from amk.target import resolve_target
from amk.validator import certify

WORKERS = 5
BOUND = 1e-2
"""Of the logit range, as the contracts have it. Logits have a deviation near one, and a fault leaves far more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a config: ``refused`` is the code of the refusal, ``wrong`` what is not as HuggingFace has it."""

    refused: str = ""
    wrong: str = ""
    tokens: int = 0
    ties: int = 0
    logit_range: float = 0.0

    @property
    def accepted(self) -> bool:
        return not self.refused


def prompts_of(vocab: int, lengths: tuple[int, ...]) -> list[tuple[str, list[int]]]:
    return [(f"{length} ids", [(7 * i * i + length) % vocab for i in range(length)]) for length in lengths]


def judge(
    config: dict[str, Any], *, tokens: int = 40, lengths: tuple[int, ...] = (3, 11, 30), seed: int = 1
) -> Outcome:
    """Decode random weights of ``config`` on the reference machine, teacher-forced where a tie parts the two."""
    try:
        graph = import_graph(config)
    except UnsupportedModelError as error:
        return Outcome(refused=error.code)
    context = max(lengths) + tokens
    tensors = random_tensors(graph, seed=seed)
    chip = replace(resolve_target(arch="cpu", target=None), workers=WORKERS)
    validated = certify(Passes(tile=Tile(max_context=context, tokens_per_pass=min(8, context))).run(graph, chip))
    backend = MachineBackend(
        validated,
        tensors.__getitem__,
        lambda table, rows: rope_table(config, rows, layer_type=graph.ropes[table].layer_type),
    )
    session = Session(backend, vocab=graph.vocab, context_limit=context)
    oracle = HuggingFaceOracle(config, tensors.__getitem__)
    with one_thread():
        prompts = prompts_of(graph.vocab, lengths)
        report = summarise(list(compare(session, oracle, prompts, tokens=tokens, bound=BOUND)), bound=BOUND)
    # Of so few tokens a named tie is more than a contract allows, and no fault: only a prompt that fails counts.
    wrong = "; ".join(f"{prompt.name}: {prompt.failure}" for prompt in report.prompts if prompt.failure)
    return Outcome(wrong=wrong, tokens=report.tokens, ties=report.ties, logit_range=report.logit_range_max)
