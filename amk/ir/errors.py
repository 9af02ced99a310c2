"""Failures of the passes."""

from __future__ import annotations

from amk.errors import UnsupportedModelError


class NotFusableError(UnsupportedModelError):
    code = "AMK-F390"
    what = "the op {op} (value {value!r}) does not fit a hop this version lowers: {why}"
    mend = "this model structure is not supported yet; the families that are: see `amk compile --help`"
