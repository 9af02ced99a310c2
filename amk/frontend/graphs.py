"""The graph of a checkpoint, remembered, so that a warm compile imports neither torch nor transformers."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging
from pathlib import Path

import msgspec

import amk.ir
from amk.frontend.checkpoint import Checkpoint
from amk.frontend.config import check_config
from amk.frontend.files import canonical_json, write_atomic
from amk.frontend.trace import check_versions
from amk.ir.graph import Graph
from amk.settings import settings, writable_folder

logger = logging.getLogger("amk.frontend.graphs")


def graph_for(checkpoint: Checkpoint) -> Graph:
    """The graph of ``checkpoint``'s config, from the cache if it is there.

    Raises
    ------
    UnsupportedModelError
        The model is refused.
    UnwritablePathError
        The cache folder cannot be written.
    """
    check_versions()
    check_config(checkpoint.config)
    folder = writable_folder(settings().cache / "graphs")
    path = folder / f"{_key(checkpoint)}.json"
    try:
        return Graph.from_json(path.read_bytes())
    except FileNotFoundError:
        pass
    except (OSError, msgspec.MsgspecError) as error:
        logger.warning("the cached graph %s cannot be read (%s) and is made again", path, error)
    from amk.frontend.importer import import_graph

    graph = import_graph(checkpoint.config)
    write_atomic(path, graph.to_json())
    return graph


def _key(checkpoint: Checkpoint) -> str:
    """Everything the graph depends on: the config, the releases that trace it, and the code that reads the trace."""
    versions = {package: importlib.metadata.version(package) for package in ("torch", "transformers")}
    facts = {"config": checkpoint.config_digest(), "versions": versions, "sources": _sources_digest()}
    return hashlib.sha256(canonical_json(facts)).hexdigest()


def _sources_digest() -> str:
    ir = Path(amk.ir.__file__).parent
    paths = [*sorted(Path(__file__).parent.glob("*.py")), ir / "graph.py", ir / "record.py"]
    digest = hashlib.sha256()
    for path in paths:
        content = path.read_bytes()
        digest.update(canonical_json([path.name, len(content)]) + content)
    return digest.hexdigest()
