"""Every family decodes as its own HuggingFace class does at float32, or is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amk.cli.app import main
from amk.codegen.cache import cubin_for
from amk.codegen.emit import emit
from amk.frontend.importer import import_graph
from amk.frontend.supported import load_supported
from amk.ir.passes import Passes
from amk.ir.passes.tile import Tile
from amk.target import resolve_target
from amk.validator import certify
from tests.families.configs import FAMILIES, Config
from tests.families.generate import FAMILY_NAMES, random_config
from tests.families.judge import judge
from tests.families.on_chip import compiled
from tests.families.prove import markdown
from tests.gpu.diff import differences

VARIANTS = {f"{family}: {name}": config for family, variants in FAMILIES.items() for name, config in variants.items()}
PROMPT = [7, 3, 99, 11, 4, 87, 20, 51, 33, 2, 64]
EXAMPLES = 18
"""Random configs of each of the twelve families."""


@pytest.fixture(scope="module")
def shared_home(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> str:
    base = tmp_path_factory.getbasetemp()
    return str((base if worker_id == "master" else base.parent) / "families-home")


@pytest.fixture(autouse=True)
def _home(shared_home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMK_HOME", shared_home)


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_the_reference_machine_equals_huggingface(config: Config) -> None:
    outcome = judge(config)
    assert (outcome.refused, outcome.wrong, outcome.tokens) == ("", "", 120)
    assert outcome.ties <= 1


@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_the_kernel_follows_the_reference_machine(config: Config) -> None:
    """Every task, over both passes of a prompt and steps beyond every window."""
    model = compiled(config, arch="host")
    try:
        assert [str(found) for found in differences(model, PROMPT, tokens=5)] == []
    finally:
        model.close()


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_a_cubin_is_built_of_every_variant(arch: str) -> None:
    target = resolve_target(arch=arch, target=None)
    for name, config in VARIANTS.items():
        schedule = Passes(tile=Tile(max_context=128)).run(import_graph(config), target)
        assert cubin_for(emit(certify(schedule))).resources.spilled_bytes == 0, name


@pytest.mark.parametrize("family", FAMILY_NAMES)
def test_random_configs_decode_or_are_refused(family: str) -> None:
    accepted: list[bool] = []

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
    @given(st.randoms(use_true_random=False), st.integers(0, 2**31))
    def check(rng: Random, seed: int) -> None:
        outcome = judge(random_config(rng, family), tokens=8, lengths=(11,), seed=seed)
        assert outcome.wrong == ""
        accepted.append(outcome.accepted)

    check()
    print(f"{family}: {sum(accepted)} of {len(accepted)} accepted")
    assert len(accepted) >= EXAMPLES
    # How many is left to tests.families.campaign, whose configs are independent: these repeat each other's choices.
    assert sum(accepted) >= 2, "refusing everything is no way to be right"


def test_the_table_of_families_is_what_these_tests_prove(capsys: pytest.CaptureFixture[str]) -> None:
    table = {entry["family"]: entry for entry in load_supported()}
    assert {name: entry["variants"] for name, entry in table.items()} == {
        name: list(variants) for name, variants in FAMILIES.items()
    }
    for name, entry in table.items():
        assert entry["model_types"] == sorted({config["model_type"] for config in FAMILIES[name].values()})
        assert (entry["archs"]["cpu"], entry["archs"]["host"]) == ("run", "run")
    readme = Path(__file__).resolve().parents[2] / "README.md"
    assert markdown(list(table.values())) in readme.read_text(), "tests.families.prove.markdown makes README's table"
    assert main(["supported"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in FAMILIES)
    assert main(["supported", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["families"] == list(table.values())
