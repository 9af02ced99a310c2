"""From a pair of callables to a judgement: what is judged, what fails, and whose fault it is."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Callable

import msgspec
import pytest
import torch
from torch import Tensor, nn

import amk
from amk.contracts.errors import GateDefectError, UnpicklableError
from amk.contracts.gates import Gate, gates
from amk.contracts.outcomes import Answer, Ask
from amk.contracts.sources import Factory, KernelPair, Named, Text, kernelbench_pair
from amk.contracts.trial import Trial, tensors_of
from amk.contracts.verdicts import Finding, Judgement
from amk.contracts.verify import Options, judge_kernel, verify
from amk.contracts.working import ELEMENTS_MAX
from amk.errors import AmkError, BadOptionError
from tests.contracts import kernels

QUICK = Options(timeout_s=5.0, first_timeout_s=5.0, load_timeout_s=20.0, memory_bytes=1 << 30)


def gate(judge: Callable[[Trial], Finding], name: str = "G01") -> Gate:
    return Gate(id=name, name="of this test", tolerance_free=True, catches="nothing", judge=judge)


def finding(trial: Trial, verdict: str = "pass", name: str = "G01", cases: int = 1, **facts: object) -> Finding:
    return Finding(gate=name, verdict=verdict, why="so", cases=cases, seed=trial.seed, **facts)  # type: ignore[arg-type]


def pair(
    candidate: str, reference: str = "return x * 2", inputs: str = "[torch.randn(4, 6)]", head: str = ""
) -> KernelPair:
    text = f"""
    import torch
    from torch import nn
    {head}
    class Model(nn.Module):
        def forward(self, x):
            {reference}
    class ModelNew(nn.Module):
        def forward(self, x):
            {candidate}
    def get_inputs():
        return {inputs}
    """
    code = textwrap.dedent(text)
    return kernelbench_pair("kernel", reference=code, candidate=code)


def judged(kernel: KernelPair, *chosen: Gate, options: Options = QUICK) -> Judgement:
    return judge_kernel(kernel, options, chosen)


# --- statuses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdicts", "status"),
    [
        ({}, "conforms"),
        ({"G01": "pass", "G05": "not applicable", "G03": "reject"}, "conforms"),
        ({"G05": "violation"}, "violation"),
        ({"G05": "violation", "G01": "violation"}, "broken"),
        ({"G00": "violation"}, "conforms"),
        ({"G00": "pass", "G01": "not applicable", "G05": "not applicable"}, "not judged"),
    ],
)
def test_findings_amount_to_a_status(verdicts: dict[str, str], status: str) -> None:
    chosen = [
        gate(lambda trial, name=name, verdict=verdict: finding(trial, verdict, name), name)
        for name, verdict in verdicts.items()
    ]
    found = judged(pair("return x + x"), *chosen)
    assert found.status == status
    assert {one.gate: one.verdict for one in found.findings} == verdicts
    assert (found.kernel, found.device, found.dtype, found.seed) == ("kernel", "cpu", "float32", 0)
    assert found.seconds > 0


@pytest.mark.parametrize(
    ("candidate", "head", "says"),
    [
        ("raise ValueError('no')", "", "ValueError: no"),
        ("import os; os._exit(3)", "", "status 3"),
        ("while True: pass", "", "hang"),
        ("import sys; sys.exit()", "", "sys.exit"),
    ],
)
def test_a_kernel_that_does_not_live_through_its_own_inputs_has_failed(candidate: str, head: str, says: str) -> None:
    options = msgspec.structs.replace(QUICK, first_timeout_s=2.0, timeout_s=2.0)
    found = judged(pair(candidate, head=head), gate(finding), options=options)
    assert found.status == "failed"
    assert says in found.why
    assert found.findings == ()


def test_a_kernel_that_does_not_load_has_failed() -> None:
    whole = pair("return x")
    found = judged(msgspec.structs.replace(whole, candidate=Text(code="1 / 0", attribute="ModelNew")), gate(finding))
    assert found.status == "failed"
    assert "ZeroDivisionError" in found.why
    found = judged(msgspec.structs.replace(whole, candidate=Named(target="tests.contracts.kernels:absent")))
    assert found.status == "failed"


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"reference": "raise ValueError('mine')"}, "mine"),
        ({"reference": "import os; os._exit(0)"}, "status 0"),
        ({"inputs": "1 / 0"}, "ZeroDivisionError"),
        ({"inputs": "[object()]"}, "builtins.object cannot be passed"),
        ({"head": "raise RuntimeError('module')"}, "module"),
    ],
)
def test_what_is_not_the_kernels_fault_is_not_judged(facts: dict[str, str], says: str) -> None:
    found = judged(pair("return x * 2", **facts), gate(finding))
    assert found.status == "not judged"
    assert says in found.why
    assert found.findings == ()


@pytest.mark.parametrize(
    ("error", "lack"),
    [
        ("ModuleNotFoundError(\"No module named 'triton'\")", "no compiler"),
        ("RuntimeError('Ninja is required to load C++ extensions')", "no compiler"),
        ("OSError('CUDA_HOME environment variable is not set.')", "no compiler"),
        ("AssertionError('Torch not compiled with CUDA enabled')", "no device"),
    ],
)
def test_what_this_machine_lacks_is_no_failure_of_the_kernel(error: str, lack: str) -> None:
    found = judged(pair(f"raise {error}"), gate(finding))
    assert found.status == "not judged"
    assert found.why.startswith(f"not applicable: {lack}")


# --- gates with defects ----------------------------------------------------------------------------------------------


def raises(trial: Trial) -> Finding:
    raise KeyError("gone")


@pytest.mark.parametrize(
    ("judge", "says"),
    [
        (raises, "KeyError: 'gone'"),
        (lambda trial: finding(trial, name="G02"), "its finding is G02's"),
        (lambda trial: finding(trial, cases=0), "without a comparison"),
        (lambda trial: finding(trial, cases=trial.expected((object(),)) and 1), "builtins.object"),
    ],
)
def test_a_gates_defect_is_never_a_pass(judge: Callable[[Trial], Finding], says: str) -> None:
    after = gate(lambda trial: finding(trial, name="G02"), "G02")
    found = judged(pair("return x * 2"), gate(judge), after)
    assert found.status == "not judged"
    assert found.why.startswith(GateDefectError.code)
    assert "gate G01" in found.why
    assert says in found.why
    assert [one.gate for one in found.findings] == ["G02"], "the others go on"
    broken = gate(lambda trial: finding(trial, "violation", "G03"), "G03")
    assert judged(pair("return x * 2"), gate(judge), broken).status == "broken"


# --- what a gate is given --------------------------------------------------------------------------------------------


def seen(kernel: KernelPair, options: Options = QUICK, name: str = "G01") -> Trial:
    trials: list[Trial] = []

    def judge(trial: Trial) -> Finding:
        trials.append(trial)
        assert isinstance(trial.candidate.ask(Ask(inputs=trial.nominal)), Answer)
        assert isinstance(trial.expected(trial.inputs(5)), Answer)
        return finding(trial, name=name)

    found = judged(kernel, gate(judge, name), options=options)
    assert found.status == "conforms", found
    return trials[-1]


def test_a_trial_has_the_makers_inputs() -> None:
    options = msgspec.structs.replace(QUICK, seed=11)
    trial = seen(pair("return x + x"), options)
    assert trial.seed == 11
    expected = torch.randn(4, 6, generator=torch.Generator().manual_seed(11))
    assert torch.equal(tensors_of(trial.nominal)[0], expected)
    assert (trial.device, trial.dtype, trial.weights) == ("cpu", torch.float32, {})


def test_a_trial_has_the_dtype_that_was_asked_for() -> None:
    trial = seen(pair("return x + x"), msgspec.structs.replace(QUICK, dtype="bfloat16"))
    assert trial.dtype is torch.bfloat16
    assert tensors_of(trial.nominal)[0].dtype is torch.bfloat16


WEIGHTED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, columns))
        self.register_buffer("shift", torch.randn(3))
    def forward(self, x):
        return x @ self.weight.T + self.shift
class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.first = nn.Parameter(torch.randn(2))
        self.weight = nn.Parameter(torch.randn(3, columns))
        self.register_buffer("shift", torch.randn(3))
    def forward(self, x):
        return torch.addmm(self.shift, x, self.weight.T)
def get_inputs(): return [torch.randn(5, 4)]
def get_init_inputs(): return [torch.tensor(4).item()]
"""


