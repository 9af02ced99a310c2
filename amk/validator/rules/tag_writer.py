"""Tags, T1.

    For every word of a tagged buffer and every version g that a step writes or reads of it: one task writes g.

A word is (payload, epoch), and a reader waits until it carries the very epoch that it names. Two writers of one epoch
cannot be told apart, and a read of an epoch that nobody writes is a deadlock. With lag 1 a read names the step before:
the first step of a launch finds the word that the launch before left there.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from amk.validator.accesses import Accesses
from amk.validator.boxes import Domain
from amk.validator.findings import SHOWN_PER_RULE, Report, Rule
from amk.validator.program import Program
from amk.validator.tagged import Words, layouts

RULE: Final = Rule(code="AMK-V306", title="tag without its one writer", statement=__doc__ or "")


def check(tagged: list[Accesses], program: Program, reach: Domain, report: Report) -> bool:
    """Report versions without their one writer; whether there are none. It needs no order, and all orders need it."""
    before = len(report.findings())
    for found in tagged:
        for words in layouts(found, reach):
            _twice(words, program, report)
            _never(words, program, report)
    return len(report.findings()) == before


def _twice(words: Words, program: Program, report: Report) -> None:
    chain = words.chain
    twice = (chain.cell[1:] == chain.cell[:-1]) & (chain.version[1:] == chain.version[:-1])
    for at in np.flatnonzero(twice)[:SHOWN_PER_RULE].tolist():
        one, two = (program.describe(int(task)) for task in chain.task[at : at + 2])
        word = words.show(int(chain.cell[at]))
        text = f"T1: {one} and {two} both write version {chain.version[at]} of {word}"
        report.add(RULE, text, mend="give the second write a version of its own")


def _never(words: Words, program: Program, report: Report) -> None:
    found, chain, reads = words.found, words.chain, words.reads
    place, end = chain.occurrences(reads.cell, reads.version[reads.owner])
    orphan = (place == end) & ((reads.lag[reads.owner] == 0) | words.repeats)
    for pair in np.flatnonzero(orphan)[:SHOWN_PER_RULE].tolist():
        owner = reads.owner[pair]
        reader = program.describe(int(found.task[reads.numbers[reads.start[owner]]]))
        word = words.show(int(reads.cell[pair]))
        text = f"T1: {reader} waits for version {reads.version[owner]} of {word}, which no task writes"
        report.add(RULE, text, mend="name a version that is written, or let a task write this one")
