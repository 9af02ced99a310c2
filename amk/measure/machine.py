"""What a benchmark ran on: names and versions, as far as the machine tells them."""

from __future__ import annotations

import importlib.metadata
import platform
import re
from pathlib import Path
from typing import Final

import torch

import amk
from amk.runtime.device import probe
from amk.target import Target

PACKAGES: Final = ("torch", "transformers", "cuda-python", "nvidia-cuda-nvrtc", "numpy")

DRIVER: Final = Path("/proc/driver/nvidia/version")
"""Where the kernel module says which release it is of."""


def machine(target: Target) -> dict[str, str]:
    """Names and versions of chip, driver and libraries; what is not there is left out."""
    found = {
        "amk": amk.__version__,
        "target": target.name,
        "python": platform.python_version(),
        "processor": platform.machine(),
        **{package: version for package in PACKAGES if (version := _version(package))},
    }
    driver = probe()
    if driver.version is not None:
        found["driver's CUDA"] = ".".join(map(str, driver.version))
    if DRIVER.is_file() and (release := re.search(r"\b\d+\.\d+(\.\d+)?\b", DRIVER.read_text(encoding="utf-8"))):
        found["driver"] = release[0]
    if torch.cuda.is_available():
        found["gpu"] = torch.cuda.get_device_name()
        found["torch's CUDA"] = str(torch.version.cuda)
    return found


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
