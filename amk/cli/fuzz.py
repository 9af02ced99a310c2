"""amk fuzz: run the kernel on this processor under many orders of its threads, copies and workers."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from amk.cli.options import Chip, Json, KvDtype, LocalFilesOnly, MaxContext, Model, Revision
from amk.cli.output import OUT, print_json
from amk.errors import EXIT_FAILED


def fuzz(
    model: Model,
    seeds: Annotated[int, typer.Option(min=1, help="Orders to try, beside the plain one.")] = 20,
    tokens: Annotated[int, typer.Option(min=1, help="New tokens, all of them in one launch.")] = 32,
    target: Chip = None,
    kv_dtype: KvDtype = "float32",
    max_context: MaxContext = None,
    revision: Revision = None,
    local_files_only: LocalFilesOnly = False,
    as_json: Json = False,
) -> int:
    """Decode MODEL under shuffled orders; exit 1 when one of them gives other bits."""
    import amk
    from amk.parity.fuzz import SeedRun
    from amk.parity.fuzz import fuzz as runs_of

    compiled = amk.compile(
        model,
        arch="host",
        target=target,
        kv_dtype=kv_dtype,
        max_context=max_context,
        revision=revision,
        local_files_only=local_files_only,
        progress=not as_json,
    )
    if not as_json:
        OUT.print(compiled.certificate.one_line())
    runs: list[SeedRun] = []
    for run in runs_of(compiled, tokens=tokens, seeds=seeds):
        runs.append(run)
        if not as_json:
            OUT.print(f"seed {run.seed:>4}  {run.seconds:7.2f} s  {run.differs or 'the same bits'}")
    wrong = [run.seed for run in runs if run.differs]
    if as_json:
        print_json(
            {"verdict": "fail" if wrong else "pass", "tokens": tokens, "runs": [msgspec.to_builtins(r) for r in runs]}
        )
    elif wrong:
        OUT.print(f"FAIL: other bits under seeds {', '.join(map(str, wrong))}")
    else:
        OUT.print(f"PASS: {tokens} tokens, {seeds} shuffled orders, the same bits under each")
    return EXIT_FAILED if wrong else 0
