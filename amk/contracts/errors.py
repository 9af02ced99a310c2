"""Failures of contract files and prompt files."""

from __future__ import annotations

from amk.errors import UsageError


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
