"""A kernel's process against kernels that do their worst: each deed is an outcome, and the judge goes on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch

from amk.contracts.errors import ForkServerError
from amk.contracts.harness.launcher import Launcher, launcher
from amk.contracts.outcomes import Answer, Ask, Died, Raised
from amk.contracts.subject import Limits, Ready
from tests.contracts.hostile import SHORT, X, answered, asked, subject


@pytest.fixture(autouse=True)
def nothing_stays_behind() -> Iterator[None]:
    """No process of any kernel's outlives its subject."""
    yield
    assert not psutil.Process(launcher().pid).children(recursive=True)


# --- deaths ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "how", "says"),
    [
        ("ctypes.string_at(0)", "crash", "SIGSEGV"),
        ("os.abort()", "crash", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "crash", "SIGKILL"),
        ("sys.setrecursionlimit(10**9)\nv = []\nfor _ in range(10**6): v = [v]\nrepr(v)", "crash", "SIGSEGV"),
        ("sys.exit(3)", "exit", "sys.exit(3)"),
        ("raise SystemExit", "exit", "sys.exit"),
        ("os._exit(0)", "exit", "status 0"),
        ("os._exit(7)", "exit", "status 7"),
        ("threading.Thread(target=lambda: os._exit(5)).start()\ntime.sleep(5)", "exit", "status 5"),
        ("return torch.ones(1 << 40)", "memory", ""),
        ("return bytearray(2 << 30)", "memory", "MemoryError"),
        ("held = []\nwhile True:\n    held.append(torch.ones(1 << 22))", "memory", ""),
        ("os.execv('/bin/true', ['true'])", "exit", "status 0"),
    ],
)
def test_a_death_is_an_outcome_that_says_how(deed: str, how: str, says: str) -> None:
    outcome = asked(deed)
    assert isinstance(outcome, Died), outcome
    assert outcome.how == how, outcome
    assert says in outcome.detail


@pytest.mark.parametrize(
    "deed",
    [
        "while True: pass",
        "time.sleep(1000)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",  # C code that does not let go of the GIL
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "try:\n    while True: time.sleep(0.01)\nexcept BaseException:\n    while True: pass",
    ],
)
def test_a_hang_ends_with_the_time_limit(deed: str) -> None:
    start = time.monotonic()
    outcome = asked(deed, SHORT)
    assert isinstance(outcome, Died)
    assert outcome.how == "hang"
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("deed", ["os._exit(1)", "while True: pass", "sys.exit()", "ctypes.string_at(0)"])
def test_the_same_while_the_module_loads(deed: str) -> None:
    outcome = asked(f"{deed}\ndef kernel(x): return x", SHORT)
    assert isinstance(outcome, Died)


def test_a_kernel_that_cannot_be_loaded_is_not_tried_for_ever(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with subject(f"open('{starts}', 'a').write('x')\nos._exit(1)\ndef kernel(x): return x") as process:
        for _ in range(4):
            assert isinstance(process.ask(Ask(inputs=(X,))), Died)
    assert starts.read_text() == "xx", "it is not even started a third time"


def test_the_next_call_after_a_death_starts_another_process() -> None:
    with subject("if x.sum() == 0: os._exit(1)\nreturn x, os.getpid()") as process:
        before = process.ask(Ask(inputs=(X,)))
        assert isinstance(process.ask(Ask(inputs=(X * 0,))), Died)
        after = process.ask(Ask(inputs=(X,)))
    assert isinstance(before, Answer)
    assert isinstance(after, Answer)
    assert before.structure != after.structure, "the second element is the pid"


def test_output_is_kept_for_the_message_and_bounded() -> None:
    outcome = asked("print('a' * 100_000_000)\nprint('the last words', file=sys.stderr)\nos._exit(1)")
    assert isinstance(outcome, Died)
    assert outcome.detail.endswith("the last words")
    assert len(outcome.detail) < 3000


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("deed", "kind"),
    [
        ("raise ValueError('no')", "ValueError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class Odd(BaseException): pass\nraise Odd", "Odd"),
        ("class Mute(Exception):\n    def __str__(self): raise Mute\nraise Mute", "Mute"),
        (
            "class Long(Exception):\n    def __str__(self): return 'x' * 10**7\nraise Long",
            "Long",
        ),
        ("return kernel(x)", "RecursionError"),
        ("return x @ x", "RuntimeError"),
        ("out = []\nout.append(out)\nreturn out", "RecursionError"),
    ],
)
def test_what_is_raised_is_an_outcome(deed: str, kind: str) -> None:
    outcome = asked(deed)
    assert isinstance(outcome, Raised), outcome
    assert outcome.kind == kind
    assert len(outcome.message) < 3000


def test_an_error_says_where_it_is_from() -> None:
    outcome = asked("raise ValueError('no')")
    assert isinstance(outcome, Raised)
    assert outcome.message.startswith("no (amk_kernel_")


# --- the connection --------------------------------------------------------------------------------------------------

TO_EVERY_DESCRIPTOR = """
for descriptor in range(3, 1024):
    try:
        {deed}
    except OSError:
        pass
return x
"""


