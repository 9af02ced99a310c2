"""A kernel's process on a device: what is asked for is done there, and what goes wrong there is an outcome."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path

import pytest
import torch

from amk.contracts.outcomes import Answer, Ask, Died, Outcome, Raised
from amk.contracts.sources import Text, kernelbench_pair
from amk.contracts.subject import Limits, Process
from amk.contracts.verify import Options, judge_kernel

pytestmark = pytest.mark.gpu

X = torch.arange(6.0).reshape(2, 3)
LIMITS = Limits(timeout_s=20.0, first_timeout_s=60.0, load_timeout_s=300.0, memory_bytes=4 << 30)


@pytest.fixture(scope="module", autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AMK_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def started(body: str) -> Process:
    code = textwrap.dedent(body)
    if "def kernel" not in code:
        code = f"def kernel(x):\n{textwrap.indent(code, '    ')}"
    return Process(Text(code=f"import torch\n{code}", attribute="kernel"), device="cuda", limits=LIMITS)


def asked(body: str, **how: object) -> Outcome:
    with started(body) as process:
        return process.ask(Ask(inputs=(X,), **how))  # type: ignore[arg-type]


def answered(body: str, **how: object) -> Answer:
    outcome = asked(body, **how)
    assert isinstance(outcome, Answer), outcome
    return outcome


def test_inputs_are_on_the_device_and_laid_out_as_they_are() -> None:
    base = torch.randn(8, 8)
    with started("return x * 2, x.stride(), x.storage_offset(), x.untyped_storage().nbytes()") as process:
        answer = process.ask(Ask(inputs=(base[2:4, 1:].t(),)))
    assert isinstance(answer, Answer)
    assert answer.structure == "(tensor, (1, 8), 17, 256)"
    assert answer.outputs[0].device == "cuda:0"
    assert torch.equal(answer.values[0], base[2:4, 1:].t() * 2)


def test_tf32_is_off_and_float64_is_float64() -> None:
    body = "return x @ x.t(), torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32"
    assert answered(body).structure == "(tensor, False, False)"
    wide = answered(body, dtype=torch.float64)
    assert wide.values[0].dtype is torch.float64


def test_what_a_call_leaves_behind_is_named() -> None:
    assert answered("x[0, 0] = 9\nreturn 1").inputs_changed == ("input 0",)
    assert answered("torch.rand(1, device='cuda')\nreturn 1").state_changed == ("rng cuda",)
    aliases = [output.aliases for output in answered("y = x * 2\nreturn x[0], y[0], y, y[1]").outputs]
    assert aliases == [{"input 0"}, {"output 2"}, {"output 1", "output 3"}, {"output 2"}]


@pytest.mark.parametrize("byte", [0x7F, 0xFF])
@pytest.mark.parametrize("fresh", ["torch.empty({n}, device='cuda')", "x.new_empty({n})", "torch.empty({n})"])
def test_fresh_memory_holds_the_poison(fresh: str, byte: int) -> None:
    for count in (7, 5000, 1 << 20, 1 << 23):
        answer = answered(f"return {fresh.format(n=count)}.view(torch.uint8)", poison=byte)
        assert set(answer.values[0].unique().tolist()) == {byte}, count


def test_blocks_that_torch_kept_hold_the_poison_too() -> None:
    body = """
    from torch.utils._python_dispatch import _get_current_dispatch_mode as mode
    if mode() is not None:
        raise RuntimeError("not under a mode")
    return torch.empty({n}, dtype=torch.uint8, device="cuda")
    """
    for count in (512, 100_000, 1 << 20, 3 << 20, 30 << 20):
        answer = answered(body.format(n=count), poison=0xAA)
        assert set(answer.values[0].unique().tolist()) == {0xAA}, count


def test_disturbance_changes_no_right_answer() -> None:
    assert len(set(answered("return (x @ x.t()).softmax(-1)", repeat=8, disturb=True).digests)) == 1


def test_inputs_that_come_late_are_waited_for_on_their_own_stream() -> None:
    assert torch.equal(answered("return x * 2", late=True).values[0], X * 2)


@pytest.mark.parametrize(
    "body",
    [
        "with torch.cuda.stream(torch.cuda.default_stream()):\n    return x * 2",
        "side = torch.cuda.Stream()\nwith torch.cuda.stream(side):\n    return x * 2",
    ],
)
def test_work_on_another_stream_does_not_see_what_comes_late(body: str) -> None:
    with started(body) as process:
        plain, late = process.ask(Ask(inputs=(X,))), process.ask(Ask(inputs=(X,), late=True))
    assert isinstance(plain, Answer)
    assert isinstance(late, Answer)
    assert torch.equal(plain.values[0], X * 2), "by itself it is right"
    assert not torch.equal(late.values[0], X * 2)


def test_a_broken_device_context_is_a_death_and_the_next_call_has_another() -> None:
    with started("return x[torch.full((1,), int(x.sum()), device='cuda')]") as process:
        good = process.ask(Ask(inputs=(torch.zeros(2),)))
        bad = process.ask(Ask(inputs=(torch.ones(2) * 50,)))
        again = process.ask(Ask(inputs=(torch.zeros(2),)))
    assert isinstance(good, Answer)
    assert isinstance(bad, Died)
    assert bad.how == "device"
    assert isinstance(again, Answer)


def test_more_memory_than_there_may_be_is_a_death() -> None:
    outcome = asked("return torch.empty(8 << 30, dtype=torch.uint8, device='cuda')")
    assert isinstance(outcome, Died)
    assert outcome.how == "memory"


def test_an_error_that_the_device_survives_is_an_error() -> None:
    outcome = asked("return x @ x")
    assert isinstance(outcome, Raised)


LAUNCH = """
import torch
from torch.utils.cpp_extension import load_inline
extension = load_inline(
    "unchecked",
    cpp_sources=["torch::Tensor run(torch::Tensor x, int64_t threads);"],
    cuda_sources=['''
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
torch::Tensor run(torch::Tensor x, int64_t threads) {
  auto a = x.contiguous();
  auto y = torch::zeros_like(a);
  twice<<<1, threads>>>(a.data_ptr<float>(), y.data_ptr<float>(), a.numel());
  return y;
}
'''],
    functions=["run"],
)
def kernel(x):
    return extension.run(x, THREADS)
"""


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
def test_a_launch_that_fails_silently_is_a_death() -> None:
    good = answered(LAUNCH.replace("THREADS", "64"))
    assert torch.equal(good.values[0], X * 2)
    bad = asked(LAUNCH.replace("THREADS", "4096"))
    assert isinstance(bad, Died)
    assert bad.how == "device"
    assert "has not said so" in bad.detail


def test_all_gates_run_on_a_device() -> None:
    path = Path(__file__).parent.parent / "contracts" / "controls" / "g07_conforming.py"
    code = path.read_text()
    pair = kernelbench_pair("control", reference=code, candidate=code)
    found = judge_kernel(pair, Options(device="cuda", budget_s=900.0))
    assert found.status == "conforms", str(found)
