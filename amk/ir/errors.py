"""Failures of graphs and passes."""

from __future__ import annotations

from amk.errors import CheckpointError, UnsupportedModelError


class NotFusableError(UnsupportedModelError):
    code = "AMK-F390"
    what = "the op {op} (value {value!r}) does not fit a hop this version lowers: {why}"
    mend = "this model structure is not supported yet; the families that are: see `amk compile --help`"


class MalformedGraphError(UnsupportedModelError):
    code = "AMK-F391"
    what = "{op} does not fit its graph: {why}"
    mend = "this is a defect of whatever made the graph; graphs of checkpoints are made by amk.frontend.importer"


class NonFiniteWeightError(CheckpointError):
    code = "AMK-C225"
    what = "row {row} of {tensor} has a weight that is NaN or infinite: no scale makes integers of it"
    mend = 'mend the checkpoint, or compile it with dtype="bf16", which multiplies what is there'
