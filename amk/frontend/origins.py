"""Where a checkpoint comes from: a folder, a hub repository (through an alias or its id), or a model in memory.

An origin gives the config at once and the weights when they are first asked for, so that compiling needs neither
weights nor a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from amk.errors import AmkError, CheckpointError
from amk.frontend.aliases import folder_name, shipped_config
from amk.frontend.errors import (
    HubError,
    NoConfigError,
    NoWeightsError,
    PickleWeightsError,
    RemoteCodeError,
    WeightsUnavailableError,
)
from amk.frontend.files import read_json
from amk.frontend.tensors import PICKLES, weight_files
from amk.frontend.weights import FolderWeights, Weights
from amk.settings import settings

HUB_FILES = ["*.safetensors", "*.json", "*.jinja", "merges.txt", "tokenizer.model"]
"""What is downloaded of a repository: weights, configs and tokenizer; no code and no pickles."""

HUB_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A parsed config.json and a line on where it is from. ``path`` is None for a model in memory."""

    fields: dict[str, Any]
    source: str
    path: Path | None


class Origin(Protocol):
    """What a checkpoint asks of the place it comes from."""

    def config(self) -> ConfigFile: ...

    def weights(self) -> Weights: ...

    def at_hand(self) -> bool:
        """Whether the weights are on this machine; nothing is downloaded to find out."""
        ...

    def folder(self) -> Path | None:
        """The folder of configs and tokenizer as far as it is on this machine."""
        ...


def read_config(path: Path) -> dict[str, Any]:
    """A config.json, refused if it names code to run.

    Raises
    ------
    BadJsonError, RemoteCodeError
    """
    config = read_json(path)
    if config.get("auto_map"):
        raise RemoteCodeError(path=path, field="auto_map")
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderOrigin:
    """A folder with config.json, safetensors files and perhaps a tokenizer."""

    path: Path
    label: str = "folder"

    def config(self) -> ConfigFile:
        path = self.path / "config.json"
        if not path.is_file():
            raise NoConfigError(folder=self.path)
        return ConfigFile(fields=read_config(path), source=f"{self.label} {self.path}", path=path)

    def weights(self) -> Weights:
        return FolderWeights(self.path)

    def at_hand(self) -> bool:
        try:
            return bool(weight_files(self.path))
        except NoWeightsError:
            return False

    def folder(self) -> Path | None:
        return self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class HubOrigin:
    """A repository of the hub, by alias or id, looked for on this machine first.

    Attributes
    ----------
    repo
        Hub id.
    alias
        The alias it was asked for by; only then does a prepared folder stand for it. None if the id was given.
    shipped
        The alias whose shipped config may be used.
    revision, cache_dir, local_files_only
        As huggingface_hub has them.
    """

    repo: str
    alias: str | None
    shipped: str | None
    revision: str | None = None
    cache_dir: Path | None = None
    local_files_only: bool = False

    def config(self) -> ConfigFile:
        local = self.folder()
        if local is not None:
            label = "prepared folder" if local == self.prepared() else f"HuggingFace cache, {self.repo},"
            return FolderOrigin(path=local, label=label).config()
        if self.shipped is not None and self.revision is None:
            path = shipped_config(self.shipped)
            return ConfigFile(fields=read_config(path), source=f"shipped config of {self.repo}", path=path)
        path = self._fetch_config()
        return ConfigFile(fields=read_config(path), source=f"hub, {self.repo}, {path.parent}", path=path)

    def weights(self) -> Weights:
        """The weights on this machine, downloaded if need be.

        Raises
        ------
        WeightsUnavailableError
            Says what was tried and every way to get them.
        """
        tried = []
        local = self.folder()
        if local is None:
            places = [str(place) for place in (self.prepared(), f"{self.repo} in the HuggingFace cache") if place]
            tried.append(f"  this machine: no {', and no '.join(places)}")
        else:
            try:
                weight_files(local)
                return FolderWeights(local)
            except AmkError as error:
                tried.append(f"  {local}: {error.message}")
        if self.local_files_only:
            tried.append("  hub: not asked, because of local_files_only")
            raise self._unavailable(tried)
        try:
            return FolderWeights(self._download())
        except HubError as error:
            tried.append(f"  hub: {error.facts['why']}")
            raise self._unavailable(tried) from error

    def at_hand(self) -> bool:
        local = self.folder()
        try:
            return local is not None and bool(weight_files(local))
        except CheckpointError:  # half of a download: the hub has the rest
            return False

    def prepared(self) -> Path | None:
        """Where a prepared checkpoint of the alias is, or would be."""
        if self.alias is None or self.revision is not None:
            return None
        return settings().checkpoints / folder_name(self.alias)

    def folder(self) -> Path | None:
        prepared = self.prepared()
        if prepared is not None and (prepared / "config.json").is_file():
            return prepared
        from huggingface_hub import try_to_load_from_cache

        cached = try_to_load_from_cache(self.repo, "config.json", cache_dir=self.cache_dir, revision=self.revision)
        return Path(cached).parent if isinstance(cached, str) else None

    def _fetch_config(self) -> Path:
        from huggingface_hub import hf_hub_download

        try:
            return Path(
                hf_hub_download(
                    self.repo,
                    "config.json",
                    revision=self.revision,
                    cache_dir=self.cache_dir,
                    local_files_only=self.local_files_only,
                )
            )
        except Exception as error:  # huggingface_hub and its http client raise many types; all mean it cannot be had
            raise HubError(repo=self.repo, why=_reason(error)) from error

    def _download(self) -> Path:
        from huggingface_hub import snapshot_download

        self._refuse_pickles()
        try:
            return Path(
                snapshot_download(
                    self.repo,
                    revision=self.revision,
                    cache_dir=self.cache_dir,
                    allow_patterns=HUB_FILES,
                    ignore_patterns=["*/*", "consolidated*"],
                )
            )
        except Exception as error:  # as above
            raise HubError(repo=self.repo, why=_reason(error)) from error

    def _refuse_pickles(self) -> None:
        """Before anything is downloaded, name the pickle of a repository that has no safetensors."""
        from huggingface_hub import model_info

        try:
            siblings = model_info(self.repo, revision=self.revision, timeout=HUB_TIMEOUT_S).siblings or []
        except Exception as error:  # as above
            raise HubError(repo=self.repo, why=_reason(error)) from error
        names = sorted(sibling.rfilename for sibling in siblings)
        pickles = [name for name in names if name.endswith(PICKLES)]
        if pickles and not any(name.endswith(".safetensors") for name in names):
            raise PickleWeightsError(path=f"{self.repo}/{pickles[0]}")

    def _unavailable(self, tried: list[str]) -> WeightsUnavailableError:
        ways = [
            f"`hf download {self.repo}` (with HF_TOKEN if it is gated)",
            "pass the path of a folder or .gguf file that has them",
        ]
        if self.alias is not None:
            ways.append(f"copy config.json, *.safetensors and the tokenizer to {self.prepared()}")
        if self.alias == "SmolLM2-135M-Instruct":
            ways.insert(0, "`python -m amk.frontend.prepare`")
        if self.alias == "SmolLM2-135M":
            ways.append('use the checkpoint "SmolLM2-135M-Instruct", which `python -m amk.frontend.prepare` prepares')
        if self.local_files_only:
            ways.append("allow the hub (local_files_only=False)")
        return WeightsUnavailableError(
            name=self.alias or self.repo, tried="\n".join(tried), ways="one of: " + "; ".join(ways)
        )


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"
