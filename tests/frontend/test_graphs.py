from __future__ import annotations

import subprocess
import sys

import pytest

from amk.errors import UnsupportedModelError
from amk.frontend import graphs, importer
from amk.frontend.checkpoint import resolve
from amk.frontend.graphs import graph_for
from amk.frontend.importer import import_graph
from tests.frontend.examples import llama, write_checkpoint


@pytest.fixture
def checkpoint(tmp_path):
    return resolve(write_checkpoint(tmp_path / "model", llama(), {}))


def entries(home):
    return sorted((home / "cache" / "graphs").iterdir())


def test_a_graph_is_made_once(checkpoint, home, monkeypatch):
    graph = graph_for(checkpoint)
    assert graph == import_graph(checkpoint.config)
    assert len(entries(home)) == 1
    monkeypatch.setattr(importer, "import_graph", lambda _: pytest.fail("made again"))
    assert graph_for(checkpoint) == graph


@pytest.mark.parametrize("damage", [b"", b"{}", b'{"version": 1', b"\x00\xff"])
def test_an_entry_that_cannot_be_read_is_made_again(checkpoint, home, damage):
    graph = graph_for(checkpoint)
    (entry,) = entries(home)
    entry.write_bytes(damage)
    assert graph_for(checkpoint) == graph
    assert entry.read_bytes() == graph.to_json()


def test_an_entry_is_for_one_config_one_release_and_one_importer(checkpoint, tmp_path, home, monkeypatch):
    graph_for(checkpoint)
    graph_for(resolve(write_checkpoint(tmp_path / "other", llama(rms_norm_eps=1e-6), {})))
    assert len(entries(home)) == 2
    monkeypatch.setattr("importlib.metadata.version", {"torch": "2.13.0", "transformers": "5.20.0"}.__getitem__)
    graph_for(checkpoint)
    assert len(entries(home)) == 3
    monkeypatch.setattr(graphs, "sources_digest", lambda *names: "another importer")
    graph_for(checkpoint)
    assert len(entries(home)) == 4


def test_a_model_that_is_refused_leaves_no_entry(tmp_path, home):
    refused = resolve(write_checkpoint(tmp_path / "model", llama(model_type="olmo", architectures=None), {}))
    for _ in range(2):
        with pytest.raises(UnsupportedModelError):
            graph_for(refused)
    assert entries(home) == []


def test_a_warm_graph_imports_neither_torch_nor_transformers(checkpoint, tmp_path):
    graph = graph_for(checkpoint)
    program = (
        "import sys\n"
        "from amk.frontend.checkpoint import resolve\n"
        "from amk.frontend.graphs import graph_for\n"
        f"graph = graph_for(resolve({str(tmp_path / 'model')!r}))\n"
        "print(graph.digest(), sorted({'torch', 'transformers'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == f"{graph.digest()} []\n", done.stderr
