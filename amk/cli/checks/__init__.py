"""What ``amk doctor`` looks at. Each check answers alone, so that one broken part hides no other."""

from __future__ import annotations

from amk.cli.checks.check import Check
from amk.cli.checks.devices import check_devices, check_nvrtc
from amk.cli.checks.folders import check_checkpoints, check_home
from amk.cli.checks.versions import check_compiler, check_python, check_requirements

__all__ = ["Check", "all_checks"]


def all_checks() -> list[Check]:
    """Every check, in the order in which a person would mend them."""
    return [
        check_python(),
        *check_requirements(),
        check_nvrtc(),
        *check_devices(),
        check_compiler(),
        check_home(),
        check_checkpoints(),
    ]
