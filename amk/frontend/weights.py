"""The weights of a checkpoint: an index, one tensor at a time, and the sha256 of their content."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from amk.frontend.errors import ModelObjectError, TensorMissingError
from amk.frontend.files import file_sha256
from amk.frontend.tensors import TensorInfo, load_tensor, tensor_index, weight_files

if TYPE_CHECKING:
    import torch


class Weights(Protocol):
    """What a checkpoint asks of its weights."""

    @property
    def source(self) -> str:
        """Where they are, in words."""
        ...

    @property
    def index(self) -> dict[str, TensorInfo]: ...

    def load(self, name: str) -> torch.Tensor: ...

    def contents(self) -> dict[str, str]:
        """sha256 of each part, by the part's name."""
        ...


class FolderWeights:
    """The safetensors files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def source(self) -> str:
        return str(self.folder)

    @cached_property
    def index(self) -> dict[str, TensorInfo]:
        return tensor_index(self.folder)

    def load(self, name: str) -> torch.Tensor:
        return load_tensor(_entry(self, name))

    def contents(self) -> dict[str, str]:
        return {path.name: file_sha256(path) for path in weight_files(self.folder)}


class MemoryWeights:
    """The state dict of a model in memory."""

    DTYPES = {"torch.bfloat16": "BF16", "torch.float16": "F16", "torch.float32": "F32"}  # noqa: RUF012  # never changed

    def __init__(self, model: Any) -> None:
        self.state: dict[str, torch.Tensor] = dict(model.state_dict())
        self.kind = type(model).__name__
        if any(tensor.is_meta for tensor in self.state.values()):
            raise ModelObjectError(kind=self.kind, why="its weights are on the meta device")

    @property
    def source(self) -> str:
        return f"{self.kind} in memory"

    @cached_property
    def index(self) -> dict[str, TensorInfo]:
        return {
            name: TensorInfo(
                name=name,
                shape=tuple(tensor.shape),
                dtype=self.DTYPES.get(str(tensor.dtype), str(tensor.dtype)),
                file=self.source,
            )
            for name, tensor in self.state.items()
        }

    def load(self, name: str) -> torch.Tensor:
        _entry(self, name)
        return self.state[name].detach().cpu()

    def contents(self) -> dict[str, str]:
        return self._contents

    @cached_property
    def _contents(self) -> dict[str, str]:
        import torch

        parts = {}
        for name, tensor in self.state.items():
            data = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            parts[name] = hashlib.sha256(data.data).hexdigest()
        return parts


def _entry(weights: Weights, name: str) -> TensorInfo:
    if name not in weights.index:
        raise TensorMissingError(tensor=name, source=weights.source, fix="ask for a name of the tensor index")
    return weights.index[name]