@pytest.mark.parametrize(
    "deed",
    [
        "os.write(descriptor, b'garbage' * 100)",
        "os.write(descriptor, bytes(64))",
        "os.write(descriptor, b'AMK\\x01' + (1 << 60).to_bytes(8, 'little'))",
        "os.write(descriptor, b'AMK\\x01' + (4).to_bytes(8, 'little') + b'\\xff' * 4)",
        "os.close(descriptor)",
        "socket.socket(fileno=os.dup(descriptor)).shutdown(socket.SHUT_RDWR)",
        "os.dup2(0, descriptor)",
    ],
)
def test_what_is_done_to_the_connection_is_a_death(deed: str) -> None:
    outcome = asked(TO_EVERY_DESCRIPTOR.format(deed=deed))
    assert isinstance(outcome, Died), outcome
    assert outcome.how == "protocol"


def test_a_connection_that_is_closed_by_a_process_that_lives_on_is_a_death() -> None:
    start = time.monotonic()
    outcome = asked("os.closerange(3, 1024)\nwhile True: pass")
    assert isinstance(outcome, Died)
    assert outcome.how == "protocol"
    assert time.monotonic() - start < 30


def test_writing_to_standard_streams_is_no_deed_at_all() -> None:
    answer = answered("os.write(1, b'x'); os.write(2, b'x'); os.close(0); os.close(1); os.close(2); return x * 2")
    assert torch.equal(answer.values[0], X * 2)


def test_a_frame_that_claims_tensors_out_of_bounds_is_a_death() -> None:
    forge = """
    from amk.contracts import wire
    from amk.contracts.harness import codec, calling
    honest = wire.pack
    def forged(value, storages, depth=0):
        node = honest(value, storages, depth)
        import msgspec
        return msgspec.structs.replace(node, offset=1 << 40)
    codec.pack = forged
    return x * 2
    """
    outcome = asked(forge)
    assert isinstance(outcome, Died), outcome
    assert outcome.how == "protocol"


# --- processes -------------------------------------------------------------------------------------------------------


def test_children_go_with_their_kernel() -> None:
    deed = """
    for _ in range(4):
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(1000)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
    return x * 2
    """
    with subject(deed) as process:
        assert isinstance(process.ask(Ask(inputs=(X,))), Answer)
        assert len(psutil.Process(launcher().pid).children(recursive=True)) >= 6


def test_a_fork_bomb_is_a_death() -> None:
    outcome = asked("while True:\n    os.fork()", Limits(timeout_s=10, memory_bytes=1 << 30, processes=32))
    assert isinstance(outcome, Died)


def test_a_child_that_talks_to_the_judge_too_does_not_confuse_it() -> None:
    outcome = asked("os.fork()\nreturn x * 2", times=3)
    assert isinstance(outcome, (Answer, Died))
    if isinstance(outcome, Answer):
        assert torch.equal(outcome.values[0], X * 2)


def test_a_subject_can_be_killed_from_outside_and_so_can_all_of_them() -> None:
    with subject("return x * 2") as process:
        assert isinstance(process.load(), Ready)
        parent = psutil.Process(launcher().pid)
        parent.kill()
        parent.wait(10)
        time.sleep(0.1)
        outcomes = [process.ask(Ask(inputs=(X,))) for _ in range(2)]
    assert isinstance(outcomes[0], Died)
    assert isinstance(outcomes[1], Answer)


# --- other judges ----------------------------------------------------------------------------------------------------


def test_a_judge_that_is_a_fork_has_kernels_of_its_own() -> None:
    with subject("return x * 2") as process:
        assert isinstance(process.ask(Ask(inputs=(X,))), Answer)
        child = os.fork()
        if child == 0:
            try:
                outcome = asked("return x * 3")
                os._exit(0 if isinstance(outcome, Answer) and torch.equal(outcome.values[0], X * 3) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert isinstance(process.ask(Ask(inputs=(X,))), Answer)


def test_a_fork_server_that_does_not_come_up_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amk.contracts.harness.launcher.BOOT", "raise ImportError('no torch here')")
    with pytest.raises(ForkServerError, match="no torch here"):
        Launcher()


JUDGE = """
import os, sys, time
import torch
from amk.contracts.harness.launcher import launcher
from amk.contracts.outcomes import Ask
from amk.contracts.sources import Text
from amk.contracts.subject import Process

process = Process(Text(code="import os\\ndef kernel(x): return os.getcwd()", attribute="kernel"))
print(launcher().pid, process.ask(Ask(inputs=(torch.ones(1),))).structure.strip("'"), flush=True)
time.sleep(1000)
"""


def test_nothing_outlives_a_judge_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", JUDGE], stdout=subprocess.PIPE, text=True) as judge:
        assert judge.stdout is not None
        pid, folder = judge.stdout.readline().split()
        server = psutil.Process(int(pid))
        processes = [server, *server.children()]
        assert len(processes) == 2
        assert Path(folder).is_dir()
        judge.kill()
    assert not psutil.wait_procs(processes, timeout=20)[1]
    assert not Path(folder).exists()
