"""A variant of a family as a model in memory, and its kernel against HuggingFace and against the reference machine."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM

import amk
from amk.contracts.decode import contract_for, decode_parity
from amk.frontend.importer import import_graph
from amk.frontend.trace import hf_config, quiet
from amk.frontend.twin import random_tensors
from amk.pipeline import CompiledModel
from tests.families.configs import Config
from tests.families.judge import prompts_of

LENGTHS = (3, 11, 30)


def in_memory(config: Config, *, seed: int = 1) -> Any:
    """The bf16 model of ``config`` in its own HuggingFace class, with random weights that leave nothing uniform."""
    tensors = random_tensors(import_graph(config), seed=seed)
    with quiet(), torch.no_grad():
        model = AutoModelForCausalLM.from_config(hf_config(config), dtype=torch.bfloat16)
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
    return model.eval()


def compiled(config: Config, *, arch: str | None, **options: Any) -> CompiledModel:
    return amk.compile(in_memory(config), arch=arch, progress=False, **options)


def parity_failure(model: CompiledModel, *, tokens: int) -> str:
    """What is not as HuggingFace float32 has it; empty if every token is, ties named."""
    report = decode_parity(model, contract_for("tiny"), prompts_of(model.graph.vocab, LENGTHS), tokens=tokens)
    return "; ".join(f"{prompt.name}: {prompt.failure}" for prompt in report.prompts if prompt.failure)
