"""Correct kernels: chains of torch's own operations, written in other words than the reference's."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.contracts.mutants.compose import DTYPES, HEADS, Kernel, chain, module
from tests.contracts.mutants.probes import runs


def correct(count: int, *, seed: int = 0) -> Iterator[Kernel]:
    """``count`` kernels, always the same of a seed; none that torch has no kernel for in its dtype."""
    source = random.Random(f"correct {seed}")
    made = 0
    while made < count:
        links = chain(source, HEADS[made % len(HEADS)])
        codes = [source.choice(link.stage.rewrites) for link in links]
        dtype = source.choice(DTYPES)
        name = f"correct-{made:03d}"
        title = " > ".join(link.stage.name for link in links)
        text = module(links, codes, title=f"{title}, {dtype}", dtype=dtype)
        if runs(text):
            made += 1
            yield Kernel(name=name, mutation="", text=text)
