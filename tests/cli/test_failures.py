"""Every way in which a command can end: one message, one exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
import typer

from amk.cli.app import main
from amk.cli.failures import EXIT_CLOSED_PIPE, EXIT_DEFECT, EXIT_INTERRUPTED, exit_code_of
from amk.errors import (
    AmkError,
    BuildError,
    DeviceError,
    ScheduleRefutedError,
    ScheduleUnknownError,
    UnknownArchError,
    UnsupportedModelError,
)
from tests.conftest import ROOT, Run

ARCH = UnknownArchError(arch="sm_1", known="cpu, [sm_90]")


def raising(error: BaseException) -> Callable[[], object]:
    def command() -> object:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ScheduleRefutedError(witnesses="race"), 1),
        (ARCH, 2),
        (UnsupportedModelError(detail="mixture of experts"), 3),
        (BuildError(detail="spills"), 4),
        (ScheduleUnknownError(reason="too many steps"), 5),
        (DeviceError(detail="launch failed"), 6),
        (KeyboardInterrupt(), EXIT_INTERRUPTED),
        (typer.Abort(), EXIT_INTERRUPTED),
    ],
)
def test_each_failure_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code_of(raising(error), as_json=False) == code


def test_a_command_may_return_its_exit_code() -> None:
    assert exit_code_of(lambda: 5, as_json=False) == 5
    assert exit_code_of(lambda: None, as_json=False) == 0


def test_an_error_is_text_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(ARCH), as_json=False)
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error AMK-U101 unknown arch 'sm_1'\n  mend: use one of: cpu, [sm_90]\n"


def test_an_error_is_one_object_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    exit_code_of(raising(ARCH), as_json=True)
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "error": {"code": "AMK-U101", "message": "unknown arch 'sm_1'", "mend": "use one of: cpu, [sm_90]"}
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_a_defect_keeps_its_traceback(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    assert exit_code_of(raising(ZeroDivisionError("by nothing")), as_json=as_json) == EXIT_DEFECT
    out, err = capsys.readouterr()
    assert "Traceback" in err
    assert "ZeroDivisionError: by nothing" in err
    text = json.loads(out)["error"]["mend"] if as_json else err
    assert "please report it" in text
    assert AmkError.code in (out if as_json else err)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["doctr"], "No such command 'doctr'"),
        (["doctor", "--jsn"], "No such option: --jsn"),
        (["cache", "clear", "surplus"], "surplus"),
    ],
)
def test_usage_errors(run_amk: Run, words: list[str], hint: str) -> None:
    ran = run_amk(*words)
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert hint in ran.stderr
    assert "--help`" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_usage_errors_in_json(run_amk: Run) -> None:
    ran = run_amk("doctr", "--json")
    assert ran.returncode == 2
    assert json.loads(ran.stdout)["error"]["code"] == "AMK-U100"
    assert ran.stderr == ""


@pytest.mark.parametrize("words", [[], ["cache"]])
def test_no_subcommand_shows_the_help(run_amk: Run, words: list[str]) -> None:
    ran = run_amk(*words)
    assert ran.returncode == 2
    assert "Usage: amk" in ran.stdout
    assert ran.stderr == ""


def test_version(run_amk: Run) -> None:
    ran = run_amk("--version")
    assert (ran.returncode, ran.stdout) == (0, "amk 0.1.0\n")


def test_a_bad_setting_is_an_error_of_every_command(run_amk: Run) -> None:
    ran = run_amk("cache", "info", AMK_LOG="loud")
    assert ran.returncode == 2
    assert "AMK-U111 AMK_LOG='loud'" in ran.stderr


@pytest.mark.parametrize("words", ["--help", "doctor --json", "cache info"])
def test_a_closed_pipe_is_silent(words: str) -> None:
    # The reader is gone before the first line is written.
    script = f"{sys.executable} -m amk.cli.app {words} | true; exit ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert ran.returncode == EXIT_CLOSED_PIPE
    assert ran.stderr == ""


def test_an_interrupt_inside_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amk.cli.doctor.all_checks", raising(KeyboardInterrupt()))
    assert main(["doctor"]) == EXIT_INTERRUPTED
