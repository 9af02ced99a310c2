"""``amk validate``: prove a schedule safe, or say what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from rich.text import Text

from amk.cli.options import Json, open_schedule
from amk.cli.output import OUT, print_json
from amk.errors import EXIT_FAILED, EXIT_PASS, EXIT_UNKNOWN, BadOptionError
from amk.settings import write_atomically

if TYPE_CHECKING:
    from amk.validator import Certificate, Verdict

# By the outcome's value: the validator itself is imported when a schedule is checked, not when the command starts.
_EXIT: Final = {"proved": EXIT_PASS, "refuted": EXIT_FAILED, "unknown": EXIT_UNKNOWN}
_STYLE: Final = {"proved": "bold green", "refuted": "bold red", "unknown": "bold yellow"}


def validate(
    path: Annotated[
        Path | None, typer.Argument(metavar="SCHEDULE", help="A schedule.json or a compiled .amk file.")
    ] = None,
    *,
    certificate: Annotated[Path | None, typer.Option(help="Write the certificate of a proof here.")] = None,
    rule: Annotated[str | None, typer.Option("--explain", help="State a rule, by its code, and stop.")] = None,
    as_json: Json = False,
) -> int:
    """Prove a schedule free of races, deadlocks and wrong reads, or name what is wrong.

    Exit code: 0 proved, 1 refuted, 2 unreadable, 5 unknown.
    """
    if rule is not None:
        _explain(rule, as_json=as_json)
        return EXIT_PASS
    if path is None:
        raise BadOptionError(
            option="SCHEDULE.json",
            value="",
            why="there is nothing to check",
            fix="pass a schedule file, or --explain CODE",
        )
    from amk import validator

    schedule = open_schedule(path)
    verdict = validator.validate(schedule)
    proof = validator.certificate_of(schedule, verdict) if verdict.proved else None
    if certificate is not None and proof is not None:
        write_atomically(certificate, proof.to_json() + b"\n", fix="choose another path for --certificate")
    if as_json:
        print_json(_document(verdict, proof))
    else:
        _print(verdict, proof)
    return _EXIT[verdict.outcome.value]


def _explain(code: str, *, as_json: bool) -> None:
    from amk.validator import explain

    text = explain(code)
    if as_json:
        print_json({"code": text.split(maxsplit=1)[0], "statement": text})
    else:
        OUT.print(text)


def _document(verdict: Verdict, proof: Certificate | None) -> dict[str, object]:
    document: dict[str, object] = msgspec.to_builtins(verdict)
    document["certificate"] = msgspec.to_builtins(proof) if proof else None
    return document


def _print(verdict: Verdict, proof: Certificate | None) -> None:
    for finding in verdict.findings:
        OUT.print(Text.assemble((finding.code, "bold"), f" {finding.title}: {finding.what}"))
        if finding.mend:
            OUT.print(Text(f"  mend: {finding.mend}"))
    word, rest = verdict.one_line().split(maxsplit=1)
    OUT.print(Text.assemble((word, _STYLE[verdict.outcome.value]), f" {rest}"))
    if proof:
        OUT.print(Text(proof.one_line()))
