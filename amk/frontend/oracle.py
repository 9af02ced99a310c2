"""A checkpoint in its own HuggingFace class at float32: what amk is judged by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from amk.frontend.trace import hf_config, quiet
from amk.ir.buffers import Quantization
from amk.ir.quantize import rounded

_HEAD, _TABLE = "lm_head.weight", "embed_tokens.weight"


def float32_model(
    config: dict[str, Any], load: Callable[[str], Tensor], *, quantization: Quantization | None = None
) -> Any:
    """The model of ``config`` with every parameter taken from ``load``, rounded as amk packs it, and upcast.

    Parameters
    ----------
    config
        A parsed config.json.
    load
        Checkpoint tensor by state-dict name.
    quantization
        How matrices are made integers; None where they are bf16.
    """
    return filled_model(config, load, dtype=torch.float32, attention="eager", device="cpu", quantization=quantization)


def filled_model(
    config: dict[str, Any],
    load: Callable[[str], Tensor],
    *,
    dtype: torch.dtype,
    attention: str,
    device: str,
    quantization: Quantization | None = None,
) -> Any:
    """The same with parameters of another type, on another device, with another implementation of attention."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    factory: Any = AutoModelForCausalLM  # untyped
    with quiet(), no_init_weights(), torch.device(device):
        model = factory.from_config(hf_config(config), attn_implementation=attention, dtype=dtype)
    # Tying is part of the initialisation that was left out, which takes minutes for billions of parameters.
    model.tie_weights()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        # A tied table is listed once, under the embedding's name.
        for name, parameter in parameters.items():
            quantized = quantization if _multiplies(name, tied=_HEAD not in parameters) else None
            parameter.copy_(as_packed(load(name), quantized, name=name))
    return model.eval()


def _multiplies(name: str, *, tied: bool) -> bool:
    """Whether a matrix is multiplied with: all are but a table that only embeds."""
    return tied or not name.endswith(_TABLE)


def as_packed(tensor: Tensor, quantization: Quantization | None = None, *, name: str = "") -> Tensor:
    """The float32 value of a checkpoint tensor after packing: matrices are bf16 or integers, gains are float32.

    Raises
    ------
    NonFiniteWeightError
        A weight that is to be an integer is NaN or infinite.
    """
    if tensor.dim() == 1:
        return tensor.to(torch.float32)
    if quantization is None:
        return tensor.to(torch.bfloat16).to(torch.float32)
    return torch.from_numpy(rounded(tensor.to(torch.float32).numpy(), group=quantization.group, name=name))
