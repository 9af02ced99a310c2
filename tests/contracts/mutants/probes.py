"""Whether some input or some sequence of calls tells a mutant from its reference. Independent of the gates, and cruder.

It runs both in this process, so it is for generated kernels alone.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TypeVar

import torch
from torch import Tensor, nn

ROUNDINGS = 16
"""Errors of so many roundings of the largest result, or so many times the reference's own, are no rounding any more."""

REFUSALS = (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError, ArithmeticError)
"""What a model raises on inputs that it does not take."""

Inputs = list[Tensor]
T = TypeVar("T")


def load(text: str) -> ModuleType:
    """The module that ``text`` is the source of."""
    loaded = ModuleType("generated")
    exec(compile(text, "<generated>", "exec"), loaded.__dict__)
    return loaded


def build(module: ModuleType, seed: int = 7) -> tuple[nn.Module, nn.Module]:
    """(reference, candidate) with the same state."""
    torch.manual_seed(seed)
    reference = module.Model()
    candidate = module.ModelNew()
    candidate.load_state_dict(reference.state_dict())
    return reference, candidate


def inputs_of(module: ModuleType, seed: int) -> Inputs:
    torch.manual_seed(seed)
    return list(module.get_inputs())


def quietly(judge: Callable[[str], T]) -> Callable[[str], T]:
    """Without torch's warnings of sizes that a statistic has no degrees of freedom for: such sizes are tried."""

    @functools.wraps(judge)
    def judged(text: str) -> T:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return judge(text)

    return judged


@quietly
def runs(text: str) -> bool:
    """Whether both models run, forward and in float64, and agree roughly on nominal inputs."""
    module = load(text)
    try:
        reference, candidate = build(module)
        inputs = inputs_of(module, 1)
        return not differs(candidate(*copies(inputs)), reference(*inputs), in_float64(module, inputs))
    except REFUSALS:
        return False


@quietly
def has_digits(text: str) -> bool:
    """Whether the reference's own result has right digits; that of ``mean(x - mean(x))`` is rounding alone."""
    module = load(text)
    try:
        inputs = inputs_of(module, 1)
        theirs, true = build(module)[0](*copies(inputs)).detach(), in_float64(module, inputs)
    except REFUSALS:
        return False
    if not theirs.is_floating_point() or not true.numel():
        return True
    return bool((theirs.double() - true).abs().max() <= true.abs().max() / ROUNDINGS)


@quietly
def distinguished(text: str) -> str | None:
    """The name of a probe that tells ``ModelNew`` from ``Model``; None where none does."""
    module = load(text)
    for name, probe in PROBES.items():
        with contextlib.suppress(*REFUSALS), torch.random.fork_rng():
            if probe(module):
                return name
    return None


# --- comparisons -----------------------------------------------------------------------------------------------------


def copies(inputs: Inputs) -> Inputs:
    """The same values in new storages with the same strides and offsets."""
    made = []
    for value in inputs:
        storage = value.untyped_storage().clone()
        made.append(value.new_empty(0).set_(storage, value.storage_offset(), value.shape, value.stride()))
    return made


def in_float64(module: ModuleType, inputs: Inputs) -> Tensor:
    reference = build(module)[0].double()
    return reference(*(value.double() if value.is_floating_point() else value for value in copies(inputs))).detach()


def classes(value: Tensor) -> Tensor:
    return value.isnan() + 2 * value.isposinf() + 3 * value.isneginf()


def differs(mine: Tensor, theirs: Tensor, true: Tensor) -> bool:
    """Beyond rounding, wherever the reference is of its float64 run's class."""
    mine, theirs = mine.detach(), theirs.detach()
    if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
        return True
    if not theirs.is_floating_point():
        return bool((mine != theirs)[theirs == true].any())
    limits = torch.finfo(theirs.dtype)
    if theirs.dtype == torch.float64:  # nothing is more exact: single precision must do as the yardstick
        limits = torch.finfo(torch.float32)
    settled = (classes(theirs) == classes(true)) & ~(true.isfinite() & (true.abs() > limits.max / 2))
    if (classes(mine) != classes(theirs))[settled].any():
        return True
    finite = settled & true.isfinite()
    if not finite.any():
        return False
    exact = true[finite]
    error, own = ((value[finite].double() - exact).abs().max() for value in (mine, theirs))
    return bool(error > ROUNDINGS * max(own, limits.eps / 2 * exact.abs().max(), limits.tiny))


