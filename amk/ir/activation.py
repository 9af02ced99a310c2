"""What a gate goes through before it multiplies."""

from __future__ import annotations

from typing import Literal

Activation = Literal["silu", "gelu", "gelu_tanh"]
"""x * sigmoid(x); the exact GELU, with erf; its approximation by tanh."""
