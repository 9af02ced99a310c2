"""What a question to a kernel's process asks for is done."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from amk.contracts.outcomes import Answer, Ask, Died, Raised
from amk.contracts.sources import Factory, Named, Pickled, Source, Text
from amk.contracts.subject import Limits, Ready
from tests.contracts import kernels
from tests.contracts.kernels import CLASSES, X, answer, text

# --- sources ---------------------------------------------------------------------------------------------------------


def test_a_named_function_a_factory_and_a_text_are_loaded(start) -> None:
    for source in (
        Named(target="tests.contracts.kernels:double"),
        Named(target="tests.contracts.kernels:Holder.double"),
        Factory(target="tests.contracts.kernels:times", arguments=(2,)),
        text("return x * 2"),
        text("kernel = torch.nn.Identity()\nclass Twice(nn.Module):\n    def forward(self, x): return x * 2", "Twice"),
    ):
        assert torch.equal(answer(start(source), X).values[0], kernels.double(X))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (Named(target="tests.contracts.kernels:absent"), "'absent'"),
        (Named(target="no.such.module:f"), "No module named 'no'"),
        (Named(target="tests.contracts.kernels:NUMBER"), "cannot be called"),
        (text("def kernel(:"), "invalid syntax"),
        (Text(code="x = 1", attribute="kernel"), "'kernel'"),
        (text("raise ValueError('at load')\ndef kernel(x): return x"), "at load"),
        (Pickled(data=b"garbage", label="garbage"), ""),
        (Text(code="x = '\ud800'", attribute="x"), "surrogates"),
        (Text(code="\0", attribute="x"), "null bytes"),
    ],
)
def test_what_cannot_be_loaded_says_why(start, source: Source, says: str) -> None:
    process = start(source)
    loaded = process.load()
    assert isinstance(loaded, Raised), loaded
    assert says in loaded.message
    assert process.ask(Ask(inputs=(X,))) == loaded


def test_a_class_is_built_with_what_its_module_makes_under_the_seed(start) -> None:
    ready = [start(text(CLASSES, "Model"), seed=seed).load() for seed in (1, 1, 2)]
    assert all(isinstance(one, Ready) for one in ready)
    assert ready[0].init == (4, 3)
    assert ready[0].parameters == ("weight",)
    assert set(ready[0].state) == {"weight", "mean"}
    assert torch.equal(ready[0].state["weight"], ready[1].state["weight"])
    assert not torch.equal(ready[0].state["weight"], ready[2].state["weight"])


def test_a_class_is_built_with_what_it_is_given(start) -> None:
    values = {"weight": torch.ones(5, 3), "mean": torch.ones(7), "other": torch.ones(1)}
    process = start(text(CLASSES, "ModelNew"), init=(5, 3, 2.0), state=values)
    ready = process.load()
    assert isinstance(ready, Ready)
    assert torch.equal(ready.state["weight"], values["weight"])
    assert torch.equal(ready.state["mean"], torch.zeros(3)), "another shape is left alone"
    assert torch.equal(answer(process, X).values[0], X @ torch.ones(3, 5) * 2.0)


def test_state_of_odd_kinds_is_left_to_the_kernel(start) -> None:
    code = """
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.late = nn.LazyLinear(4)
            self.register_buffer("sparse", torch.eye(3).to_sparse())
        def forward(self, x):
            return self.late(x), self.sparse @ x.t()
    """
    process = start(text(code, "Model"))
    ready = process.load()
    assert isinstance(ready, Ready), ready
    assert ready.state == {}
    assert torch.equal(answer(process, X).values[1], X.t())


def test_named_arguments_are_passed_where_the_class_takes_them(start) -> None:
    code = CLASSES.replace("return [4, 3]", "return [[4], {'columns': 3}]")
    ready = start(text(code, "Model")).load()
    assert isinstance(ready, Ready)
    assert ready.state["weight"].shape == (4, 3)


def test_inputs_are_made_under_a_seed_cast_and_cut(start) -> None:
    process = start(text(CLASSES, "Model"), inputs="get_inputs", dtype=torch.bfloat16)
    (one,), (same,), (other,) = (process.make(seed) for seed in (1, 1, 2))
    assert isinstance(one, Tensor)
    assert one.dtype is torch.bfloat16
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    (short,) = process.make(1, ((0, 1, 2),))
    assert torch.equal(short, one[:, :2])
    assert short.is_contiguous()


def test_a_maker_that_takes_a_seed_is_given_it(start) -> None:
    code = (
        "def kernel(x): return x\ndef plain(): return torch.rand(())\ndef seeded(seed): return [seed, (1, {'a': seed})]"
    )
    assert start(text(code), inputs="seeded").make(7) == (7, (1, {"a": 7}))
    (made,) = start(text(code), inputs="plain").make(7)
    assert made == torch.rand((), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("deed", ["raise ValueError('none')", "return [object()]", "import os; os._exit(1)"])
def test_a_maker_that_makes_nothing_is_an_outcome(start, deed: str) -> None:
    process = start(text(f"def kernel(x): return x\ndef get_inputs(): {deed}"), inputs="get_inputs")
    assert isinstance(process.make(0), (Raised, Died))
    assert isinstance(process.ask(Ask(inputs=(X,))), Answer)


def test_the_source_can_be_read(start) -> None:
    seen = answer(
        start("import inspect\nreturn inspect.getsource(kernel), inspect.getsource(inspect.getmodule(kernel))"), X
    )
    assert seen.structure.count("def kernel(*inputs)") == 2


# --- calls -----------------------------------------------------------------------------------------------------------


def test_inputs_arrive_as_they_are_laid_out(start) -> None:
    base = torch.randn(8, 8)
    process = start("return [(i.shape, i.stride(), i.storage_offset(), i.untyped_storage().nbytes()) for i in inputs]")
    seen = answer(process, base[2:4, 1:].t(), base[0].expand(3, 8)).structure
    assert seen.startswith("[(Size(7, 2), (1, 8), 17, 256), (Size(3, 8), (0, 1), 0, 256)]")


def test_what_comes_back_is_described(start) -> None:
    process = start(
        "y = torch.ones(4, 3).t()\n"
        "return {'a': [x, y, y[0]], 'b': (nn.Parameter(x.clone()), 3, None, 'text', 2.5, object())}"
    )
    found = answer(process, X)
    assert found.structure == "{a: [tensor, tensor, tensor], b: (tensor, 3, None, 'text', float, object)}"
    assert [output.kind for output in found.outputs] == ["Tensor", "Tensor", "Tensor", "Parameter", "float"]
    assert found.outputs[1].stride == (1, 3)
    assert found.outputs[1].value.is_contiguous()
    assert found.outputs[0].device == "cpu"
    assert found.values[4] == torch.tensor(2.5, dtype=torch.float64)
    assert [output.aliases for output in found.outputs] == [
        {"input 0"},
        {"output 2"},
        {"output 1"},
        frozenset(),
        frozenset(),
    ]


def test_halves_of_one_buffer_do_not_alias_each_other(start) -> None:
    found = answer(start("both = torch.cat([x, x], 1)\nreturn both[:, :3], both[:, 3:], both[:, 2:4]"), X)
    assert [output.aliases for output in found.outputs] == [{"output 2"}, {"output 2"}, {"output 0", "output 1"}]


def test_outputs_in_the_state_are_named(start) -> None:
    process = start(text(CLASSES.replace("return (x", "return self.mean, self.weight[0], (x"), "Model"))
    assert [output.aliases for output in answer(process, X).outputs][:2] == [{"buffer mean"}, {"parameter weight"}]


def test_tensors_that_hide_what_they_hold_are_read_past_their_class(start) -> None:
    process = start(
        text(
            """
            class Liar(torch.Tensor):
                @classmethod
                def __torch_function__(cls, func, types, args=(), kwargs=None):
                    return torch.zeros(1)
            def kernel(x):
                return (x * 2).as_subclass(Liar), x.to_sparse(), torch.empty(3, device="meta")
            """
        )
    )
    found = answer(process, X)
    assert [output.kind for output in found.outputs] == ["Liar", "Tensor sparse_coo", "Tensor"]
    assert torch.equal(found.values[0], X * 2)
    assert torch.equal(found.values[1], X)
    assert found.outputs[2].device == "meta"


@pytest.mark.parametrize(("dtype", "expected"), [(None, torch.bfloat16), (torch.float64, torch.float64)])
def test_a_call_in_another_dtype_casts_inputs_and_state(
    start, dtype: torch.dtype | None, expected: torch.dtype
) -> None:
    code = CLASSES.replace("return (x", "return torch.ones(1), self.weight, x[::2, 1:], (x")
    process = start(text(code, "Model"), dtype=torch.bfloat16)
    x = torch.randn(4, 6).bfloat16()[:2, ::2]
    found = answer(process, x, dtype=dtype)
    assert [value.dtype for value in found.values] == [expected if dtype else torch.float32, *[expected] * 3]
    assert torch.equal(found.values[2].double(), x[::2, 1:].double())
    assert torch.equal(found.values[1].double(), process.load().state["weight"].double())
    assert answer(process, x).values[3].dtype is torch.bfloat16, "the module itself is what it was"


def test_a_float64_call_follows_integers_and_complex_numbers(start) -> None:
    found = answer(start("return inputs"), X.int(), X.to(torch.complex64), X.half(), dtype=torch.float64)
    assert [value.dtype for value in found.values] == [torch.int32, torch.complex128, torch.float64]


def test_state_is_written_for_one_call(start) -> None:
    process = start(text(CLASSES, "Model"))
    before = answer(process, X).values[0]
    weight = torch.ones(4, 3)
    for dtype in (None, torch.float64):
        changed = answer(process, X, state={"weight": weight}, dtype=dtype)
        assert torch.equal(changed.values[0], (X @ weight.T).to(dtype or torch.float32))
        assert changed.state_changed == ()
    assert torch.equal(answer(process, X).values[0], before)
    for state in ({"absent": weight}, {"weight": weight[:1]}):
        assert isinstance(process.ask(Ask(inputs=(X,), state=state)), Raised)
    assert torch.equal(answer(process, X).values[0], before)


def test_repetitions_are_made_on_fresh_inputs_and_told_apart(start) -> None:
    found = answer(start("x += 1\nreturn x"), X, repeat=5)
    assert len(found.digests) == 5
    assert len(set(found.digests)) == 1
    assert torch.equal(found.values[0], X + 1)
    counting = start(text("count = 0\ndef kernel(x):\n    global count\n    count += 1\n    return x * count"))
    assert len(set(answer(counting, X, repeat=5).digests)) == 5


def test_each_repetition_has_the_time_limit(start) -> None:
    process = start("time.sleep(0.3)\nreturn x", limits=Limits(timeout_s=1.0, first_timeout_s=1.0))
    assert len(answer(process, X, repeat=6).digests) == 6


def test_disturbance_shows_what_a_quiet_run_hides(start) -> None:
    reads_fresh = "return torch.empty(4096) * 0 + torch.empty(4096).nan_to_num(0, 0, 0)"
    assert len(set(answer(start(reads_fresh), X, repeat=12, disturb=True).digests)) > 1
    assert len(set(answer(start("return x.cos().cumsum(0)"), X, repeat=12, disturb=True).digests)) == 1


@pytest.mark.parametrize("byte", [0x00, 0x7F, 0xAA, 0xFF])
@pytest.mark.parametrize(
    "fresh",
    [
        "torch.empty({n})",
        "torch.empty_like(x).new_empty({n})",
        "torch.empty_strided(({n},), (1,))",
        "x.new_empty({n})",
        "torch.Tensor({n})",
        "torch.zeros(1).resize_({n})[1:]",
        "torch.ops.aten.empty_permuted(({n},), (0,))",
        "torch.from_numpy(__import__('numpy').empty({n}, dtype='float32'))",
    ],
)
def test_fresh_memory_holds_the_poison(start, fresh: str, byte: int) -> None:
    for count in (7, 5000, 1 << 18):
        found = answer(start(f"return {fresh.format(n=count)}.view(torch.uint8)"), X, poison=byte)
        assert set(found.values[0].unique().tolist()) == {byte}, count


def test_memory_that_holds_something_is_not_poisoned(start) -> None:
    process = start(
        "a = torch.zeros(5); b = torch.full((3,), 2.0); c = a.clone(); d = torch.arange(6.0).resize_(4)\n"
        "e = torch.ones(4).resize_(8)[:4]; f = x.contiguous().to(torch.float64)\n"
        "return a, b, c, d, e, f, x, torch.cat([x, x]), torch.empty_like(x).copy_(x)"
    )
    plain, poisoned = answer(process, X), answer(process, X, poison=0xFF)
    assert plain.digests == poisoned.digests


def test_a_kernel_that_does_not_run_under_a_mode_is_poisoned_from_below(start) -> None:
    process = start(
        "from torch.utils._python_dispatch import _get_current_dispatch_mode as mode\n"
        "if mode() is not None: raise RuntimeError('not under a mode')\n"
        "return torch.empty(5000).view(torch.uint8)"
    )
    assert set(answer(process, X, poison=0xAA).values[0].unique().tolist()) == {0xAA}


def test_storages_can_be_written_over_in_place(start) -> None:
    process = start("return x * 2, x.data_ptr(), x._version, id(x)")
    first = answer(process, X)
    second = answer(process, X + 1, reuse=True)
    third = answer(process, X + 2)
    assert torch.equal(second.values[0], (X + 1) * 2)
    pointer, version, identity = (
        one.strip("()").split(", ")[1:] for one in (first.structure, second.structure, third.structure)
    )
    assert pointer[0] == version[0] != identity[0], "data_ptr"
    assert int(version[1]) > int(pointer[1]), "an in-place write raises the version, which a cache may go by"
    assert pointer[2] == version[2], "the tensor object"
    resized = answer(process, torch.ones(50), reuse=True)
    assert torch.equal(resized.values[0], torch.full((50,), 2.0))


def test_a_cache_by_address_is_stale_when_storages_are_reused(start) -> None:
    cache = "cache = {}\ndef kernel(x):\n    return cache.setdefault(x.data_ptr(), x * 2)"
    process = start(text(cache))
    answer(process, X)
    assert torch.equal(answer(process, X + 1, reuse=True).values[0], X * 2)