def same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


# --- probes ----------------------------------------------------------------------------------------------------------


def on(make: Callable[[Inputs], Iterator[Inputs]]) -> Callable[[ModuleType], bool]:
    """A probe that compares answers of fresh models on each of the inputs that ``make`` makes of nominal ones."""

    def probe(module: ModuleType) -> bool:
        for inputs in make(inputs_of(module, 3)):
            reference, candidate = build(module)
            with contextlib.suppress(*REFUSALS):
                if differs(candidate(*copies(inputs)), reference(*copies(inputs)), in_float64(module, inputs)):
                    return True
        return False

    return probe


def each_float(inputs: Inputs, change: Callable[[Tensor], Tensor]) -> Iterator[Inputs]:
    for place, value in enumerate(inputs):
        if value.is_floating_point():
            yield [*inputs[:place], change(value.clone()), *inputs[place + 1 :]]


def planted(inputs: Inputs) -> Iterator[Inputs]:
    def plant(value: Tensor, place: int | slice, what: float) -> Tensor:
        value.view(-1)[place] = what
        return value

    for place in (-1, 0, slice(None)):
        for what in (torch.nan, torch.inf, -torch.inf):
            yield from each_float(inputs, lambda value, place=place, what=what: plant(value, place, what))


def scaled(inputs: Inputs) -> Iterator[Inputs]:
    for scale, shift in ((1e-3, 0.0), (1e-20, 0.0), (0.0, 0.0), (64.0, 0.0), (1e4, 0.0), (1.0, 100.0), (1.0, 1e4)):
        yield from each_float(inputs, lambda value, scale=scale, shift=shift: value * scale + shift)
        yield [value * scale + shift if value.is_floating_point() else value for value in inputs]


def resized(inputs: Inputs) -> Iterator[Inputs]:
    for old in sorted({size for value in inputs for size in value.shape}):
        for new in (1, 3, 7, old + 1, 2 * old + 1, 0):
            made = inputs
            for dim in range(max(value.dim() for value in inputs)):
                made = [_cut(value, dim, old, new) for value in made]
            yield made


