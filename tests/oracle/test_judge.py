"""The judge, which goes by the definition of order, against the walk over all interleavings."""

from __future__ import annotations

import random

import msgspec

from tests.oracle.explore import TooBigError, explore
from tests.oracle.generate import random_model
from tests.oracle.judge import judge

MODELS = 1500


def test_the_judge_sees_what_the_walk_sees() -> None:
    compared = {True: 0, False: 0}
    for seed in range(MODELS):
        plain = msgspec.to_builtins(random_model(random.Random(seed)))
        try:
            walked = explore(plain)
        except TooBigError:
            continue
        judged = judge(plain)
        assert judged is not None, seed
        assert bool(judged) == bool(walked), (seed, judged, walked)
        compared[bool(walked)] += 1
    assert min(compared.values()) > MODELS // 4, compared
