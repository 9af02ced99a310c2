"""What gates share: inputs of many sizes, outcomes that are asked for once, randomness that comes again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from amk.contracts.outcomes import Answer, Ask, Died, Outcome, Output, Raised, Value
from amk.contracts.trial import REMEMBERED_BYTES_MAX, Trial, is_answer, tensors_of
from amk.contracts.working import ELEMENTS_MAX, cut, working_cuts

Function = Callable[..., Tensor]


class Here:
    """A subject that is a function in this process, and counts."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.asked: list[Ask] = []

    def ask(self, ask: Ask) -> Outcome:
        self.asked.append(ask)
        inputs = tuple(
            value.to(ask.dtype) if ask.dtype and isinstance(value, Tensor) and value.is_floating_point() else value
            for value in ask.inputs
        )
        try:
            value = self.function(*inputs)
        except (RuntimeError, IndexError, ValueError) as error:
            return Raised(kind=type(error).__name__, message=str(error))
        output = Output(
            value=value, stride=value.stride(), device="cpu", kind="Tensor", requires_grad=False, aliases=frozenset()
        )
        return Answer(outputs=(output,), structure="tensor", digests=("",))


def trial(function: Function, *nominal: Value, **fields: object) -> Trial:
    return Trial(
        candidate=Here(function),
        reference=Here(function),
        device="cpu",
        dtype=torch.float32,
        seed=3,
        nominal=nominal,
        **fields,  # type: ignore[arg-type]
    )


def asked(given: Trial) -> list[Ask]:
    assert isinstance(given.reference, Here)
    return given.reference.asked


# --- what is remembered ----------------------------------------------------------------------------------------------


def test_the_reference_is_asked_once_a_question() -> None:
    given = trial(torch.sin, x := torch.randn(4))
    outcomes = [given.expected((x,)), given.expected((x.clone(),)), given.exact((x,)), given.exact((x,))]
    assert all(map(is_answer, outcomes))
    assert outcomes[0] is outcomes[1]
    assert [ask.dtype for ask in asked(given)] == [None, torch.float64]
    assert outcomes[2].values[0].dtype is torch.float64  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "other",
    [
        (torch.arange(4.0) + 1,),
        (torch.arange(4.0).double(),),
        (torch.arange(4.0).reshape(2, 2),),
        (torch.arange(4.0).repeat_interleave(2)[::2],),
        (torch.arange(4.0).requires_grad_(),),
        (torch.arange(4.0), 1),
        ([torch.arange(4.0)],),
    ],
)
def test_another_question_is_asked_anew(other: tuple[Value, ...]) -> None:
    given = trial(lambda x, *_: torch.as_tensor(0.0), torch.arange(4.0))
    given.expected((torch.arange(4.0),))
    given.expected(other)
    assert len(asked(given)) == 2


def test_errors_and_deaths_are_remembered_too() -> None:
    given = trial(torch.sin, torch.ones(2))
    given.reference.ask = lambda ask: asked(given).append(ask) or Died(how="hang", detail="")  # type: ignore[method-assign,func-returns-value]
    assert [given.expected((torch.ones(2),)) for _ in range(3)] == [Died(how="hang", detail="")] * 3
    assert len(asked(given)) == 1


def test_a_reference_that_something_else_has_ended_is_asked_again() -> None:
    given = trial(torch.sin, torch.ones(2))
    answer = given.reference.ask(Ask(inputs=given.nominal))
    outcomes: list[Outcome] = [Died(how="crash", detail="killed by SIGKILL"), answer]
    given.reference.ask = lambda ask: outcomes.pop(0)  # type: ignore[method-assign]
    assert given.expected(given.nominal) is answer
    outcomes[:] = [Died(how="hang", detail=""), answer]
    assert isinstance(given.exact(given.nominal), Died), "that would cost another time limit"


