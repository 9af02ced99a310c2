"""How a command ends: each failure becomes one readable message and one exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Final

import typer
from rich.text import Text

from amk.cli.output import ERR, print_json
from amk.errors import EXIT_USAGE, AmkError, UsageError

EXIT_DEFECT: Final = 70  # EX_SOFTWARE of sysexits.h: a crash must not read as "refuted" (1)
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as shells report it
EXIT_CLOSED_PIPE: Final = 141  # 128 + SIGPIPE


def exit_code_of(command: Callable[[], object], *, as_json: bool) -> int:
    """Run ``command`` and say how it went.

    Parameters
    ----------
    command
        Runs a subcommand; an int that it returns is the exit code.
    as_json
        Write an error as one JSON object on standard output, instead of text on standard error.

    Returns
    -------
    int
        The exit code: that of the table in the README, or one of the three above.
    """
    try:
        code = command()
        sys.stdout.flush()
    except AmkError as error:
        _report(error.code, error.message, error.remedy, as_json=as_json)
        return error.exit_code
    except typer.TyperException as error:
        if message := error.format_message():  # empty when the help was shown for want of a subcommand
            _report(UsageError.code, message, _help_for(error), as_json=as_json)
        return EXIT_USAGE
    except (KeyboardInterrupt, typer.Abort):
        ERR.print("interrupted")
        return EXIT_INTERRUPTED
    except (BrokenPipeError, SystemExit):
        # typer and rich both turn a closed pipe into SystemExit(1); nothing else below here exits the process.
        _abandon_stdout()
        return EXIT_CLOSED_PIPE
    except Exception as error:  # noqa: BLE001 - the last net: whatever arrives here is a defect, and is shown whole
        _report_defect(error, as_json=as_json)
        return EXIT_DEFECT
    return code if isinstance(code, int) else 0


def _report(code: str, message: str, mend: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"error": {"code": code, "message": message, "mend": mend}})
        return
    ERR.print(Text.assemble(("error", "bold red"), f" {code} {message}"))
    if mend:
        ERR.print(Text(f"  mend: {mend}"))


def _report_defect(error: Exception, *, as_json: bool) -> None:
    traceback.print_exception(error)
    mend = "this is a defect in amk: please report it with the lines above, the command and `amk doctor --json`"
    _report(AmkError.code, f"{type(error).__name__}: {error}", mend, as_json=as_json)


def _help_for(error: typer.TyperException) -> str:
    context = getattr(error, "ctx", None)  # on usage errors, the command that could not be parsed
    return f"see `{context.command_path if context else 'amk'} --help`"


def _abandon_stdout() -> None:
    """Point standard output at nothing: the interpreter flushes it once more on the way out."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
