"""A checkpoint, from a name to its tensors: what it is called, where it is, what is in it, and what identifies it.

Nothing here imports torch or transformers until a tensor or the tokenizer is asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import NoTokenizerError
from amk.frontend.aliases import ALIASES, find_alias
from amk.frontend.digest import config_digest, differing_fields
from amk.frontend.errors import (
    BadFieldError,
    ConfigChangedError,
    MissingCheckpointError,
    ModelObjectError,
    RemoteCodeError,
    UnknownModelError,
)
from amk.frontend.files import canonical_json, read_json
from amk.frontend.origins import ConfigFile, FolderOrigin, HubOrigin, Origin, read_config
from amk.frontend.weights import MemoryWeights, Weights

if TYPE_CHECKING:
    import torch

    from amk.frontend.tensors import TensorInfo

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint whose config is known and whose weights are found when they are first asked for.

    Attributes
    ----------
    name
        Alias, hub id, path or class it was asked for by.
    origin
        Where it comes from.
    config_file
        Its config and where that was read.
    """

    name: str
    origin: Origin
    config_file: ConfigFile

    @property
    def config(self) -> dict[str, Any]:
        """The parsed config.json."""
        return self.config_file.fields

    @property
    def source(self) -> str:
        """One line for people: where config and weights come from, as far as that is settled."""
        config = self.config_file.source
        weights = self.weights.source if "weights" in self.__dict__ else "not read yet"
        if config.endswith(f" {weights}"):
            return f"{self.name}: config and weights from {config}"
        return f"{self.name}: config from {config}; weights: {weights}"

    @cached_property
    def weights(self) -> Weights:
        """The weights, found now if they were not yet.

        Raises
        ------
        CheckpointError
            They cannot be had, or the config beside them is not the one this checkpoint was resolved with.
        """
        weights = self.origin.weights()
        folder = self.origin.folder()
        path = self.config_file.path
        if folder is not None and path is not None and folder != path.parent:
            beside = folder / "config.json"
            fields = differing_fields(self.config, read_config(beside))
            if fields:
                raise ConfigChangedError(name=self.name, path=beside, fields=", ".join(fields))
        return weights

    def at_hand(self) -> bool:
        """Whether the weights are on this machine; nothing is downloaded to find out."""
        return self.origin.at_hand()

    @property
    def generation_config(self) -> dict[str, Any]:
        """The parsed generation_config.json; empty if there is none on this machine."""
        folder = self.origin.folder()
        path = folder / "generation_config.json" if folder is not None else None
        return read_json(path) if path is not None and path.is_file() else {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know about these weights; empty if there is nothing."""
        if self.bf16_exact:
            return ()
        counts = Counter(info.dtype for info in self.tensor_index().values())
        stored = ", ".join(f"{count} as {dtype}" for dtype, count in sorted(counts.items()))
        return (f"tensors are stored {stored}; amk reads matrices in bf16, so those that are not are rounded once",)

    @property
    def bf16_exact(self) -> bool:
        """Whether every tensor is stored in bf16, so that reading it in bf16 loses nothing."""
        return all(info.dtype == "BF16" for info in self.tensor_index().values())

    def tensor_index(self) -> dict[str, TensorInfo]:
        """Every tensor by name: its shape, type and file, from headers alone."""
        return self.weights.index

    def load(self, name: str) -> torch.Tensor:
        """The tensor called ``name`` as it is stored; only its bytes are read."""
        return self.weights.load(name)

    def config_digest(self) -> str:
        """sha256 of what logits depend on in the config, in hex."""
        return config_digest(self.config)

    def digest(self) -> str:
        """sha256 of the content of config and weights, in hex. Each file is hashed once and remembered."""
        content = {"config": self.config_digest(), "weights": self.weights.contents()}
        return hashlib.sha256(canonical_json(content)).hexdigest()

    def eos_token_ids(self) -> frozenset[int]:
        """Every token that ends a text, by generation_config.json or by config.json.

        Raises
        ------
        BadFieldError
            An ``eos_token_id`` is neither a token id, nor a list of them, nor null.
        """
        found: set[int] = set()
        for fields in (self.config, self.generation_config):
            value = fields.get("eos_token_id")
            ids = value if isinstance(value, list) else [] if value is None else [value]
            if any(isinstance(item, bool) or not isinstance(item, int) for item in ids):
                raise BadFieldError(field="eos_token_id", value=value, why="it must be a token id or a list of them")
            found.update(ids)
        return frozenset(found)

    def tokenizer(self) -> Any:
        """The HuggingFace tokenizer of the checkpoint.

        Raises
        ------
        NoTokenizerError
            It has none.
        RemoteCodeError
            Its tokenizer is code.
        """
        folder = self.origin.folder()
        if folder is None:
            _ = self.weights
            folder = self.origin.folder()
        if folder is None or not any((folder / name).is_file() for name in TOKENIZER_FILES):
            raise NoTokenizerError(source=self.name, wanted="text")
        settings_file = folder / "tokenizer_config.json"
        if settings_file.is_file() and read_json(settings_file).get("auto_map"):
            raise RemoteCodeError(path=settings_file, field="auto_map")
        from transformers import AutoTokenizer

        factory: Any = AutoTokenizer  # untyped
        return factory.from_pretrained(folder, local_files_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryOrigin:
    """A transformers model in memory."""

    model: Any

    def config(self) -> ConfigFile:
        fields = json.loads(self.model.config.to_json_string(use_diff=False))
        # The class of the object is what computes; the config may still name another.
        fields["architectures"] = [type(self.model).__name__]
        return ConfigFile(fields=fields, source="the model object", path=None)

    def weights(self) -> Weights:
        return MemoryWeights(self.model)

    def at_hand(self) -> bool:
        return True

    def folder(self) -> Path | None:
        return None


@dataclass(frozen=True, kw_only=True)
class MemoryCheckpoint(Checkpoint):
    """A checkpoint whose generation settings are those of the object."""

    origin: MemoryOrigin

    @property
    def generation_config(self) -> dict[str, Any]:
        settings = getattr(self.origin.model, "generation_config", None)
        return {} if settings is None else dict(settings.to_dict())


def resolve(
    model: Any,
    *,
    revision: str | None = None,
    local_files_only: bool = False,
    cache_dir: str | os.PathLike[str] | None = None,
) -> Checkpoint:
    """Find the checkpoint that ``model`` names and read its config; weights are found when first needed.

    Parameters
    ----------
    model
        An alias (any case), a hub id, a folder, a ``.gguf`` file, a path object, or a transformers model in memory.
    revision, local_files_only, cache_dir
        As huggingface_hub has them; of use for aliases and hub ids.

    Returns
    -------
    Checkpoint
        For an alias the config is that of the prepared folder, else of the HuggingFace cache, else the shipped one.

    Raises
    ------
    CheckpointError
        There is no such checkpoint, or its config cannot be read.
    """
    if not isinstance(model, str | os.PathLike):
        return _from_object(model)
    text = os.fspath(model)
    path = Path(text).expanduser()
    alias = find_alias(text) if isinstance(model, str) else None
    by_alias = alias is not None and "/" not in text
    if text and not by_alias and (path.exists() or not isinstance(model, str) or _looks_like_path(text)):
        return _from_path(path)
    if alias is None and not HUB_ID.fullmatch(text):
        raise UnknownModelError(model=text, aliases=", ".join(ALIASES))
    origin = HubOrigin(
        repo=ALIASES[alias] if alias else text,
        alias=alias if by_alias else None,
        shipped=alias,
        revision=revision,
        cache_dir=Path(cache_dir) if cache_dir is not None else None,
        local_files_only=local_files_only,
    )
    return Checkpoint(name=origin.alias or origin.repo, origin=origin, config_file=origin.config())


def _looks_like_path(text: str) -> bool:
    return text.startswith((".", "/", "~")) or text.endswith(".gguf") or text.count("/") > 1


def _from_path(path: Path) -> Checkpoint:
    if not path.exists():
        raise MissingCheckpointError(path=path, aliases=", ".join(ALIASES))
    if path.is_file():
        from amk.frontend.gguf import prepare_gguf

        origin = FolderOrigin(path=prepare_gguf(path), label=f"{path}, prepared in")
    else:
        origin = FolderOrigin(path=path.absolute())
    return Checkpoint(name=str(path), origin=origin, config_file=origin.config())


def _from_object(model: Any) -> Checkpoint:
    kind = type(model).__name__
    if not (hasattr(model, "state_dict") and hasattr(getattr(model, "config", None), "to_json_string")):
        raise ModelObjectError(kind=kind, why="it has no state_dict and transformers config")
    origin = MemoryOrigin(model=model)
    return MemoryCheckpoint(name=f"{kind} in memory", origin=origin, config_file=origin.config())