def test_a_candidate_that_was_built_has_the_references_state() -> None:
    trial = seen(kernelbench_pair("linear", reference=WEIGHTED, candidate=WEIGHTED))
    assert set(trial.weights) == {"weight"}
    mine = trial.candidate.ask(Ask(inputs=trial.nominal))
    theirs = trial.expected(trial.nominal)
    assert isinstance(mine, Answer)
    assert isinstance(theirs, Answer)
    torch.testing.assert_close(mine.values[0], theirs.values[0])


LARGE = pair("return x + x", inputs="[torch.randn(2048, 512)]")


def test_large_inputs_are_cut_for_gates_but_not_for_the_standard_test() -> None:
    assert tensors_of(seen(LARGE).nominal)[0].numel() <= ELEMENTS_MAX
    assert tensors_of(seen(LARGE, name="G00").nominal)[0].shape == (2048, 512)


@pytest.mark.parametrize(
    ("small", "large", "found"),
    [
        ("pass", "pass", "small"),
        ("pass", "not applicable", "small"),
        ("pass", "violation", "large"),
        ("violation", "pass", "small"),
    ],
)
def test_the_error_ratio_is_judged_at_both_sizes(small: str, large: str, found: str) -> None:
    def judge(trial: Trial) -> Finding:
        is_large = tensors_of(trial.nominal)[0].numel() > ELEMENTS_MAX
        facts = finding(trial, large if is_large else small, name="G07")
        return msgspec.structs.replace(facts, why="large" if is_large else "small")

    assert judged(LARGE, gate(judge, "G07")).findings[0].why == found


