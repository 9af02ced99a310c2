"""Templates of the report: HTML, in which Jinja escapes all that is put in, and plain text, in which filters do."""

from __future__ import annotations

from functools import cache
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from amk.contracts.report.text import block, code, markdown, printable, shortened

SHORT: Final = 240


@cache
def _environment(*, escape: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("amk.contracts.report"),
        autoescape=escape,  # noqa: S701 - plain text has no HTML to escape; see the filters
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        md=markdown, code=code, block=block, printable=printable, short=lambda text: shortened(text, SHORT)
    )
    return environment


def html_template(name: str) -> Template:
    return _environment(escape=True).get_template(name)


def plain_template(name: str) -> Template:
    return _environment(escape=False).get_template(name)
