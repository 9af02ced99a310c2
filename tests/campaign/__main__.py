"""The campaign: many wrong and almost wrong schedules, each decided by the validator and by something else.

    python -m tests.campaign --mutants 100000 --seed 1 --json out.json

Real lowerings (``bases``) with one change each (``classes``, ``illegal``), and two random tiny models beside every
three of them. Case n of a seed is always the same, so a disagreement names all that is needed to see it again
(``--only n``).

What makes it honest
--------------------
No verdict of the validator is taken at its own word, neither PROVED nor REFUTED. Each is compared with

walk
    ``oracle.explore``, wherever it can: every interleaving of the model, event by event, several steps, signals one by
    one, streams, tags. It takes nothing from any theory of order. All random models are walked, and the mutants of the
    smallest lowerings (one or two layers, up to three workers, three positions).
judge
    ``oracle.judge``, everywhere: by definition, for models of any size. It fires Run({x}) for each task x, lays the
    accesses out at concrete positions, and looks at every pair that meets and every word that is read. What it takes
    from the theory is one lemma (enabled events stay enabled, so the greedy run without x is the largest state without
    x) and the rule that steps D apart are ordered when no worker can be D steps ahead; it computes that too by runs.
    Wherever the walk can be made, judge and walk must agree as well: a lemma that were wrong would show there.
construction
    for classes that break a rule about the file or the chip, whose mutants are wrong whatever their order is.

Walk and judge share no code with the validator: they read plain data, know words instead of regions, and have neither
clocks nor fixpoints. So a mutant that is PROVED was shown harmless by one or both of them; one that is REFUTED was
shown to go wrong, in the launches that they laid out. For lowerings beyond the smallest the judge lays out three
launches (first position, one in the middle, last), not all; ``decide.some_launches`` says why these.

Not shown by a campaign: that the kernel does what its schedule says, and rules about what no event touches (an id, a
limit), which have the corpus.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from amk.validator import validator_digest
from tests.campaign.decide import Case, of_lowering, of_random
from tests.campaign.tally import Tally

CHUNK = 50
LOG_EVERY = 2000  # cases, where no bar can be drawn


def case(seed: int, number: int) -> Case:
    """Case ``number`` of a seed: of five, three are mutants of lowerings."""
    return of_lowering(seed, number) if number % 5 < 3 else of_random(seed, number)


def cases_with(mutants: int) -> int:
    """The cases among which so many are mutants of lowerings."""
    return mutants // 3 * 5 + mutants % 3


def _chunk(job: tuple[int, int, int]) -> list[tuple[int, Case]]:
    seed, first, last = job
    return [(number, case(seed, number)) for number in range(first, last)]


def cases(seed: int, count: int, jobs: int) -> Iterator[tuple[int, Case]]:
    """Cases 0 to ``count``, in order."""
    chunks = [(seed, first, min(count, first + CHUNK)) for first in range(0, count, CHUNK)]
    if jobs == 1:
        for chunk in chunks:
            yield from _chunk(chunk)
        return
    with get_context("spawn").Pool(jobs) as workers:
        for found in workers.imap(_chunk, chunks):
            yield from found


def campaign(seed: int, count: int, *, jobs: int = 1, console: Console | None = None) -> Tally:
    """Run it and count."""
    tally = Tally()
    columns = (TextColumn("campaign"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console or Console(stderr=True), disable=console is None) as progress:
        bar = progress.add_task("campaign", total=count)
        for number, found in cases(seed, count, jobs):
            tally.add(number, found)
            if found.wrong:
                progress.console.print(f"case {number} of seed {seed}, {found.kind} of {found.base}: {found.wrong}")
            progress.advance(bar)
            if not progress.console.is_terminal and number % LOG_EVERY == LOG_EVERY - 1:
                progress.console.print(f"{number + 1} of {count}, {len(tally.disagreements)} disagree")
    return tally


def main(arguments: list[str]) -> int:
    """The command above; exit code 1 if anything disagrees."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description="Validator against oracles.")
    parser.add_argument("--mutants", type=int, default=3000, help="mutants of lowerings")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the result here")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", type=int, help="show one case and stop")
    options = parser.parse_args(arguments)
    if options.only is not None:
        print(case(options.seed, options.only))
        return 0
    began = time.perf_counter()
    tally = campaign(options.seed, cases_with(options.mutants), jobs=options.jobs, console=Console(stderr=True))
    document: dict[str, Any] = {
        "command": f"python -m tests.campaign --mutants {options.mutants} --seed {options.seed}",
        "machine": f"{platform.machine()}, Python {platform.python_version()}, {options.jobs} processes",
        "seconds": round(time.perf_counter() - began, 1),
        "validator": validator_digest(),
        "seed": options.seed,
        **tally.document(),
    }
    text = json.dumps(document, indent=1)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")
    print(json.dumps({key: value for key, value in document.items() if key not in {"per_class", "per_base"}}, indent=1))
    return int(bool(tally.disagreements))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