def test_memory_of_outcomes_is_bounded() -> None:
    large = torch.zeros(REMEMBERED_BYTES_MAX // 8)
    given = trial(lambda x: large, torch.ones(1))
    for round_ in range(2):
        for value in range(4):
            given.expected((torch.tensor([float(value)]),))
        assert len(asked(given)) == 4 * (round_ + 1), "the third pushes the first out"
    given.expected((torch.tensor([3.0]),))
    assert len(asked(given)) == 8, "the last is still there"


# --- randomness ------------------------------------------------------------------------------------------------------


def test_a_generator_is_of_the_seed_and_the_names() -> None:
    def drawn(seed: int, *names: object) -> list[float]:
        given = trial(torch.sin, torch.ones(1))
        given.seed = seed
        return torch.rand(3, generator=given.generator(*names)).tolist()

    assert drawn(1, "G01", 2) == drawn(1, "G01", 2)
    assert len({tuple(draw) for draw in (drawn(1, "G01", 2), drawn(2, "G01", 2), drawn(1, "G02", 2), drawn(1))}) == 4


def test_inputs_of_the_trials_seed_are_the_nominal_ones() -> None:
    given = trial(torch.sin, torch.ones(2), maker=lambda seed: (torch.full((2,), float(seed)),))
    assert given.inputs(3) is given.nominal
    assert given.inputs(4)[0].tolist() == [4.0, 4.0]  # type: ignore[union-attr]


def test_time_runs_out() -> None:
    assert trial(torch.sin, torch.ones(1)).still_running()
    assert not trial(torch.sin, torch.ones(1), deadline=time.monotonic() - 1).still_running()


def test_tensors_are_found_however_they_are_nested() -> None:
    a, b, c, d = torch.ones(4, 1)
    assert [id(t) for t in tensors_of([a, 1, [b, {"k": (c,), "n": None}], "s", d])] == [id(t) for t in (a, b, c, d)]


# --- other sizes -----------------------------------------------------------------------------------------------------


def shapes(inputs: tuple[Value, ...] | None) -> list[tuple[int, ...]] | None:
    return None if inputs is None else [tuple(tensor.shape) for tensor in tensors_of(inputs)]


def test_equal_sizes_change_together() -> None:
    given = trial(torch.matmul, torch.randn(4, 6), torch.randn(6, 5))
    assert shapes(given.resized({6: 9})) == [(4, 9), (9, 5)]
    assert shapes(given.resized({4: 1, 5: 0})) == [(1, 6), (6, 0)]
    assert shapes(given.resized({6: 6})) == [(4, 6), (6, 5)]
    assert given.resized({7: 3}) is None, "nothing has that size"


def test_sizes_that_the_reference_refuses_are_none_and_asked_once() -> None:
    weight = torch.randn(6, 3)
    given = trial(lambda x: x @ weight, torch.randn(4, 6))
    assert given.resized({6: 7}) is None
    assert given.resized({6: 7}) is None
    assert len(asked(given)) == 1
    assert shapes(given.resized({4: 7})) == [(7, 6)]
    dies = trial(torch.sin, torch.ones(2))
    dies.reference.ask = lambda ask: Died(how="crash", detail="")  # type: ignore[method-assign]
    assert dies.resized({2: 3}) is None


def test_what_was_there_stays_and_what_is_new_is_of_its_kind() -> None:
    x = torch.randn(4, 3)
    (grown,) = trial(torch.sin, x).resized({4: 9, 3: 5})  # type: ignore[misc]
    assert torch.equal(grown[:4, :3], x)
    assert set(grown.flatten().tolist()) <= set(x.flatten().tolist())
    assert not torch.equal(grown[4:8, :3], x), "no copy of the first tile, which would hide a wrong one"
    (again,) = trial(torch.sin, x).resized({4: 9, 3: 5})  # type: ignore[misc]
    assert torch.equal(grown, again)


def test_resized_inputs_are_contiguous_and_ask_for_the_same_gradients() -> None:
    x = torch.randn(3, 4, dtype=torch.bfloat16).t().requires_grad_()
    (made,) = trial(torch.sin, x).resized({4: 6})  # type: ignore[misc]
    assert made.is_contiguous()
    assert made.requires_grad
    assert made.dtype is torch.bfloat16


def test_indices_stay_within_what_they_may_index() -> None:
    given = trial(lambda x, at: x[at], torch.randn(10, 2), torch.tensor([9, 0, 3]))
    x, at = given.resized({10: 4})  # type: ignore[misc]
    assert x.shape == (4, 2)
    assert at.tolist() == [1, 0, 3]
    _, at = given.resized({3: 7})  # type: ignore[misc]
    assert at.tolist() == [9, 0, 3, 9, 0, 3, 9]


def test_a_number_follows_its_size_only_where_it_must() -> None:
    needs = trial(lambda x, n: x.reshape(n, 2), torch.randn(8, 2), 8)
    assert needs.resized({8: 3})[1] == 3  # type: ignore[index]
    free = trial(lambda x, n: x * n, torch.randn(8, 2), 8)
    assert free.resized({8: 3})[1] == 8  # type: ignore[index]


# --- the working size ------------------------------------------------------------------------------------------------


def worked(function: Function, *made: Value) -> tuple[list[tuple[int, ...]], int]:
    """(shapes at the working size, how often it was tried)."""
    here = Here(function)
    cuts = working_cuts(made, lambda inputs: isinstance(here.ask(Ask(inputs=inputs)), Answer))
    found = shapes(cut(made, cuts))
    assert found is not None
    return found, len(here.asked)


def elements(found: list[tuple[int, ...]]) -> int:
    return sum(torch.Size(shape).numel() for shape in found)


def test_small_inputs_stay_as_they_are() -> None:
    assert worked(torch.add, torch.ones(4, 6), torch.ones(4, 6)) == ([(4, 6), (4, 6)], 2)


def test_large_inputs_are_cut_with_tied_sizes_together() -> None:
    found, tries = worked(torch.matmul, torch.ones(1024, 2048), torch.ones(2048, 512))
    assert elements(found) <= ELEMENTS_MAX
    assert found[0][1] == found[1][0]
    assert tries < 20


def test_sizes_that_weights_fix_are_kept() -> None:
    weight = torch.ones(512, 8)
    found, _ = worked(lambda x: x @ weight, torch.ones(4096, 512))
    assert found[0][1] == 512
    assert elements(found) <= ELEMENTS_MAX


def test_a_batch_as_large_as_the_features_gets_a_size_of_its_own() -> None:
    weight = torch.ones(16, 3)
    found, _ = worked(lambda x: x @ weight, torch.ones(16, 16))
    assert found[0][1] == 16
    assert found[0][0] != 16
    large, _ = worked(lambda x: x @ torch.ones(1024, 3), torch.ones(1024, 1024))
    assert large[0] == (large[0][0], 1024)
    assert elements(large) <= ELEMENTS_MAX


def test_what_nobody_takes_smaller_is_left() -> None:
    made = torch.ones(1024, 1024)

    def only(x: Tensor) -> Tensor:
        if x.shape != (1024, 1024):
            raise ValueError
        return x

    assert worked(only, made)[0] == [(1024, 1024)]


def test_cut_inputs_are_the_first_elements() -> None:
    x = torch.arange(12.0).reshape(3, 4).requires_grad_()
    (made, other) = cut((x, [7]), ((0, 1, 2), (0, 0, 9)))
    assert isinstance(made, Tensor)
    assert torch.equal(made, x[:, :2])
    assert made.is_contiguous()
    assert made.requires_grad
    assert other == [7]
