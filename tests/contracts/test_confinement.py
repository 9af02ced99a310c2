"""What a kernel does to files, to its own process and to others: how far it reaches, and what is seen of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import torch

from amk.contracts.harness.confine import SCOPES_SINCE, version
from amk.contracts.outcomes import Answer, Ask, Died, Raised
from tests.contracts.hostile import X, answered, asked, subject

# --- files -----------------------------------------------------------------------------------------------------------


def test_the_working_directory_is_its_own_and_goes_with_it() -> None:
    with subject("pathlib.Path('made').write_text('x')\nos.chmod('.', 0)\nreturn os.getcwd()") as process:
        answer = process.ask(Ask(inputs=(X,)))
        assert isinstance(answer, Answer)
        folder = Path(answer.structure.strip("'"))
        assert folder.is_dir()
        assert folder != Path.cwd()
    assert not folder.exists()


def test_a_kernel_that_deletes_its_files_is_judged_by_its_answers() -> None:
    deed = """
    import inspect
    shutil.rmtree(os.getcwd())
    return x * 2, 'rmtree' in inspect.getsource(kernel)
    """
    with subject(deed) as process:
        answers = [process.ask(Ask(inputs=(X,))) for _ in range(2)]
    assert isinstance(answers[0], Answer)
    assert answers[0].structure == "(tensor, True)"
    assert isinstance(answers[1], Raised), "there is no directory to remove any more"


def test_a_file_without_end_ends() -> None:
    outcome = asked(
        """
        import resource
        with open('big', 'wb') as file:
            os.truncate('big', resource.getrlimit(resource.RLIMIT_FSIZE)[0] + 1)
        """
    )
    assert isinstance(outcome, (Raised, Died)), outcome


# --- what it does to its own process ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "names"),
    [
        ("torch.allclose = lambda *a, **k: True", {"torch.allclose"}),
        ("torch.equal = torch.allclose = lambda *a, **k: True", {"torch.allclose", "torch.equal"}),
        ("torch.Tensor.clone = lambda self, **k: self", {"torch.Tensor.clone"}),
        ("torch.nn.functional.relu = torch.relu", {"torch.nn.functional.relu"}),
        ("torch.nn.Module.__call__ = lambda self, x: x", {"torch.nn.Module.__call__"}),
        ("builtins.sum = max", {"builtins.sum"}),
        ("time.perf_counter = lambda: 0.0", {"time.perf_counter"}),
        ("torch.cuda.synchronize = lambda: None", {"torch.cuda.synchronize"}),
        ("del torch.argsort", {"torch.argsort"}),
        ("torch.new_name = 1", set()),
    ],
)
def test_what_is_replaced_is_named(deed: str, names: set[str]) -> None:
    answer = answered(f"{deed}\nreturn x * 2")
    assert set(answer.patched) == names
    assert torch.equal(answer.values[0], X * 2)
    at_load = answered(f"{deed}\ndef kernel(x): return x * 2")
    assert set(at_load.patched) == names


def test_libraries_that_are_loaded_replace_nothing() -> None:
    answer = answered("import torch._dynamo, torch.fx, torch.distributed, torch.utils.checkpoint\nreturn x * 2")
    assert answer.patched == ()


def test_patches_do_not_blind_the_harness() -> None:
    deed = """
    always = lambda *a, **k: True
    torch.equal = torch.allclose = torch.Tensor.equal = always
    torch.Tensor.clone = torch.Tensor.detach = torch.Tensor.contiguous = lambda self, *a, **k: self
    time.perf_counter = time.monotonic = lambda: 0.0
    x.data.add_(1)
    time.sleep(0.02)
    return x * 2
    """
    answer = answered(deed)
    assert answer.inputs_changed == ("input 0",)
    assert answer.seconds > 0.01
    assert torch.equal(answer.values[0], (X + 1) * 2)


def test_the_judge_is_not_what_a_kernel_patches() -> None:
    asked("torch.equal = torch.manual_seed = None\nbuiltins.len = None\nreturn x")
    assert torch.equal(X, X.clone())
    assert len([X]) == 1


def test_global_switches_of_torch_do_not_reach_the_harness() -> None:
    deed = """
    torch.set_default_dtype(torch.float64)
    torch.set_default_device('meta')
    torch.set_grad_enabled(False)
    torch.use_deterministic_algorithms(True)
    return x * 2
    """
    answer = answered(deed, times=2)
    assert torch.equal(answer.values[0], X * 2)


# --- what it does to others ------------------------------------------------------------------------------------------

confined = pytest.mark.skipif(version() < SCOPES_SINCE, reason="this Linux has no Landlock that scopes signals")


@confined
@pytest.mark.parametrize(
    "deed",
    [
        "os.kill({judge}, signal.SIGKILL)",
        "os.kill(os.getppid(), signal.SIGKILL)",
        "signal.pidfd_send_signal(os.pidfd_open({judge}), signal.SIGKILL)",
        "open('/proc/{judge}/mem', 'r+b')",
        "os.remove('{folder}/file')",
        "shutil.rmtree('{folder}')",
        "os.rename('{folder}/file', '{folder}/away')",
    ],
)
def test_other_processes_and_their_files_are_out_of_reach(deed: str) -> None:
    with tempfile.TemporaryDirectory(dir=kept()) as folder:
        Path(folder, "file").touch()
        outcome = asked(deed.format(judge=os.getpid(), folder=folder))
        assert Path(folder, "file").exists()
    assert isinstance(outcome, Raised), outcome
    assert outcome.kind == "PermissionError"


def kept() -> Path:
    """A folder that does not lie beneath the one for temporary files, in which a kernel may remove what it likes."""
    temporary = Path(tempfile.gettempdir()).resolve()
    places = (Path(__file__).resolve().parent, Path.home().resolve(), Path("/var/tmp"))
    return next(place for place in places if temporary not in (place, *place.parents))


def test_its_own_processes_and_files_are_within_reach() -> None:
    deed = """
    import tempfile
    child = subprocess.Popen(["sleep", "1000"])
    child.kill()
    with tempfile.NamedTemporaryFile() as file, tempfile.NamedTemporaryFile(dir="/tmp") as other:
        file.write(b"x")
    os.makedirs("a/b")
    pathlib.Path("a/b/c").write_text("x")
    os.rename("a/b/c", "c")
    shutil.rmtree("a")
    os.kill(0, 0)
    return x * 2, child.wait()
    """
    assert answered(deed).structure == "(tensor, -9)"
