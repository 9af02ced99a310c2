"""The rotary factors as a table, made by the model's own HuggingFace rotary module; amk computes no angle itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from amk.frontend.errors import RopeTableError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def rope_table(config: dict[str, Any], positions: int, *, layer_type: str = "") -> NDArray[np.float32]:
    """Cosines and sines for ``positions`` positions, in float32 as the float32 oracle has them.

    Parameters
    ----------
    config
        A parsed config.json of a model that ``import_graph`` accepts.
    positions
        Number of rows; row ``p`` is for position ``p``.
    layer_type
        Which of the model's tables, if layers of different types have different ones; "" if all share one.

    Returns
    -------
    numpy.ndarray
        float32, [positions, 2, rotary_dim // 2]: cosines, then sines, the attention scaling of the model included.

    Raises
    ------
    RopeTableError
        The module makes something else than one pair of factors per position and half of the elements that turn, or
        has no table for ``layer_type``.
    """
    import numpy as np
    import torch

    from amk.frontend.trace import meta_model, quiet

    model = meta_model(config)
    model_type = config.get("model_type")
    found = [module for name, module in model.named_modules() if name.endswith("rotary_emb")]
    if len(found) != 1:
        raise RopeTableError(model_type=model_type, why=f"it has {len(found)} rotary modules")
    with quiet(), torch.no_grad(), torch.device("cpu"):
        rotary = type(found[0])(config=model.config)
        _check_layer_type(rotary, layer_type, model_type)
        rows = torch.arange(positions).unsqueeze(0)
        factors = rotary(torch.zeros(1, dtype=torch.float32), rows, *([layer_type] if layer_type else []))
    table = torch.stack([factor[0] for factor in factors], dim=1)
    half = table.shape[-1] // 2
    # Elements i and i + half turn by one angle (Su et al., arXiv:2104.09864, in the layout of transformers).
    if table.dtype != torch.float32 or not torch.equal(table[..., :half], table[..., half:]):
        raise RopeTableError(model_type=model_type, why="the two halves of a head turn by different angles")
    return np.ascontiguousarray(table[..., :half].numpy())


def _check_layer_type(rotary: Any, layer_type: str, model_type: object) -> None:
    held = {name.removesuffix("inv_freq").removesuffix("_") for name, _ in rotary.named_buffers()}
    known = sorted(name for name in held if not name.endswith("original"))
    if layer_type not in known:
        why = f"it has no table of layer type {layer_type!r}, only of {', '.join(map(repr, known))}"
        raise RopeTableError(model_type=model_type, why=why)
