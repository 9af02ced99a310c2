"""Starting up loads no framework. Modules are counted rather than milliseconds, which depend on the machine."""

from __future__ import annotations

import pytest

import amk
from amk.errors import AmkError
from tests.conftest import Run

HEAVY = ("torch", "transformers", "numpy", "cuda", "huggingface_hub", "networkx", "safetensors", "jinja2", "gguf")


def loaded_after(run_python: Run, program: str) -> set[str]:
    ran = run_python(f"{program}\nimport sys\nsys.stderr.write(' '.join(sys.modules))")
    assert ran.returncode == 0, ran.stderr
    return {name.partition(".")[0] for name in ran.stderr.split()}


@pytest.mark.parametrize(
    "program",
    [
        "import amk; amk.__version__; amk.AmkError; dir(amk)",
        "import amk.settings, amk.target, amk.ir",
        "from amk.cli.app import main; assert main(['--help']) == 0",
        "from amk.cli.app import main; assert main(['cache', 'info']) == 0",
    ],
)
def test_nothing_heavy_is_imported(run_python: Run, program: str) -> None:
    assert not loaded_after(run_python, program) & set(HEAVY)


def test_doctor_learns_versions_without_importing_frameworks(run_python: Run) -> None:
    assert not loaded_after(run_python, "from amk.cli.app import main; main(['doctor'])") & {"torch", "transformers"}


def test_import_amk_is_the_package_alone(run_python: Run) -> None:
    ran = run_python("import amk, sys; print([name for name in sys.modules if name.startswith('amk')])")
    assert ran.stdout.strip() == "['amk']"


def test_the_public_names_are_listed_and_no_others_exist() -> None:
    assert {"compile", "load", "validate", "Generation", "CompiledModel", "AmkError"} <= set(dir(amk))
    assert amk.AmkError is AmkError
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = amk.no_such_name


def test_an_importer_hears_nothing_from_the_logger(run_python: Run) -> None:
    ran = run_python("import amk, logging; logging.getLogger('amk.frontend').warning('heard')")
    assert (ran.stdout, ran.stderr) == ("", "")
