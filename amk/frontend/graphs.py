"""The graph of a checkpoint, remembered, so that a warm compile imports neither torch nor transformers."""

from __future__ import annotations

import hashlib
import importlib.metadata
import logging

import msgspec

from amk.frontend.checkpoint import Checkpoint
from amk.frontend.config import check_config
from amk.frontend.files import canonical_json
from amk.frontend.trace import check_versions
from amk.ir.graph import Graph
from amk.settings import settings, writable_folder, write_atomically
from amk.sources import sources_digest

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
    write_atomically(path, graph.to_json())
    return graph


def _key(checkpoint: Checkpoint) -> str:
    """Everything the graph depends on: the config, the releases that trace it, and the code that reads the trace."""
    versions = {package: importlib.metadata.version(package) for package in ("torch", "transformers")}
    facts = {
        "config": checkpoint.config_digest(),
        "versions": versions,
        "sources": sources_digest("frontend", "ir/graph.py", "ir/record.py", "ir/passes/fuse.py"),
    }
    return hashlib.sha256(canonical_json(facts)).hexdigest()
