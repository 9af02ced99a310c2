"""GGUF files, read once: dequantized by transformers, rounded to bf16, and kept as a safetensors folder."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import UnwritablePathError
from amk.frontend.errors import GgufError
from amk.frontend.files import file_sha256
from amk.settings import settings, writable_folder

if TYPE_CHECKING:
    import torch

logger = logging.getLogger("amk.frontend.gguf")

DROPPED = ("quantization_config", "_name_or_path", "_model_name_or_path", "transformers_version")
"""Config fields that describe the GGUF file and not the folder that is written."""

SPECIAL_TOKENS = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
"""What transformers and GGUF call the special tokens."""


def prepare_gguf(path: Path) -> Path:
    """The prepared folder of a GGUF file, made now if it is not there; it is found again by the file's sha256.

    Raises
    ------
    GgufError, UnwritablePathError
    """
    digest = file_sha256(path)
    folder = settings().checkpoints / f"gguf-{digest[:16]}"
    if not (folder / "provenance.json").is_file():
        logger.info("preparing %s in %s: dequantized and rounded to bf16, once", path, folder)
        convert_gguf(path, folder, {"source": str(path.absolute()), "gguf_sha256": digest})
    return folder


def convert_gguf(
    path: Path, folder: Path, provenance: dict[str, Any], *, check: Callable[[Path], None] | None = None
) -> None:
    """Write the checkpoint in ``path`` to ``folder``: safetensors, configs, tokenizer, and where they are from.

    The folder appears whole, and only after ``check`` found nothing to raise about it, or not at all.

    Raises
    ------
    GgufError
        transformers cannot read the file.
    UnwritablePathError
        ``folder`` cannot be written.
    """
    parent = writable_folder(folder.parent)
    try:
        model, tokenizer, quantization = _read(path)
    except Exception as error:  # transformers and gguf raise many types for a file they do not understand
        raise GgufError(path=path, why=f"{type(error).__name__}: {error}") from error
    try:
        with tempfile.TemporaryDirectory(dir=parent, prefix=f".{folder.name}.") as made:
            temporary = Path(made) / folder.name
            temporary.mkdir()
            _write(temporary, model, tokenizer, {**provenance, "conversion": f"{quantization} -> bf16"})
            if check is not None:
                check(temporary)
            _publish(temporary, folder)
    except OSError as error:
        raise UnwritablePathError(path=folder, why=error.strerror or error, variable="AMK_HOME") from error


def _publish(temporary: Path, folder: Path) -> None:
    """Put a finished folder in its place. Whoever comes second finds the same content and leaves it."""
    if folder.exists() and not (folder / "provenance.json").is_file():
        shutil.rmtree(folder)
    try:
        temporary.replace(folder)
    except OSError:
        if not (folder / "provenance.json").is_file():
            raise


def _read(path: Path) -> tuple[Any, Any, str]:
    """Model in float32, tokenizer, and the name of the quantization most tensors have."""
    import torch
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from amk.frontend.trace import quiet

    reader = GGUFReader(path)
    kinds = [tensor.tensor_type.name for tensor in reader.tensors if len(tensor.shape) > 1]
    place = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    models: Any = AutoModelForCausalLM
    tokenizers: Any = AutoTokenizer
    with quiet():
        model = models.from_pretrained(**place, dtype=torch.float32)
        tokenizer = tokenizers.from_pretrained(**place)
    _settle_tokenizer(reader, tokenizer)
    return model, tokenizer, max(sorted(set(kinds)), key=kinds.count)


def _settle_tokenizer(reader: Any, tokenizer: Any) -> None:
    r"""Make the tokenizer what the file says, where the GGUF readers of transformers differ or leave it out.

    Special tokens are those of the file; decoding does not tidy spaces; and SmolLM takes digits apart before words,
    without which ``"\n\n1"`` is other tokens than the model was trained on.
    """
    from tokenizers import pre_tokenizers

    for role, key in SPECIAL_TOKENS.items():
        token_id = _metadata(reader, f"tokenizer.ggml.{key}_token_id")
        if token_id is not None:
            setattr(tokenizer, role, tokenizer.convert_ids_to_tokens(int(token_id)))
    tokenizer.clean_up_tokenization_spaces = False
    if _metadata(reader, "tokenizer.ggml.pre") == "smollm":
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )


def _metadata(reader: Any, key: str) -> Any:
    field = reader.fields.get(key)
    return None if field is None else field.contents()


def _write(folder: Path, model: Any, tokenizer: Any, provenance: dict[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file(_tensors(model), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    generation = model.generation_config.to_dict()
    generation = {key: value for key, value in generation.items() if key.endswith("_token_id") and value is not None}
    for name, content in {
        "config.json": _config(model),
        "generation_config.json": generation,
        "provenance.json": provenance,
    }.items():
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + os.linesep, encoding="utf-8")


def _tensors(model: Any) -> dict[str, torch.Tensor]:
    """The state dict in bf16; a tied head is stored once, as the embedding."""
    import torch

    tied = bool(model.config.tie_word_embeddings)
    return {
        name: tensor.to(torch.bfloat16).contiguous()
        for name, tensor in model.state_dict().items()
        if not (tied and name == "lm_head.weight")
    }


def _config(model: Any) -> dict[str, Any]:
    """The config without what was said of the GGUF file, numbers as their authors wrote them."""
    fields = json.loads(model.config.to_json_string(use_diff=True))
    kept = {key: _shortest(value) for key, value in fields.items() if key not in DROPPED}
    return {**kept, "architectures": [type(model).__name__], "dtype": "bfloat16"}


def _shortest(value: Any) -> Any:
    """The shortest decimal of the same float32: GGUF keeps 1e-5 as 9.99999974e-06, which is one number to float32."""
    import numpy as np

    return float(str(np.float32(value))) if isinstance(value, float) else value
