"""The ``amk`` command: options shared by all subcommands, and one line for each."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.logging import RichHandler

import amk
from amk.cli import (
    audit,
    bench,
    cache,
    compile,
    doctor,
    fuzz,
    gates,
    generate,
    inspect,
    parity,
    profile,
    quality,
    supported,
    validate,
)
from amk.cli.failures import exit_code_of
from amk.cli.output import ERR, OUT
from amk.settings import settings

app = typer.Typer(
    name="amk",
    help="Compile a HuggingFace Llama-family checkpoint, prove its schedule safe, and run it.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("compile")(compile.compile_model)
app.command()(validate.validate)
app.command()(generate.generate)
app.command()(parity.parity)
app.command()(quality.quality)
app.command()(audit.audit)
app.command()(fuzz.fuzz)
app.command()(gates.gates)
app.command()(inspect.inspect)
app.command()(profile.profile)
app.command()(bench.bench)
app.command()(supported.supported)
app.command()(doctor.doctor)
app.add_typer(cache.app, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        OUT.print(f"amk {amk.__version__}")
        raise typer.Exit


@app.callback()
def _common(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    logger = logging.getLogger("amk")
    logger.setLevel(settings().log_level.upper())
    if not any(isinstance(handler, RichHandler) for handler in logger.handlers):
        logger.addHandler(RichHandler(console=ERR, show_path=False))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; never raises.

    Parameters
    ----------
    argv
        The words after ``amk``; None for the process's own.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    options = words[: words.index("--")] if "--" in words else words
    command = typer.main.get_command(app)
    return exit_code_of(
        lambda: command.main(args=words, prog_name="amk", standalone_mode=False),
        as_json="--json" in options,
    )


if __name__ == "__main__":
    sys.exit(main())
