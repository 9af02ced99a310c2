"""amk: a compiler from HuggingFace Llama-family checkpoints to one persistent CUDA kernel.

>>> import amk
>>> model = amk.compile("SmolLM2-135M-Instruct", arch="cpu")  # doctest: +SKIP
>>> model.generate("What is the capital of France?").text  # doctest: +SKIP

The names below are imported when first used, so that ``import amk`` costs nothing and loads no framework.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from amk.contracts.verify import verify
    from amk.errors import AmkError
    from amk.pipeline import CompiledModel, compile, load  # noqa: A004 - the public name, as in `re.compile`
    from amk.runtime.generate import Generation
    from amk.validator import validate

__version__ = "0.1.0"

__all__ = ["AmkError", "CompiledModel", "Generation", "__version__", "compile", "load", "validate", "verify"]

_HOME: Final = {
    "AmkError": "amk.errors",
    "CompiledModel": "amk.pipeline",
    "Generation": "amk.runtime.generate",
    "compile": "amk.pipeline",
    "load": "amk.pipeline",
    "validate": "amk.validator",
    "verify": "amk.contracts.verify",
}

# A library stays silent until its user asks for the log; the command line does (AMK_LOG).
logging.getLogger("amk").addHandler(logging.NullHandler())


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
