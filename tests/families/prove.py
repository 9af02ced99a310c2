"""Decode every variant of every family, and write what was seen: ``python -m tests.families.prove --write``.

On a machine with a GPU ``--gpu out.json`` runs the variants there instead, against HuggingFace float32, and writes a
record of them; ``--seen out.json`` takes such a record into the table.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from amk.frontend.supported import ARCHS
from tests.families.configs import FAMILIES, Config
from tests.families.judge import judge
from tests.families.on_chip import compiled, parity_failure
from tests.gpu.diff import differences

TABLE = Path(__file__).resolve().parents[2] / "models" / "supported.json"
PROMPT = [7, 3, 99, 11, 4, 87, 20, 51, 33, 2, 64]
GPU_TOKENS = 40


def on_cpu(config: Config) -> str:
    outcome = judge(config)
    return outcome.refused or outcome.wrong


def on_host(config: Config) -> str:
    model = compiled(config, arch="host")
    try:
        return "; ".join(map(str, differences(model, PROMPT, tokens=5)))
    finally:
        model.close()


def on_gpu(config: Config) -> str:
    model = compiled(config, arch=None)
    try:
        return parity_failure(model, tokens=GPU_TOKENS)
    finally:
        model.close()


def seen_on_gpu() -> dict[str, Any]:
    """Every variant on this machine's GPU: the arch, and what failed."""
    from amk.runtime.device import probe

    device = probe().devices[0]
    failures = {
        f"{family}: {name}": on_gpu(config)
        for family, variants in FAMILIES.items()
        for name, config in variants.items()
    }
    return {"arch": device.arch, "device": device.name, "tokens": GPU_TOKENS, "variants": failures}


def table(seen: dict[str, Any] | None) -> dict[str, Any]:
    """What this machine's processor shows, and what a GPU's record does."""
    families = []
    for family, variants in FAMILIES.items():
        for name, config in variants.items():
            for run in (on_cpu, on_host):
                if failure := run(config):
                    raise SystemExit(f"{family}: {name}: {failure}")
        archs = {"cpu": "run", "host": "run", "sm_80": "checked", "sm_90": "checked", "sm_120": "checked"}
        if seen and all(seen["variants"].get(f"{family}: {name}") == "" for name in variants):
            archs[seen["arch"]] = "run"
        types = sorted({config["model_type"] for config in variants.values()})
        families.append({"family": family, "model_types": types, "variants": list(variants), "archs": archs})
    return {"families": families}


def markdown(families: list[dict[str, Any]]) -> str:
    """The table as README.md shows it."""
    words = {"run": "run", "checked": "host-checked"}
    lines = [f"| family | variants | {' | '.join(ARCHS)} |", "|---|---|" + "---|" * len(ARCHS)]
    for family in families:
        archs = " | ".join(words[family["archs"][arch]] for arch in ARCHS)
        lines.append(f"| {family['family']} | {'; '.join(family['variants'])} | {archs} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.name}")
    parser.add_argument("--gpu", type=Path)
    parser.add_argument("--seen", type=Path)
    words = parser.parse_args()
    if words.gpu:
        record = seen_on_gpu()
        words.gpu.write_text(json.dumps(record, indent=1) + "\n")
        failed = [name for name, failure in record["variants"].items() if failure]
        sys.stdout.write(f"{len(record['variants']) - len(failed)} variants equal HuggingFace; failed: {failed}\n")
        return int(bool(failed))
    text = json.dumps(table(json.loads(words.seen.read_text()) if words.seen else None), indent=1) + "\n"
    if words.write:
        TABLE.write_text(text)
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
