"""Failures of contract files and prompt files."""

from __future__ import annotations

from amk.errors import AmkError, UsageError


class ContractFileError(UsageError):
    code = "AMK-P710"
    what = "{path}:{line}: {why}"
    mend = "see the fields of a contract in amk/contracts/spec.py"


class PromptFileError(UsageError):
    code = "AMK-P711"
    what = "{path}: {why}"
    mend = "write a JSON list whose entries are texts, lists of chat messages, or lists of token ids"


class OutOfScopeError(UsageError):
    code = "AMK-P712"
    what = "the contract {contract} does not cover {field}={value!r}; it covers {covered}"
    mend = "compile within the contract's scope, or pass a contract of your own with --contract"


class WireError(UsageError):
    code = "AMK-P724"
    what = "{what} cannot be passed between processes"
    mend = (
        "give the kernel strided tensors, numbers, texts, None, and lists, tuples and dicts of them; "
        "what else it needs belongs into the callable itself"
    )


class ForkServerError(AmkError):
    code = "AMK-P721"
    what = "the process that starts kernels did not come up: {why}"
    mend = "check that this interpreter can import torch, and that the machine has memory and processes left"


class UnpicklableError(UsageError):
    code = "AMK-P722"
    what = "{role} cannot be sent to a process of its own: {why}"
    mend = (
        "define it in a module that can be imported, at its top level, and let it make what cannot be copied (locks, "
        "open files, extension modules) when it is first called"
    )


class GateDefectError(AmkError):
    code = "AMK-P723"
    what = "gate {gate} has a defect and has judged nothing: {why}"
    mend = "this is a defect in amk, not in your kernel: please report it with this message and the kernel"


class UnknownFieldRoleError(UsageError):
    code = "AMK-P740"
    what = "--field {given!r} names no part of a record"
    mend = "write ROLE=FIELD, with one of these roles: {roles}"


class MissingFieldError(UsageError):
    code = "AMK-P741"
    what = "{path}: no record has {wanted}; fields found: {found}"
    mend = "say which field holds it, with --field {role}=FIELD"


class NoKernelsError(UsageError):
    code = "AMK-P742"
    what = "{path} holds no kernel: {why}"
    mend = (
        "pass a .py file with Model and ModelNew, a folder of them, or records as .json or .jsonl; see docs/verifier.md"
    )


class JournalOptionsError(UsageError):
    code = "AMK-P743"
    what = "{path} is the journal of an audit under other options: {differences}"
    mend = "give the options of then, or --fresh to judge all kernels anew, or another folder for --out"


class JournalUnreadableError(UsageError):
    code = "AMK-P744"
    what = "{path} is not the journal of an audit: {why}"
    mend = "give another folder for --out, or --fresh to write over it"


class AuditRunningError(UsageError):
    code = "AMK-P745"
    what = "another audit is writing to {path}"
    mend = "wait for it to end, or give another folder for --out"


class NoRayError(UsageError):
    code = "AMK-P746"
    what = "--engine ray needs Ray, which cannot be imported: {why}"
    mend = "pip install 'amk[ray]', or use --engine local"
