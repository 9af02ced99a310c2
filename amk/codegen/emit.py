"""ValidatedSchedule -> CUDA source: types and constants from a template; the algorithms are the headers of csrc/."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from msgspec.structs import asdict

from amk.codegen import abi, supported
from amk.codegen.config import KernelConfig, kernel_config

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from amk.ir.record import Record
    from amk.validator import ValidatedSchedule

TEMPLATE: Final = "kernel.cu.j2"

KERNEL: Final = "amk_kernel"
"""Name of the kernel in a cubin, for steps of one row."""

KERNEL_OF_ROWS: Final = "amk_kernel_of_rows"
"""The same for steps of several, where a schedule has them."""

_HOST: Final = "host/"
"""Folder of csrc/ with the primitives and the scheduler of a build for this machine's processor."""

_TRACES: Final = {False: "prim/silent/trace.cuh", True: "prim/stamped/trace.cuh"}

_COPIES: Final = {
    "host": "prim/bulk/copy.cuh",
    "sm_80": "prim/async/copy.cuh",
    "sm_90": "prim/bulk/copy.cuh",
    "sm_120": "prim/bulk/copy.cuh",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaSource:
    """What NVRTC is given, or on the host g++.

    Attributes
    ----------
    text
        The rendered file.
    headers
        Every header, by the name that it is included by.
    arch
        ``sm_80``, ``sm_90``, ``sm_120`` or ``host``.
    config
        The constants in ``text``; a launch takes its threads and its shared memory from here.
    """

    text: str
    headers: dict[str, str]
    arch: str
    config: KernelConfig

    def digest(self) -> str:
        """sha256 of text, headers and architecture, in hex."""
        return _digest(self.arch, self.text, *(part for item in sorted(self.headers.items()) for part in item))


def emit(validated: ValidatedSchedule, *, stamped: bool = False) -> CudaSource:
    """The source of the kernel that runs ``validated``; ``stamped``, of one that also writes when its tasks run.

    Raises
    ------
    NotGeneratableError
        The schedule is proved, and outside what this version generates kernels for.
    """
    schedule = validated.schedule
    supported.check(schedule)
    arch = schedule.target.arch
    config = kernel_config(schedule)
    return CudaSource(text=render(config), headers=headers_for(arch, stamped=stamped), arch=arch, config=config)


def headers_for(arch: str, *, stamped: bool = False) -> dict[str, str]:
    """Every header of a source for ``arch``: those of csrc/, the generated one, and the primitives chosen for it."""
    headers = host_headers() if arch == "host" else csrc_headers()
    headers["abi.cuh"] = abi.header()
    headers["copy.cuh"] = headers[_COPIES[arch]]
    headers["trace.cuh"] = headers[_TRACES[stamped]]
    return headers


def render(config: KernelConfig) -> str:
    """The rendered file: an instantiation of the kernel for steps of one row, and one for several if there are such."""
    kernels = [(name, "false" if rows else "true") for rows, name in kernel_names(config).items()]
    return environment().get_template(TEMPLATE).render(config=config, kernels=kernels)


def kernel_names(config: KernelConfig) -> dict[bool, str]:
    """Names of a cubin's kernels, by whether they are for steps of several rows."""
    return {False: KERNEL, True: KERNEL_OF_ROWS} if config.tokens_max > 1 else {False: KERNEL}


def csrc_headers() -> dict[str, str]:
    """Every header of csrc/ by its path there, without the host's."""
    return {path: text for path, text in _csrc().items() if not path.startswith(_HOST)}


def host_headers() -> dict[str, str]:
    """The same headers for a build on this machine: the primitives are the host's, and its sources come with them."""
    files = _csrc()
    prim = {path.removeprefix(_HOST): text for path, text in files.items() if path.startswith(f"{_HOST}prim/")}
    return {path: text for path, text in files.items() if "prim/" not in path} | prim


def vm_digest(arch: str) -> str:
    """sha256, in hex, of all that runs on ``arch`` whatever the schedule: csrc/, the task encoding and the template."""
    template = (resources.files("amk.codegen") / "templates" / TEMPLATE).read_text(encoding="utf-8")
    headers = host_headers() if arch == "host" else csrc_headers()
    parts = (part for item in sorted(headers.items()) for part in item)
    return _digest(abi.header(), template, *parts)


@cache
def environment() -> Environment:
    """The templates: a variable that is not passed is an error."""
    # Source code, not markup: escaping would corrupt it, and only numbers and enums are ever passed in.
    found = Environment(  # noqa: S701
        loader=PackageLoader("amk.codegen"), undefined=StrictUndefined, keep_trailing_newline=True, trim_blocks=True
    )
    found.filters["constants"] = constants
    return found


def constants(record: Record, integer: str) -> list[str]:
    """The numbers of a record as constants of a C++ struct, ``integer`` being the type of those that are no flags."""
    lines = []
    for name, value in asdict(record).items():
        words = "".join(word.capitalize() for word in name.split("_"))
        if isinstance(value, bool):
            lines.append(f"static constexpr bool k{words} = {str(value).lower()};")
        elif isinstance(value, int):
            lines.append(f"static constexpr {integer} k{words} = {value};")
    return lines


def _csrc() -> dict[str, str]:
    return _walk(resources.files("amk") / "csrc", "")


def _walk(folder: Traversable, prefix: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            found |= _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith((".cuh", ".h", ".cc")):
            found[prefix + entry.name] = entry.read_text(encoding="utf-8")
    return found


def _digest(*parts: str) -> str:
    """Of the parts and of where one ends; no source text holds a NUL."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
