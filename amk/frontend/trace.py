"""One decode step of a HuggingFace model as an exported aten graph, on the meta device: no weight is ever made.

The step takes one token id, the position it is at, and the key and value caches of each layer (transformers'
``StaticCache``, its tensors made inputs of the step); it returns the logits. Attention is ``eager`` so that the mask
and the softmax are in the graph to be read, and all arithmetic is float32, as in the oracle.
"""

from __future__ import annotations

import copy
import importlib.metadata
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from amk.errors import UnsupportedModelError
from amk.frontend.errors import TraceError, UnsupportedStructureError, UnsupportedVersionError

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

logger = logging.getLogger("amk.frontend.trace")

RANGES = {"torch": ("2.11", "2.15"), "transformers": ("5.17", "5.25")}
"""Releases whose exported graphs the importer reads: low <= version < high, as pyproject.toml asks for them."""

CACHE_LENGTH = 23
"""Positions of the traced cache. Any number would do; a prime is not mistaken for a size of the model."""


def check_versions() -> None:
    """Refuse a torch or transformers outside ``RANGES``, from their metadata alone.

    Raises
    ------
    UnsupportedVersionError
    """
    for package, (low, high) in RANGES.items():
        found = importlib.metadata.version(package)
        if not _release(low) <= _release(found) < _release(high):
            raise UnsupportedVersionError(package=package, found=found, low=low, high=high)


def _release(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def hf_config(config: dict[str, Any]) -> Any:
    """The transformers config object of a parsed config.json, which settles the dialects of the rotary fields.

    Raises
    ------
    TraceError
        transformers does not take it.
    """
    from transformers import AutoConfig

    # A copy, because transformers writes into the rotary fields it is given.
    fields = copy.deepcopy({key: value for key, value in config.items() if key not in ("torch_dtype", "dtype")})
    try:
        with quiet():
            return AutoConfig.for_model(**fields)
    except Exception as error:  # whatever a config class of transformers raises, the config is what is refused
        raise TraceError(model_type=config.get("model_type"), why=_first_line(error)) from error


def meta_model(config: dict[str, Any]) -> Any:
    """The causal language model of ``config`` on the meta device: structure and shapes, no numbers.

    Raises
    ------
    TraceError
        transformers cannot build it.
    UnsupportedStructureError
        The config names another class than the one transformers builds for its ``model_type``.
    """
    import torch
    import transformers

    factory: Any = transformers.AutoModelForCausalLM  # untyped
    settled = hf_config(config)
    try:
        with quiet(), torch.device("meta"), scalar_buffers():
            model = factory.from_config(settled, attn_implementation="eager", dtype=torch.float32)
    except Exception as error:  # as above: any failure to build the model is the model's
        raise TraceError(model_type=config.get("model_type"), why=_first_line(error)) from error
    built = type(model).__name__
    if built not in (config.get("architectures") or [built]):
        raise UnsupportedStructureError(
            expected=f"architecture {built}", found=f"architectures={config['architectures']}"
        )
    return model.eval()


def trace_decode_step(config: dict[str, Any]) -> ExportedProgram:
    """Export one decode step of the model that ``config`` describes.

    Parameters
    ----------
    config
        A parsed config.json.

    Returns
    -------
    torch.export.ExportedProgram
        Inputs ``ids`` [1, 1], ``position`` [], ``keys_i`` and ``values_i`` [1, kv_heads, CACHE_LENGTH, head_dim];
        output the logits [1, 1, vocab]. Parameters carry the state-dict names of the model class behind ``model.``.

    Raises
    ------
    UnsupportedVersionError, TraceError, UnsupportedStructureError
    """
    check_versions()
    import torch

    model = meta_model(config)
    try:
        with quiet(), torch.no_grad():
            return _export(model)
    except UnsupportedModelError:
        raise
    except Exception as error:  # torch.export raises whatever the model's own forward raises
        raise TraceError(model_type=config.get("model_type"), why=_first_line(error)) from error


def _export(model: Any) -> ExportedProgram:
    import torch

    cache = _static_cache(model.config)
    step = _step(model, cache)
    keys = [layer.keys for layer in cache.layers]
    values = [layer.values for layer in cache.layers]
    ids = torch.zeros(1, 1, dtype=torch.long, device="meta")
    position = torch.zeros((), dtype=torch.long, device="meta")
    return torch.export.export(step, (ids, position, keys, values), strict=False)


def _static_cache(settled: Any) -> Any:
    """A cache that keeps every position in every layer.

    transformers would let the layers with a window keep only as many rows; the window would then be in how rows are
    moved about and no longer in the mask, where it is read.
    """
    import torch
    from transformers.cache_utils import StaticCache, StaticLayer

    heads = settled.num_attention_heads
    kv_heads = getattr(settled, "num_key_value_heads", None) or heads
    head_dim = getattr(settled, "head_dim", None) or settled.hidden_size // heads
    with torch.device("meta"):
        cache = StaticCache(config=settled, max_cache_len=CACHE_LENGTH)
        cache.layers = [StaticLayer(max_cache_len=CACHE_LENGTH) for _ in cache.layers]
        cache.early_initialization(
            batch_size=1, num_heads=kv_heads, head_dim=head_dim, dtype=torch.float32, device=torch.device("meta")
        )
    return cache


def _step(model: Any, cache: Any) -> torch.nn.Module:
    """The function that is exported. A closure, because torch must be imported before a Module can be declared."""
    import inspect

    import torch

    # transformers renamed the argument within the supported range.
    accepted = inspect.signature(type(model).forward).parameters
    cache_argument = "cache" if "cache" in accepted else "past_key_values"

    class DecodeStep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, ids: torch.Tensor, position: torch.Tensor, keys: list[torch.Tensor], values: list[torch.Tensor]
        ) -> torch.Tensor:
            for layer, key, value in zip(cache.layers, keys, values, strict=True):
                layer.keys, layer.values = key, value
                # The layer counts its own length up in place, so each gets its own copy of the position.
                layer.cumulative_length = position.clone()
            with scalar_constants():
                output = self.model(input_ids=ids, use_cache=True, **{cache_argument: cache})
            logits: torch.Tensor = output.logits
            return logits

    return DecodeStep()


def scalar_constants() -> Any:
    """A mode in which ``torch.tensor(0.0)`` is a ``full``: a constant on the meta device would lose its number."""
    import torch

    return _scalars(lambda value, options: torch.full((), value, **options))


def scalar_buffers() -> Any:
    """A mode in which ``torch.tensor(8.0)`` is on the CPU: a model's one-number buffers keep their numbers."""
    import torch

    return _scalars(lambda value, options: torch.full((), value, **{**options, "device": "cpu"}))


def _scalars(make: Callable[[float, dict[str, Any]], torch.Tensor]) -> Any:
    import torch
    from torch.overrides import TorchFunctionMode

    class Scalars(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
        ) -> Any:
            kwargs = kwargs or {}
            if func is torch.tensor and args and isinstance(args[0], bool | int | float):
                return make(args[0], kwargs)
            return func(*args, **kwargs)

    return Scalars()


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings and progress bars of torch and transformers out of the user's terminal: amk says what it does."""
    from transformers.utils import logging

    hf_logging: Any = logging  # untyped
    level = hf_logging.get_verbosity()
    bars = hf_logging.is_progress_bar_enabled()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        hf_logging.set_verbosity(level)
        if bars:
            hf_logging.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
