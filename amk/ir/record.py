"""The base of every record that is written to a file: typed, immutable, and strict about what it reads."""

from __future__ import annotations

from typing import dataclass_transform

import msgspec


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A frozen dataclass that also reads and writes itself as strict JSON.

    Fields at their default are left out, so a default is part of the format: to change one is to change the version.

    msgspec is used rather than ``dataclasses`` because the formats need tagged unions, unknown fields refused, and
    schedules of tens of thousands of tasks read in a fraction of a second.
    """
