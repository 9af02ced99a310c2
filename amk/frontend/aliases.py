"""Short names of checkpoints, and the configs that ship with amk so that they compile without a network."""

from __future__ import annotations

from pathlib import Path

import amk

ALIASES = {
    "SmolLM2-135M": "HuggingFaceTB/SmolLM2-135M",
    "SmolLM2-135M-Instruct": "HuggingFaceTB/SmolLM2-135M-Instruct",
    "SmolLM2-360M": "HuggingFaceTB/SmolLM2-360M",
    "SmolLM2-1.7B": "HuggingFaceTB/SmolLM2-1.7B",
    "TinyLlama-1.1B": "TinyLlama/TinyLlama-1.1B-Chat-v1.0",
    "Llama-3.2-1B": "meta-llama/Llama-3.2-1B",
    "Llama-3.2-3B": "meta-llama/Llama-3.2-3B",
    "Llama-3.1-8B": "meta-llama/Llama-3.1-8B",
    "Qwen3-0.6B": "Qwen/Qwen3-0.6B",
    "Qwen2.5-0.5B": "Qwen/Qwen2.5-0.5B",
    "Mistral-7B-v0.3": "mistralai/Mistral-7B-v0.3",
}
"""Hub id of each alias. An alias is matched without regard to case."""


def find_alias(name: str) -> str | None:
    """The alias called ``name``, or whose hub id is ``name``, as ``ALIASES`` spells it; None if there is none."""
    wanted = name.casefold()
    for alias, repo in ALIASES.items():
        if wanted in (alias.casefold(), repo.casefold()):
            return alias
    return None


def folder_name(alias: str) -> str:
    """Name of an alias's folder under ``models/`` and under ``$AMK_HOME/checkpoints``."""
    return alias.lower()


def models_folder() -> Path:
    """The folder of shipped model data: inside an installed package, or at the root of a checkout."""
    package = Path(amk.__file__).parent
    installed = package / "_models"
    return installed if installed.is_dir() else package.parent / "models"


def shipped_config(alias: str) -> Path:
    """Path of the config.json that ships for ``alias``."""
    return models_folder() / folder_name(alias) / "config.json"
