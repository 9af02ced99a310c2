"""Versions of the interpreter, of the packages and of the host compiler.

The supported ranges are those of ``pyproject.toml``, read back from the installed metadata; no framework is imported to
learn its version.
"""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import amk
from amk.cli.checks.check import Check
from amk.codegen.errors import NoHostCompilerError
from amk.codegen.host import compiler

_SHOWN: Final = ("torch", "transformers", "safetensors", "huggingface-hub")
_REINSTALL: Final = "install amk: `make setup` in a checkout, or `pip install` of its wheel"


def check_python() -> Check:
    """The interpreter against ``requires-python``."""
    found = platform.python_version()
    try:
        wanted = metadata.metadata("amk")["Requires-Python"]
    except metadata.PackageNotFoundError:
        wanted = ""
    detail = f"{found} ({sys.executable})"
    if SpecifierSet(wanted).contains(found, prereleases=True):
        return Check("python", "ok", detail)
    return Check("python", "fail", f"{detail}, outside {wanted}", f"use a Python {wanted}")


def check_requirements() -> list[Check]:
    """amk itself, and the packages whose versions decide what it can import."""
    place = Path(amk.__file__).parent
    try:
        lines = metadata.requires("amk") or []
        installed = metadata.version("amk")
    except metadata.PackageNotFoundError:
        return [Check("amk", "fail", f"{amk.__version__} ({place}) is not installed", _REINSTALL)]
    if installed != amk.__version__:
        stale = f"{amk.__version__} ({place}), but its metadata says {installed}"
        return [Check("amk", "fail", stale, _REINSTALL)]
    requirements = [Requirement(line) for line in lines]
    wanted = {canonicalize_name(each.name): each for each in requirements if each.marker is None}
    return [
        Check("amk", "ok", f"{installed} ({place})"),
        *(_check_package(wanted[canonicalize_name(name)]) for name in _SHOWN),
    ]


def _check_package(wanted: Requirement) -> Check:
    mend = f"pip install '{wanted.name}{wanted.specifier}'"
    try:
        found = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return Check(wanted.name, "fail", f"not installed; {wanted.specifier} is needed", mend)
    if wanted.specifier.contains(found, prereleases=True):
        return Check(wanted.name, "ok", found)
    return Check(wanted.name, "fail", f"{found} is outside {wanted.specifier}", mend)


def check_compiler() -> Check:
    """The C++ compiler that builds the kernel's source for ``arch="host"``."""
    try:
        found = compiler()
    except NoHostCompilerError as error:
        return Check("c++", "warn", error.message, error.remedy)
    return Check("c++", "ok", f"{found.version} ({found.path})")
