"""Tags, T3.

    For successive versions of a word of a tagged buffer, written by x and then x':
    both on one worker, in queue order, or x -> x', or some reader y of the first version is as T2 asks.

Otherwise the two stores may land in the other order, and the word ends with the older epoch.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from amk.validator.context import Context
from amk.validator.findings import SHOWN_PER_RULE, Report, Rule
from amk.validator.program import Ints
from amk.validator.tagged import Words, layouts

RULE: Final = Rule(code="AMK-V308", title="tags written in no order", statement=__doc__ or "")


def check(context: Context, report: Report) -> None:
    """Report successive versions whose stores nothing orders. What readers order, T2 has looked at."""
    for found in context.tagged:
        for words in layouts(found, context.reach):
            _successors(words, context, report)


def _successors(words: Words, context: Context, report: Report) -> None:
    chain, program, order = words.chain, context.program, context.sight.order
    entry = np.arange(len(chain.cell))
    follower, delta = words.followers(entry)
    x, y = chain.task, chain.task[follower]
    length = np.array(program.length, np.int64)
    same = program.worker[x] == program.worker[y]
    later = delta * length[program.worker[x]] + program.index[y] > program.index[x]
    rows = np.flatnonzero(~same & ((delta == 0) | words.repeats))
    ordered = same & later
    ordered[rows] = (
        order.before_write(y[rows] + delta[rows] * order.tasks, program.worker[x[rows]]) > program.index[x[rows]]
    )
    if not words.repeats:
        ordered |= delta == 1
    ordered |= np.isin(entry, _read_entries(words))
    for at in np.flatnonzero(~ordered)[:SHOWN_PER_RULE].tolist():
        one, two = program.describe(int(x[at]), 0), program.describe(int(y[at]), int(delta[at]))
        word = words.show(int(chain.cell[at]))
        text = f"T3: {one} and {two} write successive versions of {word} and nothing orders the two stores"
        report.add(RULE, text, mend=f"let {program.names[y[at]]} wait for a signal of {program.names[x[at]]}")


def _read_entries(words: Words) -> Ints:
    """Chain entries whose version some task reads (T2 orders it before the next one)."""
    chain, reads = words.chain, words.reads
    place, end = chain.occurrences(reads.cell, reads.version[reads.owner])
    # With lag 1 the reader is in the next step, where only the last version of a step is still there.
    counted = (place < end) & ((reads.lag[reads.owner] == 0) | words.repeats)
    return chain.entry(place[counted])
