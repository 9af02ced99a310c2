"""The base of every record that is written to a file: typed, immutable, and strict about what it reads."""

from __future__ import annotations

import msgspec


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A frozen dataclass that also reads and writes itself as strict JSON.

    msgspec is used rather than ``dataclasses`` because the formats need tagged unions, unknown fields refused, and
    schedules of tens of thousands of tasks read in a fraction of a second.
    """
