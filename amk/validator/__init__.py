"""The frozen checker: a Schedule goes in, PROVED, REFUTED with witnesses, or UNKNOWN comes out.

It reads a schedule and nothing else, and knows nothing of how one is made. See ``docs/validator.md`` for what a proof
covers and what it does not.
"""

from __future__ import annotations

from amk.validator.catalogue import RULES, explain
from amk.validator.certificate import (
    Certificate,
    ValidatedSchedule,
    certificate_of,
    certify,
    check_certificate,
)
from amk.validator.check import validate, validate_model
from amk.validator.digest import validator_digest
from amk.validator.findings import Finding, Outcome, Rule, Verdict
from amk.validator.model import AccessModel, Node

__all__ = [
    "RULES",
    "AccessModel",
    "Certificate",
    "Finding",
    "Node",
    "Outcome",
    "Rule",
    "ValidatedSchedule",
    "Verdict",
    "certificate_of",
    "certify",
    "check_certificate",
    "explain",
    "validate",
    "validate_model",
    "validator_digest",
]
