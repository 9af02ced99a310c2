"""Tags, T2.

    For successive versions of a word of a tagged buffer, written by x and then x', each reader y of the first:
    y = x', or y is earlier than x' on its worker, or y ~> x'.

Otherwise x' may overwrite what y still waits for, and y waits for ever. The last version of a step is followed by the
first of the next, and the word that a launch finds by the first version of its first step.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from amk.validator.context import Context
from amk.validator.findings import Report, Rule
from amk.validator.program import Ints
from amk.validator.rules import window
from amk.validator.tagged import Words, layouts

RULE: Final = Rule(code="AMK-V307", title="tag overwritten before it is read", statement=__doc__ or "")


def check(context: Context, report: Report) -> None:
    """Report readers that the next version does not wait for."""
    for found in context.tagged:
        for words in layouts(found, context.reach):
            _successors(words, context, report)
            if words.repeats and len(words.chain.cell) and not report.refuted:
                _beyond_window(words, context, report)


def _successors(words: Words, context: Context, report: Report) -> None:
    chain, reads = words.chain, words.reads
    place, end = chain.occurrences(reads.cell, reads.version[reads.owner])
    lagging = reads.lag[reads.owner] == 1
    # A lag-1 read at step 0 finds the launch's own word, which the first version of the step overwrites; in a launch of
    # one step it finds nothing else.
    pairs = np.flatnonzero((place < end) | (lagging & (chain.first(reads.cell) < chain.past(reads.cell))))
    entry = np.zeros(len(reads.cell), np.int64)
    known = np.flatnonzero(place < end)
    entry[known] = chain.entry(place[known])
    missing = np.flatnonzero(lagging & ((place == end) | (not words.repeats)))
    entry[missing] = chain.past(reads.cell[missing]) - 1
    for part in reads.chunks(pairs):
        follower, delta = words.followers(entry[part])
        # Seen from a lag-1 reader the writer is one step back, so is what follows it.
        delta = delta - lagging[part]
        which, number = reads.expand(part)
        _overwritten(words, context, report, number=number, follower=follower[which], delta=delta[which])


def _overwritten(words: Words, context: Context, report: Report, *, number: Ints, follower: Ints, delta: Ints) -> None:
    """T2 for readers ``number`` and what follows the version they read, ``delta`` steps after them."""
    if context.occurrence is None:
        return
    found, program, order = words.found, context.program, context.occurrence.order
    reader, writer = found.task[number], words.chain.task[follower]
    context.counts["checks"] += len(number)
    real = delta < (2 if words.repeats else 1)
    safe = ~real
    rows = np.flatnonzero(real & (delta >= 0))
    late = writer[rows] + delta[rows] * order.tasks
    safe[rows] = order.before_write(late, program.worker[reader[rows]]) > program.index[reader[rows]]
    bad = np.flatnonzero(~safe)
    for count, row in enumerate(bad.tolist()):
        if report.full(RULE):
            report.more(RULE, len(bad) - count)
            return
        one = program.describe(int(reader[row]), 0)
        two = (
            program.describe(int(writer[row]), int(delta[row]))
            if delta[row] >= 0
            else (f"{program.describe(int(writer[row]))} at step t-1")
        )
        word = words.show(int(words.chain.cell[follower[row]]))
        report.add(
            RULE,
            f"T2: {one} reads version {found.version[number[row]]} of {word}, which {two} overwrites with version "
            f"{words.chain.version[follower[row]]}; nothing makes it wait for that read",
            mend=f"let {program.names[writer[row]]} wait for a signal of {program.names[reader[row]]}",
        )


def _beyond_window(words: Words, context: Context, report: Report) -> None:
    exact = context.sight.exact and (context.occurrence is None or context.occurrence.exact)
    if not exact:
        window.leave_open(context, report, f"tagged words of {words.found.buffer.id}, written in every step")
