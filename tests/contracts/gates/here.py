"""A trial whose two sides are one function in this process: enough for what only has to take inputs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from amk.contracts.outcomes import Answer, Ask, Outcome, Output, Raised
from amk.contracts.trial import Trial


class Here:
    """A subject in this process: enough for a reference that only has to take inputs."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function

    def ask(self, ask: Ask) -> Outcome:
        try:
            return answer_of(self.function(*ask.inputs))
        except RuntimeError as error:
            return Raised(kind="RuntimeError", message=str(error))

    def close(self) -> None:
        pass


def answer_of(*values: Tensor) -> Answer:
    def output(value: Tensor) -> Output:
        return Output(
            value=value, stride=value.stride(), device="cpu", kind="Tensor", requires_grad=False, aliases=frozenset()
        )

    return Answer(outputs=tuple(map(output, values)), structure="tensor", digests=("",))


def trial_of(*inputs: Tensor, function: Callable[..., Tensor] = lambda x: x * 2, deadline: float = 1e18) -> Trial:
    here = Here(function)
    return Trial(
        candidate=here,
        reference=here,
        device="cpu",
        dtype=torch.float32,
        seed=1,
        nominal=inputs,
        deadline=deadline,
    )
