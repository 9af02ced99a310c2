"""``amk cache``: what amk keeps on disk, and clearing it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal
from rich.table import Table

from amk.cli.disk import children, remove, size_bytes
from amk.cli.output import OUT, print_json
from amk.errors import BadOptionError
from amk.settings import settings

app = typer.Typer(help="Show or clear what amk keeps on disk.", no_args_is_help=True)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One folder or file directly under a kept folder."""

    kind: str
    path: str
    bytes: int


def _entries(folder: Path, prefix: str = "") -> list[Entry]:
    return [Entry(kind=prefix + path.name, path=str(path), bytes=size_bytes(path)) for path in children(folder)]


@app.command()
def info(as_json: JsonFlag = False) -> None:
    """Show sizes: build cache by kind, and prepared checkpoints by name."""
    kept = settings()
    cache, checkpoints = _entries(kept.cache), _entries(kept.checkpoints)
    if as_json:
        print_json(
            {
                "home": str(kept.home),
                "cache": [asdict(entry) for entry in cache],
                "checkpoints": [asdict(entry) for entry in checkpoints],
            }
        )
        return
    table = Table("what", "name", box=None, pad_edge=False)
    table.add_column("size", justify="right")
    for what, entries in (("cache", cache), ("checkpoint", checkpoints)):
        for entry in entries:
            table.add_row(what, entry.kind, decimal(entry.bytes))
    table.add_row("total", "", decimal(sum(entry.bytes for entry in (*cache, *checkpoints))))
    OUT.print(kept.home)
    OUT.print(table)


@app.command()
def clear(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    checkpoints: Annotated[bool, typer.Option("--checkpoints", help="Remove prepared checkpoints too.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Remove the build cache. It is rebuilt when needed; prepared checkpoints stay unless --checkpoints is given."""
    kept = settings()
    doomed = _entries(kept.cache) + (_entries(kept.checkpoints) if checkpoints else [])
    total = sum(entry.bytes for entry in doomed)
    if doomed and not yes and not _confirmed(len(doomed), total, kept.home, may_ask=not as_json):
        OUT.print("nothing was removed")
        return
    for entry in doomed:
        remove(Path(entry.path))
    if as_json:
        print_json({"removed": [asdict(entry) for entry in doomed], "bytes": total})
    else:
        OUT.print(f"removed {len(doomed)} entries, {decimal(total)}, from {kept.home}")


def _confirmed(count: int, total: int, home: Path, *, may_ask: bool) -> bool:
    if not may_ask or not sys.stdin.isatty():
        raise BadOptionError(
            option="clear",
            value="(without --yes)",
            why="there is no terminal to ask on",
            fix="pass --yes to remove without asking",
        )
    return typer.confirm(f"remove {count} entries, {decimal(total)}, from {home}?")
