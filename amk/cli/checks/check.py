"""One answer of ``amk doctor``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, what was found, and the mend where something is amiss.

    Attributes
    ----------
    status
        ``ok``; ``warn``: something amk can do will not work here; ``fail``: nothing will.
    """

    name: str
    status: Literal["ok", "warn", "fail"]
    detail: str
    mend: str = ""