def test_a_candidate_that_takes_one_size_only_is_judged_at_it() -> None:
    fixed = pair("assert x.shape[0] == 2048; return x + x", inputs="[torch.randn(2048, 512)]")
    assert tensors_of(seen(fixed).nominal)[0].shape[0] == 2048


def test_gates_share_the_time() -> None:
    left: list[float] = []

    def judge(trial: Trial) -> Finding:
        left.append(trial.deadline)
        assert trial.still_running()
        return finding(trial)

    judged(pair("return x + x"), gate(judge), gate(judge), options=msgspec.structs.replace(QUICK, budget_s=100.0))
    assert 40 < left[1] - left[0] < 60
    spent: list[bool] = []
    options = msgspec.structs.replace(QUICK, budget_s=1e-9)
    judged(pair("return x + x"), gate(lambda t: spent.append(t.still_running()) or finding(t)), options=options)  # type: ignore[func-returns-value]
    assert spent == [False]


# --- amk.verify ------------------------------------------------------------------------------------------------------


def make_inputs() -> list[Tensor]:
    return [torch.randn(3, 5)]


def scaled(x: Tensor) -> Tensor:
    return x * FACTOR


FACTOR = 2


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + x


def quick(candidate: object, reference: object = kernels.double, inputs: object = make_inputs) -> Judgement:
    return verify(candidate, reference, inputs, device="cpu", gates=["G00", "G08"], timeout_s=5.0)  # type: ignore[arg-type]


def test_any_kind_of_callable_is_judged() -> None:
    factor = torch.tensor(2.0)
    for candidate in (
        scaled,
        lambda x: x * factor,
        Twice(),
        Twice,
        Twice().forward,
        Named(target="tests.contracts.kernels:double"),
        Factory(target="tests.contracts.kernels:times", arguments=(2,)),
    ):
        found = quick(candidate)
        assert found.status == "conforms", found
        assert [one.verdict for one in found.findings] == ["pass", "pass"]


def test_a_seed_is_passed_to_a_maker_that_takes_one() -> None:
    assert quick(Twice(), inputs=lambda seed: (torch.full((2, 2), float(seed)),)).status == "conforms"


def test_a_wrong_kernel_is_found_out() -> None:
    found = quick(lambda x: x.mul_(2))
    assert found.status == "broken"
    assert found.finding("G08").verdict == "violation"  # type: ignore[union-attr]
    text = str(found)
    assert text.splitlines()[0].startswith(
        "test_a_wrong_kernel_is_found_out.<locals>.<lambda>: broken (cpu, float32, seed 0"
    )
    assert "G08  violation" in text
    assert "float32[" in text


def test_a_judgement_of_no_gate_says_why() -> None:
    found = quick(lambda x: 1 / 0)
    assert "ZeroDivisionError" in str(found)


def test_what_cannot_be_sent_is_refused_with_the_mend() -> None:
    lock = threading.Lock()
    with pytest.raises(UnpicklableError, match="the candidate cannot be sent") as failure:
        quick(lambda x: lock and x)
    assert "top level" in failure.value.remedy
    with pytest.raises(UnpicklableError, match="make_inputs"):
        quick(scaled, inputs=lambda: [lock])


@pytest.mark.parametrize("options", [{"device": "tpu"}, {"dtype": "float99"}, {"gates": ("G99",)}])
def test_options_that_are_none_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(BadOptionError):
        judge_kernel(pair("return x"), Options(**options))  # type: ignore[arg-type]


def test_verify_is_public_and_options_survive_a_file() -> None:
    assert amk.verify is verify
    options = Options(gates=("G01",), dtype="bfloat16", seed=3)
    assert msgspec.json.decode(msgspec.json.encode(options), type=Options) == options
    kernel = pair("return x")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(kernel), type=KernelPair) == kernel


def test_all_gates_are_chosen_in_order() -> None:
    names = [one.id for one in gates()]
    assert names == [f"G{number:02}" for number in range(13)]
    found = judge_kernel(pair("return x + x"), QUICK)
    assert [one.gate for one in found.findings] == names, found
    assert found.status == "conforms", found
    assert all(one.verdict in {"pass", "not applicable"} for one in found.findings)
    assert issubclass(GateDefectError, AmkError)
