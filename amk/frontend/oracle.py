"""A checkpoint in its own HuggingFace class at float32: what amk is judged by."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from amk.frontend.trace import hf_config, quiet


def float32_model(config: dict[str, Any], load: Callable[[str], Tensor]) -> Any:
    """The model of ``config`` with every parameter taken from ``load``, rounded to bf16 as amk packs it, and upcast.

    Parameters
    ----------
    config
        A parsed config.json.
    load
        Checkpoint tensor by state-dict name.
    """
    return filled_model(config, load, dtype=torch.float32, attention="eager", device="cpu")


def filled_model(
    config: dict[str, Any], load: Callable[[str], Tensor], *, dtype: torch.dtype, attention: str, device: str
) -> Any:
    """The same with parameters of another type, on another device, with another implementation of attention."""
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    factory: Any = AutoModelForCausalLM  # untyped
    with quiet(), no_init_weights(), torch.device(device):
        model = factory.from_config(hf_config(config), attn_implementation=attention, dtype=dtype)
    # Tying is part of the initialisation that was left out, which takes minutes for billions of parameters.
    model.tie_weights()
    with torch.no_grad():
        # named_parameters lists a tied table once, under the embedding's name.
        for name, parameter in model.named_parameters():
            parameter.copy_(as_packed(load(name)))
    return model.eval()


def as_packed(tensor: Tensor) -> Tensor:
    """The float32 value of a checkpoint tensor after packing: matrices are kept as bf16, gains as float32."""
    return (tensor.to(torch.bfloat16) if tensor.dim() > 1 else tensor).to(torch.float32)
