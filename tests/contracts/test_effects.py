"""What a call leaves behind, and the gradients that it gives, are seen as they are."""

from __future__ import annotations

import pytest
import torch

from amk.contracts.outcomes import Ask, Raised
from tests.contracts.kernels import CLASSES, X, answer, text

# --- what a call leaves behind ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "names"),
    [
        ("x[0, 0] = 9", ("input 0",)),
        ("x.untyped_storage()[79] = 9", ("input 0",)),
        ("inputs[1]['a'][0].zero_()", ("input 1",)),
        ("inputs[2].add_(1)", ("input 2", "input 3")),
        ("x.t_()", ("input 0",)),
        ("x.mul_(1)", ()),
        ("torch.rand(1, generator=torch.Generator())", ()),
    ],
)
def test_inputs_that_were_changed_are_named(start, deed: str, names: tuple[str, ...]) -> None:
    base, shared = torch.ones(20), torch.ones(4)
    found = answer(start(f"{deed}\nreturn 1"), base[2:8].reshape(2, 3), {"a": [torch.ones(2)]}, shared[:1], shared[2:])
    assert found.inputs_changed == names


@pytest.mark.parametrize(
    ("deed", "names"),
    [
        ("self.weight.data.add_(1)", {"parameter weight"}),
        ("self.mean += 1", {"buffer mean"}),
        ("self.mean = self.mean + 1", {"buffer mean"}),
        ("self.weight = nn.Parameter(self.weight.detach().clone())", {"parameter weight"}),
        ("del self.mean; self.mean = 0", {"buffer mean"}),
        ("self.weight.data = self.weight.data.t().contiguous().t()", set()),
        ("torch.rand(1)", {"rng cpu"}),
        ("torch.manual_seed(0)", {"rng cpu"}),
        ("self.extra = torch.ones(3)", set()),
        ("pass", set()),
    ],
)
def test_state_that_was_changed_is_named_and_put_back(start, deed: str, names: set[str]) -> None:
    code = CLASSES.replace("        return (x", f"        {deed}\n        return (x")
    process = start(text(code, "Model"))
    first = answer(process, X)
    assert set(first.state_changed) == names
    again = answer(process, X)
    assert again.digests == first.digests
    assert again.state_changed == first.state_changed


def test_state_is_put_back_behind_an_error(start) -> None:
    code = CLASSES.replace(
        "        return (x", "        self.mean += 1\n        if x.sum() == 0: raise ValueError\n        return (x"
    )
    process = start(text(code, "Model"))
    before = answer(process, X)
    assert isinstance(process.ask(Ask(inputs=(X * 0,))), Raised)
    assert answer(process, X).digests == before.digests


def test_random_numbers_are_the_same_at_every_call(start) -> None:
    process = start("import numpy\nreturn torch.rand(3), random.random(), float(numpy.random.rand())")
    assert answer(process, X).digests == answer(process, X + 1).digests


def test_outputs_that_change_later_are_named(start) -> None:
    static = start(text("out = torch.zeros(2, 3)\ndef kernel(x):\n    return out.copy_(x), x * 2, x"))
    assert answer(static, X).late_change == ()
    assert answer(static, X + 1).late_change == ("earlier output 0",)
    assert answer(static, X + 2, reuse=True).late_change == ("earlier output 0",), "outputs in inputs do not count"
    late = start("y = x * 0\nthreading.Timer(0.005, lambda: y.add_(1)).start()\nreturn y")
    found = answer(late, X)
    assert found.late_change == ("output 0",)
    assert found.threads


def test_threads_that_stay_are_named(start) -> None:
    assert answer(start("return x"), X).threads == ()
    stays = "threading.Thread(target=time.sleep, args=(9,), daemon=True, name='stays').start()\nreturn x"
    assert answer(start(stays), X).threads == ("stays",)
    raw = "import _thread\n_thread.start_new_thread(lambda: time.sleep(9), ())\ntime.sleep(0.05)\nreturn x"
    (name,) = answer(start(raw), X).threads
    assert name.startswith("thread ")
    done = "t = threading.Thread(target=time.sleep, args=(0.01,)); t.start(); t.join()\nreturn x"
    assert answer(start(done), X).threads == ()


# --- gradients -------------------------------------------------------------------------------------------------------


def test_a_backward_gives_gradients_of_inputs_and_state(start) -> None:
    process = start(text(CLASSES, "Model"))
    x = X.clone().requires_grad_()
    plain = answer(process, X)
    assert not plain.outputs[0].requires_grad
    assert plain.input_gradients == ()
    assert answer(process, x).outputs[0].requires_grad
    assert answer(process, X, cotangents=()).outputs[0].requires_grad, "a graph, and nothing run backward"
    weight = process.load().state["weight"]
    along = torch.randn(2, 4)
    for dtype in (None, torch.float64):
        found = answer(process, x, cotangents=(along,), dtype=dtype)
        kind = dtype or torch.float32
        assert found.input_gradients[0].dtype is kind
        torch.testing.assert_close(found.input_gradients[0], (along @ weight).to(kind))
        torch.testing.assert_close(found.state_gradients["weight"], (along.T @ X).to(kind))
        assert set(found.state_gradients) == {"weight"}


def test_a_missing_gradient_is_none_and_a_refused_backward_an_outcome(start) -> None:
    x = X.clone().requires_grad_()
    process = start("return x * 2, x.detach() + 1")
    found = answer(process, x, X, cotangents=(torch.ones(2, 3), None))
    assert found.input_gradients[1] is None
    assert torch.equal(found.input_gradients[0], torch.full((2, 3), 2.0))
    assert [output.requires_grad for output in found.outputs] == [True, False]
    assert isinstance(process.ask(Ask(inputs=(x,), cotangents=(None, torch.ones(2, 3)))), Raised)
    again = answer(process, x, cotangents=(torch.ones(2, 3),), reuse=True)
    assert torch.equal(again.input_gradients[0], torch.full((2, 3), 2.0)), "gradients do not add up over calls"
