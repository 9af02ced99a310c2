"""From a source to a callable, in the process where it will run."""

from __future__ import annotations

import copy
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import pickle
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from amk.contracts.harness.protocol import Load
from amk.contracts.harness.state import State
from amk.contracts.outcomes import Value
from amk.contracts.sources import Factory, Pickled, Source, Text
from amk.contracts.wire import DTYPES, TensorNode, unpack

TEXT_MODULE: Final = "amk_kernel"

# Not torch.manual_seed: that also leaves a note for each kind of device that is not there, every time.
_seed_torch: Callable[[int], object] = torch.default_generator.manual_seed
_seed_devices: Callable[[int], object] = torch.cuda.manual_seed_all
_has_devices: Callable[[], bool] = torch.cuda.is_initialized
_seed_random, _seed_numpy = random.seed, np.random.seed


def seed_all(seed: int) -> None:
    """Seed every generator that a kernel would ask without having made it."""
    _seed_torch(seed)
    if _has_devices():
        _seed_devices(seed)
    _seed_random(seed)
    _seed_numpy(seed % 2**32)


@dataclass(slots=True, kw_only=True)
class Kernel:
    """What was loaded.

    Attributes
    ----------
    module
        Where the state is; None for a callable that has none.
    init
        What its class was built with; None if it was not built.
    maker
        Of inputs.
    rebuild
        Makes it once more, as it was in the beginning.
    """

    call: Callable[..., object]
    module: nn.Module | None
    init: tuple[Value, ...] | None
    maker: Callable[..., object] | None
    rebuild: Callable[[], object]
    state: State
    _wide: dict[torch.dtype, tuple[Callable[..., object], State]] = field(default_factory=dict)

    def at(self, dtype: torch.dtype | None) -> tuple[Callable[..., object], State]:
        """The kernel with its floating state in ``dtype``: a copy, kept, of a module; anything else is itself."""
        if dtype is None or self.module is None:
            return self.call, self.state
        if dtype not in self._wide:
            twin = self._twin().to(dtype=dtype)
            _cast_plain(twin, dtype)
            self._wide[dtype] = (_bound(self.call, twin), State(twin))
        return self._wide[dtype]

    def _twin(self) -> nn.Module:
        try:
            return copy.deepcopy(self.module)  # type: ignore[return-value]
        except Exception:
            made = self.rebuild()
            twin = _module_of(made)
            if twin is None:
                raise
            State(twin).adopt({name: tensor.detach() for name, tensor in self.state.tensors.items()})
            return twin


def load(request: Load, flats: list[Tensor], leaf: Callable[[TensorNode], Tensor]) -> Kernel:
    """Load what ``request`` names; all that this raises is the kernel's own fault."""
    sys.path[:] = [*request.source.paths, *request.paths]
    dtype = None if request.dtype is None else DTYPES[request.dtype]
    home, found = _find(request.source)
    init: tuple[Value, ...] | None = None
    if inspect.isclass(found):
        init = _init_of(request, home, leaf)

    def build() -> object:
        seed_all(request.seed)
        made = _find(request.source)[1] if init is None else _instance(found, init)
        return _placed(made, request.device, dtype)

    kernel = _placed(found, request.device, dtype) if init is None else build()
    if not callable(kernel):
        raise TypeError(f"{request.source.label} is a {type(kernel).__name__}, which cannot be called")
    module = _module_of(kernel)
    state = State(module)
    if init is not None:
        state.adopt({name: leaf(node) for name, node in request.state.items()})
    return Kernel(call=kernel, module=module, init=init, maker=_maker(request.inputs, home), rebuild=build, state=state)


def _find(source: Source) -> tuple[ModuleType | None, Any]:
    """(the module, what the source names in it)."""
    if isinstance(source, Pickled):
        return None, pickle.loads(source.data)  # noqa: S301 - made by the caller of amk.verify, of its own objects
    if isinstance(source, Text):
        module = _module_of_text(source)
        return module, _attribute(module, source.attribute)
    name, _, path = source.target.partition(":")
    module = importlib.import_module(name)
    found = _attribute(module, path)
    if isinstance(source, Factory):
        return None, found(*(unpack(node, _no_tensors) for node in source.arguments))
    return module, found


def _attribute(module: ModuleType, path: str) -> Any:
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            raise AttributeError(f"there is no {path!r} in {module.__name__}")
        found = getattr(found, name)
    return found


def _module_of_text(source: Text) -> ModuleType:
    """Import the text from a file in the working directory: Triton and inspect.getsource read it there."""
    name = f"{TEXT_MODULE}_{hashlib.sha256(source.code.encode()).hexdigest()[:8]}"
    path = Path.cwd() / f"{name}.py"
    path.write_text(source.code, encoding="utf-8")
    # An entry without a time is not compared with the file again, so the text stays readable when that is gone.
    linecache.cache[str(path)] = (len(source.code), None, source.code.splitlines(keepends=True), str(path))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _no_tensors(node: TensorNode) -> Tensor:
    raise TypeError("the argument of a factory is no tensor")


def _init_of(request: Load, home: ModuleType | None, leaf: Callable[[TensorNode], Tensor]) -> tuple[Value, ...]:
    """What the class is built with: what came with the request, else what the module itself makes."""
    if request.init is not None:
        return unpack(request.init, leaf)  # type: ignore[return-value]
    maker = getattr(home, request.init_name, None)
    if maker is None:
        return ()
    seed_all(request.seed)
    return as_arguments(maker())


def as_arguments(made: object) -> tuple[Value, ...]:
    """What a maker returned, as positional arguments: a list or tuple is all of them, anything else the only one."""
    return tuple(made) if isinstance(made, (list, tuple)) else (made,)  # type: ignore[return-value]


def _instance(kind: Callable[..., object], init: tuple[Value, ...]) -> object:
    """Built with positional arguments; ``[[...], {...}]`` are positional and named ones if it cannot be built so."""
    if len(init) != 2 or not isinstance(init[0], (list, tuple)) or not isinstance(init[1], dict):
        return kind(*init)
    try:
        return kind(*init)
    except Exception:  # noqa: BLE001 - a class says in many ways that these are not its arguments
        return kind(*init[0], **init[1])


def _placed(kernel: object, device: str, dtype: torch.dtype | None) -> object:
    module = _module_of(kernel)
    if module is not None:
        module.to(device=device, dtype=dtype)
    return kernel


def _module_of(kernel: object) -> nn.Module | None:
    owner = getattr(kernel, "__self__", kernel)
    return owner if isinstance(owner, nn.Module) else None


def _bound(call: Callable[..., object], twin: nn.Module) -> Callable[..., object]:
    return twin if isinstance(call, nn.Module) else getattr(twin, call.__name__)


def _cast_plain(module: nn.Module, dtype: torch.dtype) -> None:
    """Cast floating tensors that a module holds as plain attributes, which ``nn.Module.to`` passes over."""
    for part in module.modules():
        for name, value in vars(part).items():
            if isinstance(value, Tensor) and value.is_floating_point():
                vars(part)[name] = value.to(dtype)


def _maker(inputs: Source | str | None, home: ModuleType | None) -> Callable[..., object] | None:
    if inputs is None:
        return None
    if isinstance(inputs, str):
        if home is None:
            raise AttributeError(f"there is no module in which to look for {inputs!r}")
        found = _attribute(home, inputs)
    else:
        sys.path[:0] = [path for path in inputs.paths if path not in sys.path]
        _, found = _find(inputs)
    if not callable(found):
        raise TypeError(f"the input maker is a {type(found).__name__}, which cannot be called")
    return found  # type: ignore[no-any-return]
