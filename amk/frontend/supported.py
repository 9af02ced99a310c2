"""The families that tests have decoded, as the table that they wrote: nothing in it is typed by hand."""

from __future__ import annotations

import json
from typing import Any, Final

from amk.frontend.aliases import models_folder

ARCHS: Final = ("cpu", "host", "sm_80", "sm_90", "sm_120")

FILE: Final = "supported.json"
"""Under ``models/``; ``python -m tests.families.prove --write`` makes it."""


def load_supported() -> list[dict[str, Any]]:
    """A record a family: ``family``, ``model_types``, ``variants``, and by arch ``run`` or ``checked`` in ``archs``.

    ``run`` is a variant-by-variant comparison with HuggingFace float32 on that arch (on ``host`` with the reference
    machine, task by task); ``checked`` says that cubins are built for it and the same source ran on the host.
    """
    found: list[dict[str, Any]] = json.loads((models_folder() / FILE).read_text(encoding="utf-8"))["families"]
    return found
