"""The twin check: a small model of the same architecture must decode as HuggingFace does, or nothing is handed out."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace as with_fields

from amk.errors import TwinMismatchError
from amk.frontend.importer import import_graph
from amk.frontend.rope import rope_table
from amk.frontend.twin import VOCAB, random_tensors, shrink
from amk.interpreter.threads import one_thread
from amk.ir.passes import Passes
from amk.parity.compare import HuggingFaceOracle, ParityReport, compare, summarise
from amk.runtime.backend import MachineBackend
from amk.runtime.session import Session
from amk.target import Target
from amk.validator import certify

TOKENS = 12
WORKERS = 7  # a prime: pieces of every hop are uneven
LOGIT_RANGE_MAX = 1e-2
"""The twin's logits have a deviation near 1.5; a 16-bit significand leaves r below this, the more so the less sharp its
attention is, and a fault leaves it far above."""


def check_twin(config: dict[str, Any], passes: Passes, target: Target, *, name: str, seed: int = 0) -> ParityReport:
    """Decode two prompts with the twin of ``config``, lowered by ``passes``, and compare with HuggingFace.

    Raises
    ------
    TwinMismatchError
        A token or a logit is off.
    """
    small = shrink(config)
    graph = import_graph(small)
    tensors = random_tensors(graph, seed=seed)
    chip = with_fields(target, workers=min(WORKERS, target.workers))
    validated = certify(passes.run(graph, chip))
    backend = MachineBackend(
        validated,
        tensors.__getitem__,
        lambda table, rows: rope_table(small, rows, layer_type=graph.ropes[table].layer_type),
    )
    session = Session(backend, vocab=graph.vocab, context_limit=passes.tile.max_context)
    prompts = [(f"{length} tokens", [(7 * i * i + length) % VOCAB for i in range(length)]) for length in (5, 30)]
    oracle = HuggingFaceOracle(small, tensors.__getitem__)
    with one_thread():
        compared = list(compare(session, oracle, prompts, tokens=TOKENS, bound=LOGIT_RANGE_MAX))
    report = summarise(compared, bound=LOGIT_RANGE_MAX)
    # Of so few tokens one tie is already more than a contract allows, and no fault: only a prompt that fails counts.
    failed = [prompt for prompt in report.prompts if prompt.failure]
    if failed:
        raise TwinMismatchError(model=name, detail=f"{failed[0].name}: {failed[0].failure}")
    return report
