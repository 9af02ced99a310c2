"""Every failure a user can meet, written once: what went wrong, where, why, and the mend.

An exception class *is* the documentation of a failure. ``code`` is stable across releases and is what tools should
match on; ``what`` and ``mend`` are templates filled from the keyword arguments of the constructor, so that a message
cannot be raised with a fact missing. ``exit_code`` is what the command line returns for it.

Codes by room: ``AMK-U`` usage, ``AMK-C`` checkpoint, ``AMK-F`` frontend (unsupported models), ``AMK-S`` schedule
files, ``AMK-V`` validator, ``AMK-B`` build, ``AMK-R`` runtime and devices, ``AMK-P`` parity.
"""

from __future__ import annotations

from typing import ClassVar

EXIT_PASS = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_UNSUPPORTED = 3
EXIT_BUILD = 4
EXIT_UNKNOWN = 5
EXIT_DEVICE = 6


class AmkError(Exception):
    """Base of every error raised on purpose. Catch this to catch them all."""

    code: ClassVar[str] = "AMK-X000"
    what: ClassVar[str] = "{detail}"
    mend: ClassVar[str] = ""
    exit_code: ClassVar[int] = EXIT_USAGE

    def __init__(self, **facts: object) -> None:
        self.facts = facts
        self.message = self.what.format(**facts)
        self.remedy = self.mend.format(**facts)
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.code} {self.message}"
        return f"{text}\n  mend: {self.remedy}" if self.remedy else text

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.facts))


def _rebuild(kind: type[AmkError], facts: dict[str, object]) -> AmkError:
    return kind(**facts)


# --- usage -----------------------------------------------------------------------------------------------------------


class UsageError(AmkError):
    """The caller's arguments are off."""

    code = "AMK-U100"


class UnknownArchError(UsageError):
    code = "AMK-U101"
    what = "unknown arch {arch!r}"
    mend = "use one of: {known}"


class UnknownTargetError(UsageError):
    code = "AMK-U102"
    what = "unknown target {target!r}"
    mend = "use one of: {known}"


class TargetArchMismatchError(UsageError):
    code = "AMK-U103"
    what = "target {target!r} is a {actual} chip, but arch={arch!r} was asked for"
    mend = "leave arch out, or pass arch={actual!r}"


class BadOptionError(UsageError):
    code = "AMK-U104"
    what = "{option}={value!r} is not possible: {why}"
    mend = "{fix}"


class EmptyPromptError(UsageError):
    code = "AMK-U105"
    what = "the prompt has no tokens"
    mend = "pass at least one token id, a non-empty string, or one chat message"


class ContextOverflowError(UsageError):
    code = "AMK-U106"
    what = (
        "a prompt of {prompt} tokens and {new} new ones need {need} positions, but this model was compiled for {limit}"
    )
    mend = (
        "shorten the prompt, lower max_new_tokens, or compile with max_context>={need} (the model allows {model_limit})"
    )


class TokenIdError(UsageError):
    code = "AMK-U107"
    what = "token id {token} at position {position} of the prompt is outside the vocabulary [0, {vocab})"
    mend = "encode the prompt with this model's own tokenizer"


class NoTokenizerError(UsageError):
    code = "AMK-U108"
    what = "{source} carries no tokenizer, so {wanted} cannot be used"
    mend = "pass token ids, or put tokenizer.json and tokenizer_config.json beside the weights"


class UnwritablePathError(UsageError):
    code = "AMK-U109"
    what = "cannot write {path}: {why}"
    mend = "{fix}"


class UnreadableInputError(UsageError):
    code = "AMK-U110"
    what = "cannot read {path}: {why}"
    mend = "{fix}"


class BadSettingError(UsageError):
    code = "AMK-U111"
    what = "{variable}={value!r} is not valid: {why}"
    mend = "unset {variable}, or set it to {fix}"


class NotYetError(UsageError):
    """A field or option that the format carries from the first day and that this version does not run."""

    code = "AMK-U112"
    what = "{feature} is not supported by this version of amk"
    mend = "{fix}"


# --- checkpoints -----------------------------------------------------------------------------------------------------


class CheckpointError(AmkError):
    """A checkpoint that cannot be read, or is not what it says."""

    code = "AMK-C200"


# --- frontend --------------------------------------------------------------------------------------------------------


class UnsupportedModelError(AmkError):
    """A model that amk would not decode exactly, and therefore does not compile."""

    code = "AMK-F300"
    exit_code = EXIT_UNSUPPORTED


# --- schedule files --------------------------------------------------------------------------------------------------


class ScheduleFileError(AmkError):
    """A schedule file that cannot be read as one."""

    code = "AMK-S400"


class MalformedScheduleError(ScheduleFileError):
    code = "AMK-S401"
    what = "{path} is not a schedule: {why}"
    mend = "write it with `amk compile MODEL -o FILE.json`, or compare it with the schema of version {version}"


class ScheduleVersionError(ScheduleFileError):
    code = "AMK-S402"
    what = "{path} has schedule version {found!r}; this amk reads version {version}"
    mend = "compile the model again with this version of amk"


# --- validator -------------------------------------------------------------------------------------------------------


class ScheduleRefutedError(AmkError):
    """The validator found a violation; ``verdict`` (in ``facts``) carries the witnesses."""

    code = "AMK-V300"
    what = "the schedule is unsafe and will not run:\n{witnesses}"
    mend = "correct the schedule; `amk validate --explain CODE` states the rule that is broken"
    exit_code = EXIT_FAILED


class ScheduleUnknownError(AmkError):
    code = "AMK-V399"
    what = "the schedule could not be proved safe and will not run: {reason}"
    mend = "join all workers at the end of each step, or lower the number of steps in a launch"
    exit_code = EXIT_UNKNOWN


# --- artefacts and the build -----------------------------------------------------------------------------------------


class ArtefactError(AmkError):
    code = "AMK-B500"
    what = "{path} is not a usable amk artefact: {why}"
    mend = "write it again with `amk compile MODEL -o {path}`"


class CertificateMismatchError(ArtefactError):
    code = "AMK-B501"
    what = "the certificate in {path} does not fit: {field} is {found}, expected {expected}"
    mend = "compile the model again; a certificate is bound to the schedule and the validator that produced it"


class BuildError(AmkError):
    code = "AMK-B510"
    exit_code = EXIT_BUILD


# --- devices and launches --------------------------------------------------------------------------------------------


class DeviceError(AmkError):
    code = "AMK-R600"
    exit_code = EXIT_DEVICE


class NoDeviceError(DeviceError):
    code = "AMK-R601"
    what = "arch={arch!r} needs a GPU to {action}: {why}"
    mend = 'run on a machine with such a GPU, or compile with arch="cpu"; compiling and validating need none'


# --- parity ----------------------------------------------------------------------------------------------------------


class TwinMismatchError(AmkError):
    """The shrunken twin of a model decoded differently from HuggingFace; the model is not handed out."""

    code = "AMK-P700"
    what = "a small random-weight twin of {model} does not decode as HuggingFace does: {detail}"
    mend = "this is a defect in amk, not in your model: please report it with this message and the model's config.json"
    exit_code = EXIT_UNSUPPORTED
