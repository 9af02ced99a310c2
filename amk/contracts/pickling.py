"""Callables as bytes, so that a process which does not have them can load them."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final

import cloudpickle

from amk.contracts.errors import UnpicklableError
from amk.contracts.sources import Factory, Named, Pickled, Source, Text

_INSTALLED: Final = tuple(
    Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_AMK: Final = Path(__file__).resolve().parent.parent


def pickled(thing: Callable[..., object] | Source, role: str) -> Source:
    """A source that gives ``thing`` again, wherever it is loaded.

    What the caller's own modules define goes along by value, as they may not be importable elsewhere (a script, a
    notebook, a test); should that fail, by name.

    Raises
    ------
    UnpicklableError
        Neither can be done; ``role`` says whose fault it is.
    """
    if isinstance(thing, (Pickled, Named, Text, Factory)):
        return thing
    label = getattr(thing, "__qualname__", None) or type(thing).__name__
    module = sys.modules.get(getattr(thing, "__module__", "") or "")
    by_value = module is not None and module.__name__ != "__main__" and _is_the_callers(module)
    try:
        return Pickled(data=_by_value(thing, module) if by_value and module else cloudpickle.dumps(thing), label=label)
    except Exception as error:
        if not by_value:
            raise UnpicklableError(role=role, why=f"{type(error).__name__}: {error}") from error
    try:
        return Pickled(data=cloudpickle.dumps(thing), label=label)
    except Exception as error:
        raise UnpicklableError(role=role, why=f"{type(error).__name__}: {error}") from error


def _by_value(thing: object, module: ModuleType) -> bytes:
    cloudpickle.register_pickle_by_value(module)
    try:
        return bytes(cloudpickle.dumps(thing))
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def _is_the_callers(module: ModuleType) -> bool:
    """Whether a module is neither installed nor amk's."""
    file = getattr(module, "__file__", None)
    if file is None:
        return False
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in (*_INSTALLED, _AMK))
