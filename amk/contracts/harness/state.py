"""Parameters and buffers of a module: what they were before a call, what it did to them, and how that is undone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from amk.contracts.harness.bits import copied, overwrite, same_bits


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a tensor hangs: ``kind`` is ``parameter`` or ``buffer``."""

    kind: str
    owner: nn.Module
    leaf: str
    tensor: Tensor

    def now(self) -> Tensor | None:
        held: Mapping[str, Tensor | None] = (
            self.owner._parameters if self.kind == "parameter" else self.owner._buffers  # noqa: SLF001 - past a module's own __getattr__
        )
        return held.get(self.leaf)

    def put_back(self) -> None:
        held = self.owner._parameters if self.kind == "parameter" else self.owner._buffers  # noqa: SLF001
        held[self.leaf] = self.tensor  # type: ignore[assignment]


class State:
    """The state of ``module`` as it is now; of a callable that is no module, none.

    Every call starts from it: what one call changes is reported, then undone.
    """

    def __init__(self, module: nn.Module | None) -> None:
        self._places: dict[str, _Place] = {}
        if module is not None:
            for prefix, owner in module.named_modules():
                for kind, held in (("parameter", owner._parameters), ("buffer", owner._buffers)):  # noqa: SLF001
                    for leaf, tensor in held.items():
                        if tensor is not None and not is_lazy(tensor):
                            self._places[f"{prefix}.{leaf}".lstrip(".")] = _Place(kind, owner, leaf, tensor)
        self._before: dict[str, Tensor] = {}
        self.keep()

    def keep(self) -> None:
        """Take what the tensors hold now as what they hold before each call."""
        self._before = {name: copied(place.tensor) for name, place in self._places.items()}

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: place.tensor for name, place in self._places.items()}

    @property
    def labels(self) -> dict[str, Tensor]:
        """The tensors as an answer names them: ``parameter weight``."""
        return {f"{place.kind} {name}": place.tensor for name, place in self._places.items()}

    @property
    def parameters(self) -> dict[str, Tensor]:
        return {name: place.tensor for name, place in self._places.items() if place.kind == "parameter"}

    def adopt(self, values: Mapping[str, Tensor]) -> None:
        """Take over, for good, the values whose names and shapes are these tensors' too."""
        for name, value in values.items():
            place = self._places.get(name)
            if place is not None and place.tensor.shape == value.shape:
                overwrite(place.tensor, value)
        self.keep()

    def changed_by(self, values: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Labels of what is not as it was before the call, which began with ``values`` written over the state."""
        return tuple(
            f"{place.kind} {name}"
            for name, place in self._places.items()
            if not _is_still(place, values.get(name, self._before[name]))
        )

    def write(self, values: Mapping[str, Tensor]) -> None:
        """Overwrite tensors in place.

        Raises
        ------
        KeyError
            There is none of a name.
        ValueError
            A shape is another.
        """
        for name, value in values.items():
            if name not in self._places:
                raise KeyError(name)
            if self._places[name].tensor.shape != value.shape:
                raise ValueError(name)
            overwrite(self._places[name].tensor, value)

    def restore(self) -> None:
        """Make all as it was before the call."""
        for name, place in self._places.items():
            if not _is_still(place, self._before[name]):
                before = self._before[name]
                place.put_back()
                if place.tensor.shape == before.shape:
                    overwrite(place.tensor, before)
                else:
                    place.tensor.data = before.to(place.tensor.device)


def _is_still(place: _Place, value: Tensor) -> bool:
    now = place.now()
    return now is place.tensor and same_bits(copied(now), value.to(now.dtype))
