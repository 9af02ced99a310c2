"""The tensors of a folder of safetensors files: an index read from headers alone, and one tensor at a time, mapped."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import UnreadableInputError
from amk.frontend.errors import (
    CorruptShardError,
    IndexMismatchError,
    MissingShardError,
    NoWeightsError,
    PickleWeightsError,
)
from amk.frontend.files import read_json

if TYPE_CHECKING:
    import torch

FLOAT_DTYPES = ("BF16", "F16", "F32")
"""Types of weights that amk reads, as safetensors names them."""

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
MOST_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""

DTYPE_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32, "U64": 64, "I64": 64, "F64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """Where a tensor is and what it is, known without reading it.

    Attributes
    ----------
    name, shape
        As stored.
    dtype
        As safetensors spells it: ``BF16``, ``F32`` ...
    file
        The file that holds it, or a word for a model in memory.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    file: str


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint folder, in name order; the single file wins, as in transformers.

    Raises
    ------
    PickleWeightsError, NoWeightsError, MissingShardError, BadJsonError
    """
    single, index = folder / SINGLE, folder / INDEX
    if single.is_file():
        return [single]
    if index.is_file():
        return _shards(index)
    pickles = sorted(path for path in folder.iterdir() if path.suffix in PICKLES and path.name != "training_args.bin")
    if pickles:
        raise PickleWeightsError(path=pickles[0])
    raise NoWeightsError(folder=folder)


def tensor_index(folder: Path) -> dict[str, TensorInfo]:
    """Every tensor of the checkpoint in ``folder``, by name.

    Raises
    ------
    CheckpointError
        The errors of ``weight_files``; a file that is cut short or malformed (``CorruptShardError``); a tensor that is
        not where the index says, or stored twice (``IndexMismatchError``).
    """
    found: dict[str, TensorInfo] = {}
    files = weight_files(folder)
    for path in files:
        for info in read_header(path):
            if info.name in found:
                raise IndexMismatchError(index=found[info.name].file, path=path, tensor=info.name, why="both hold it")
            found[info.name] = info
    index = folder / INDEX
    if files != [folder / SINGLE]:
        for name, file in _weight_map(index).items():
            if name not in found or Path(found[name].file).name != file:
                raise IndexMismatchError(index=index, path=folder / file, tensor=name, why="that file does not hold it")
    return found


def read_header(path: Path) -> list[TensorInfo]:
    """The tensors of one safetensors file, checked against the file's size.

    Raises
    ------
    CorruptShardError, UnreadableInputError
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MOST_HEADER_BYTES):
                raise CorruptShardError(path=path, why=f"its {size} bytes are fewer than its header needs")
            header = json.loads(file.read(length))
    except OSError as error:
        raise UnreadableInputError(path=path, why=error.strerror or error, fix="check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise CorruptShardError(path=path, why="its header is not JSON") from error
    try:
        return _entries(path, header, size - 8 - length)
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise CorruptShardError(path=path, why="its header does not follow the format") from error


def load_tensor(info: TensorInfo) -> torch.Tensor:
    """Read one tensor; the file is mapped and only that tensor's bytes are touched."""
    from safetensors import safe_open

    # safetensors ships no types for safe_open
    opened: Any = safe_open
    with opened(info.file, framework="pt") as file:
        tensor: torch.Tensor = file.get_tensor(info.name)
    return tensor


def _entries(path: Path, header: dict[str, Any], data_bytes: int) -> list[TensorInfo]:
    infos, spans = [], []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape, dtype = tuple(int(size) for size in entry["shape"]), str(entry["dtype"])
        start, end = (int(offset) for offset in entry["data_offsets"])
        if (end - start) * 8 != math.prod(shape) * DTYPE_BITS[dtype]:
            raise CorruptShardError(path=path, why=f"tensor {name} does not have the bytes of its shape")
        infos.append(TensorInfo(name=name, shape=shape, dtype=dtype, file=str(path)))
        spans.append((start, end))
    spans.sort()
    ends = [0, *(end for _, end in spans)]
    if any(start != end for (start, _), end in zip(spans, ends, strict=False)) or ends[-1] != data_bytes:
        raise CorruptShardError(path=path, why=f"it has {data_bytes} bytes of tensors, its header describes {ends[-1]}")
    return infos


def _weight_map(index: Path) -> dict[str, str]:
    entries = read_json(index).get("weight_map")
    if not isinstance(entries, dict) or not entries:
        raise NoWeightsError(folder=f"{index} (no weight_map)")
    for name, file in entries.items():
        if not isinstance(file, str) or Path(file).name != file or file in (".", ".."):
            raise IndexMismatchError(
                index=index, path=file, tensor=name, why="a shard must be a file of the same folder"
            )
        if Path(file).suffix in PICKLES:
            raise PickleWeightsError(path=index.parent / file)
    return entries


def _shards(index: Path) -> list[Path]:
    entries = _weight_map(index)
    names = sorted(set(entries.values()))
    for name in names:
        if not (index.parent / name).is_file():
            held = [tensor for tensor, file in entries.items() if file == name]
            raise MissingShardError(path=index.parent / name, index=index.name, count=len(held), tensor=held[0])
    return [index.parent / name for name in names]
