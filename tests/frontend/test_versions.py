"""The oldest and the newest supported transformers export different graphs; the importer reads them as one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from amk.frontend.trace import RANGES
from tests.frontend.examples import FAMILIES, LLAMA3, llama

ROOT = Path(__file__).parents[2]
OVERLAY = ROOT / ".venv-tf517"
"""transformers 5.17 and what differs with it, made by `make setup`; it goes first on PYTHONPATH."""

CONFIGS = [
    llama(),
    llama(tie_word_embeddings=False, head_dim=32, num_hidden_layers=1),
    llama(hidden_size=112, num_attention_heads=7, num_key_value_heads=1, num_hidden_layers=1),
    llama(hidden_size=80, num_attention_heads=5, num_key_value_heads=5, num_hidden_layers=1),
    llama(rope_scaling=LLAMA3, num_hidden_layers=1),
    llama(rope_theta=1e6, rope_scaling={"type": "linear", "factor": 2.0}, num_hidden_layers=1),
    llama(rope_scaling={"rope_type": "yarn", "factor": 2.0}, num_hidden_layers=1),
    llama(model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None, num_hidden_layers=1),
    *FAMILIES.values(),
]

PROGRAM = """
import hashlib, json, sys
import transformers
from amk.frontend.importer import import_graph
from amk.frontend.rope import rope_table
configs = json.load(sys.stdin)
graphs = [import_graph(config) for config in configs]
tables = [
    hashlib.sha256(rope_table(config, 64, layer_type=rope.layer_type).tobytes()).hexdigest()
    for config, graph in zip(configs, graphs)
    for rope in graph.ropes
]
digests = [graph.digest() for graph in graphs]
print(json.dumps({"version": transformers.__version__, "graphs": digests, "tables": tables}))
"""


def with_path(*folders: Path) -> dict:
    """What ``PROGRAM`` says with ``folders`` on PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT)))}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(
        command, input=json.dumps(CONFIGS), env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_both_ends_of_the_range_import_to_the_same_graphs():
    assert (OVERLAY / "transformers").is_dir(), f"{OVERLAY} is not there: run `make setup`"
    newest, oldest = with_path(), with_path(OVERLAY)
    assert oldest["version"].startswith(RANGES["transformers"][0] + ".")
    assert newest["version"] != oldest["version"]
    assert newest["graphs"] == oldest["graphs"]
    assert newest["tables"] == oldest["tables"]
    assert len(set(newest["graphs"])) == len(CONFIGS)
