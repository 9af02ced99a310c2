"""The page of ``amk inspect --html``: one file that loads nothing, made of ``assets/`` and a schedule's data.

The scripts are joined in the order of ``SCRIPTS`` inside one function, so that each sees the names of those before it.
Everything that comes from the schedule travels as JSON in an inert element; the scripts put it on the page as text,
never as markup.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Final

from amk.cli.inspect_page.data import page_data
from amk.ir.schedule import Schedule
from amk.ir.timeline import Timeline

SCRIPTS: Final = ("model.js", "view.js", "paint.js", "details.js", "main.js")

# JSON that cannot end the element it stands in, whatever its strings hold; these are the same strings to a JSON reader.
_IN_HTML: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})


def render_page(schedule: Schedule, timeline: Timeline) -> str:
    """The whole page as text."""
    # Imported here: the command line starts without a template engine.
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    data = json.dumps(page_data(schedule, timeline), separators=(",", ":")).translate(_IN_HTML)
    return environment.from_string(_asset("page.html")).render(
        title=f"amk inspect {schedule.digest()[:12]}",
        style=Markup(_asset("page.css")),  # noqa: S704 - our own file
        script=Markup("\n".join(map(_asset, SCRIPTS))),  # noqa: S704 - our own files
        data=Markup(data),  # noqa: S704 - escaped above
    )


def _asset(name: str) -> str:
    return files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
