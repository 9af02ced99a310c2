"""Every model that ``models/`` names, at full size, for three chips and two KV types: each schedule has to be proved.

    python -m tests.campaign.lowerings --json out.json

Only the shapes of a config are taken: a schedule knows nothing else of a checkpoint. Weights are bf16 today; the two
types are those of the KV cache.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from amk.ir.graph import Graph
from amk.target import TARGETS
from amk.validator import Verdict, validate, validator_digest
from tests.builders import llama_graph, lower

MODELS = Path(__file__).resolve().parent.parent.parent / "models"
CHIPS = ("a100", "h200", "rtx5090")
KV_TYPES = ("f32", "bf16")
CONTEXT = 8192


def shape_of(config: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a HuggingFace config as ``llama_graph`` takes them."""
    heads = config["num_attention_heads"]
    return {
        "hidden": config["hidden_size"],
        "layers": config["num_hidden_layers"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "intermediate": config["intermediate_size"],
        "vocab": config["vocab_size"],
        "tied": bool(config.get("tie_word_embeddings")),
    }


def shapes() -> dict[str, dict[str, Any]]:
    """Shapes by the name of a model that has them; two models of one shape are one."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(MODELS.glob("*/config.json")):
        shape = shape_of(json.loads(path.read_text(encoding="utf-8")))
        if shape not in found.values():
            found[path.parent.name] = shape
    return found


def plans(layers: int | None = None) -> Iterator[tuple[str, str, str, Graph]]:
    """(model, chip, KV type, graph) of every lowering; ``layers`` cuts the models short."""
    for name, shape in shapes().items():
        graph = llama_graph(**{**shape, "layers": layers or shape["layers"]})
        for chip in CHIPS:
            for kv_type in KV_TYPES:
                yield name, chip, kv_type, graph


def verdict_of(chip: str, kv_type: str, graph: Graph) -> Verdict:
    """Lower and validate."""
    return validate(lower(graph, TARGETS[chip], max_context=CONTEXT, bf16_kv=kv_type == "bf16"))


def main(arguments: list[str]) -> int:
    """The command above; exit code 1 if one is not proved."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.lowerings")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args(arguments)
    rows = []
    for model, chip, kv_type, graph in track(list(plans()), "lowerings", console=Console(stderr=True)):
        verdict = verdict_of(chip, kv_type, graph)
        rows.append(
            {"model": model, "chip": chip, "kv": kv_type, "verdict": verdict.outcome.value, **verdict.statistics}
        )
    proved = sum(row["verdict"] == "proved" for row in rows)
    document = {
        "command": "python -m tests.campaign.lowerings",
        "validator": validator_digest(),
        "lowerings": len(rows),
        "proved": proved,
        "models": len({row["model"] for row in rows}),
        "rows": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"{proved} of {len(rows)} lowerings proved")
    return int(proved < len(rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