def _cut(value: Tensor, dim: int, old: int, new: int) -> Tensor:
    if dim >= value.dim() or value.shape[dim] != old:
        return value
    return torch.cat([value] * (new // old + 1), dim).narrow(dim, 0, new).clone()


def relaid(inputs: Inputs) -> Iterator[Inputs]:
    for place, value in enumerate(inputs):
        wide = value.new_zeros((*value.shape[:-1], value.shape[-1] + 1))
        wide[..., 1:] = value
        for laid in (value.mT.contiguous().mT, wide[..., 1:]):
            yield [*inputs[:place], laid, *inputs[place + 1 :]]


def whole_numbers(inputs: Inputs) -> Iterator[Inputs]:
    for scale in (100.0, 700.0):
        yield from each_float(inputs, lambda value, scale=scale: _whole(value * scale))


def _whole(value: Tensor) -> Tensor:
    """Integers so large that functions like tanh are at their limits, in any precision."""
    return (value + 40 * value.sign()).round().clamp(-2047, 2047)


def nominal(inputs: Inputs) -> Iterator[Inputs]:
    yield inputs


def integers_inexact(module: ModuleType) -> bool:
    """With integers in all, the reference is exact and the candidate is not."""
    reference, candidate = build(module)
    with torch.no_grad():
        for model in (reference, candidate):
            for parameter in model.parameters():
                parameter.fill_(1.0)
    for inputs in whole_numbers(inputs_of(module, 3)):
        theirs, mine = reference(*copies(inputs)), candidate(*copies(inputs))
        true = reference.double()(*(value.double() if value.is_floating_point() else value for value in inputs))
        reference.to(next(value.dtype for value in inputs if value.is_floating_point()))
        exact = torch.equal(theirs.double(), true.double()) and torch.equal(true.float().double(), true.double())
        if exact and not torch.equal(mine.double(), true.double()):
            return True
    return False


def overwritten(module: ModuleType) -> bool:
    """Inputs, state or the generator's state are others behind the call."""
    _, candidate = build(module)
    inputs = inputs_of(module, 3)
    before, state = copies(inputs), {name: value.clone() for name, value in candidate.state_dict().items()}
    random_state = torch.get_rng_state()
    candidate(*inputs)
    return (
        not all(map(same, inputs, before))
        or not all(same(value, state[name]) for name, value in candidate.state_dict().items())
        or not torch.equal(torch.get_rng_state(), random_state)
    )


def stale(module: ModuleType) -> bool:
    """Other values in the same storage, or other weights, and the answer is the old one; or a later call changes it."""
    reference, candidate = build(module)
    for change in (lambda value: value * 0.5 + 0.25, lambda value: value.roll(1, -1)):
        inputs = inputs_of(module, 3)
        for _ in range(8):
            first = candidate(*inputs).detach()
        kept = first.clone()
        with torch.no_grad():
            for value in inputs:
                other = change(value) if value.is_floating_point() else value.roll(1, 0)
                value.view(-1)[1:].copy_(other.view(-1)[1:])
        second = candidate(*inputs)
        if not same(first, kept) or differs(second, reference(*inputs), in_float64(module, inputs)):
            return True
    with torch.no_grad():
        for model in (reference, candidate):
            for parameter in model.parameters():
                parameter.mul_(1.5)
    return bool(differs(candidate(*inputs), reference(*inputs), build_scaled(module, 1.5)(*_wide(inputs))))


def build_scaled(module: ModuleType, scale: float) -> nn.Module:
    reference = build(module)[0].double()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter.mul_(scale)
    return reference


def _wide(inputs: Inputs) -> Inputs:
    return [value.double() if value.is_floating_point() else value for value in inputs]


def aliased(module: ModuleType) -> bool:
    """The answer lies in the input's memory, and the reference's does not."""
    reference, candidate = build(module)
    inputs = inputs_of(module, 3)

    def shares(answer: Tensor) -> bool:
        return any(answer.untyped_storage().data_ptr() == value.untyped_storage().data_ptr() for value in inputs)

    return shares(candidate(*inputs)) and not shares(reference(*inputs))


def unwritten(module: ModuleType) -> bool:
    """With fresh memory full of NaN, or of another pattern, the answer is another; of odd sizes too."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        return any(on(make)(module) for make in (nominal, resized))
    finally:
        torch.use_deterministic_algorithms(False)


def unrepeatable(module: ModuleType) -> bool:
    """Equal calls give other bits; the reference's do not."""
    reference, candidate = build(module)
    inputs = inputs_of(module, 3)
    mine, theirs = ([model(*copies(inputs)).detach() for _ in range(6)] for model in (candidate, reference))
    return all(same(one, theirs[0]) for one in theirs) and not all(same(one, mine[0]) for one in mine)


def unlike_in_gradient(module: ModuleType) -> bool:
    """Whether it asks for a gradient, and which."""
    gradients = []
    inputs = [value.requires_grad_(value.is_floating_point()) for value in inputs_of(module, 3)]
    for model in build(module):
        answer = model(*inputs)
        leaves = [*(value for value in inputs if value.requires_grad), *model.parameters()]
        if not answer.requires_grad:
            gradients.append(None)
            continue
        torch.manual_seed(0)
        gradients.append(torch.autograd.grad(answer, leaves, torch.randn_like(answer), allow_unused=True))
    theirs, mine = gradients
    if theirs is None or mine is None:
        return theirs is not mine
    return any((a is None) != (b is None) for a, b in zip(theirs, mine, strict=True))


PROBES: dict[str, Callable[[ModuleType], bool]] = {
    "nominal": on(nominal),
    "non-finite": on(planted),
    "magnitude": on(scaled),
    "size": on(resized),
    "layout": on(relaid),
    "integers": integers_inexact,
    "overwritten": overwritten,
    "stale": stale,
    "aliased": aliased,
    "unwritten": unwritten,
    "unrepeatable": unrepeatable,
    "gradient": unlike_in_gradient,
}
