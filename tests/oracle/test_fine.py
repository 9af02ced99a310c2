"""The oracle's short walk against its whole one: the same models go wrong, and in the same ways."""

from __future__ import annotations

import random

import msgspec

from tests.oracle.explore import TooBigError, explore
from tests.oracle.fine import explore_finely
from tests.oracle.generate import random_model

MODELS = 1200
INSTANCES_MAX = 8


def test_the_short_walk_sees_what_the_whole_walk_sees() -> None:
    compared = {True: 0, False: 0}
    for seed in range(MODELS):
        model = random_model(random.Random(seed))
        if sum(map(len, model.queues)) * model.steps_max > INSTANCES_MAX:
            continue
        plain = msgspec.to_builtins(model)
        try:
            short, whole = explore(plain), explore_finely(plain)
        except TooBigError:
            continue
        compared[bool(whole)] += 1
        assert bool(short) == bool(whole), (seed, short, whole)
        assert short <= whole, (seed, short, whole)
        # Where accesses meet, what a read finds depends on when in its interval it looks; and a task whose streams
        # never come may have read before it hangs.
        loose = {"read"} if short & {"race", "stream", "deadlock"} else set()
        assert whole - short <= loose, (seed, short, whole)
    assert min(compared.values()) > MODELS // 10, compared
