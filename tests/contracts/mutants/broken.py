"""Broken kernels: correct ones with one mutation, each shown to differ from the reference on some input."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tests.contracts.mutants.compose import DTYPES, HEADS, Kernel, Link, chain, module
from tests.contracts.mutants.probes import distinguished, has_digits
from tests.contracts.mutants.whole import WHOLE

WHOLE_SHARE = 0.35

NARROWED = {"bfloat16": "bf16", "float16": "fp16"}
"""What a mutation to the kernel's own dtype has in its name: it changes nothing."""


def broken(count: int, *, seed: int = 0) -> Iterator[Kernel]:
    """``count`` kernels, always the same of a seed; a mutation that no probe tells from its reference is none."""
    source = random.Random(f"broken {seed}")
    made = 0
    while made < count:
        links = chain(source, HEADS[made % len(HEADS)])
        codes = [source.choice((link.stage.code, *link.stage.rewrites)) for link in links]
        mutation, codes, wrapper = mutated(source, links, codes)
        if not mutation:
            continue
        dtype = source.choice(DTYPES)
        if NARROWED.get(dtype, "nothing") in mutation:
            continue
        title = " > ".join(link.stage.name for link in links)
        text = module(links, codes, title=f"{title}, {dtype}: {mutation}", dtype=dtype, wrapper=wrapper)
        if has_digits(text) and distinguished(text):
            made += 1
            yield Kernel(name=f"broken-{made - 1:03d}", mutation=mutation, text=text)


def mutated(source: random.Random, links: list[Link], codes: list[str]) -> tuple[str, list[str], str]:
    """(mutation, codes, wrapper) with one fault in them; an empty name where these stages have none."""
    if source.random() < WHOLE_SHARE:
        mutation = source.choice(sorted(WHOLE))
        return mutation, codes, WHOLE[mutation]
    faults = [(place, name) for place, link in enumerate(links) for name in link.stage.faults]
    if not faults:
        return "", codes, ""
    place, name = source.choice(faults)
    stage = links[place].stage
    return f"{stage.name}: {name}", [*codes[:place], stage.faults[name], *codes[place + 1 :]], ""
