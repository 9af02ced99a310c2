"""The shape of the source: what no type checker or linter looks at."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = sorted((ROOT / "amk").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LINES_MAX = 400

# All that the checker may build on: it is frozen, reads records, and knows nothing of how a schedule was made.
VALIDATOR_IMPORTS = (
    "amk.errors",
    "amk.ir",
    "amk.settings",
    "amk.target",
    "amk.validator",
    "msgspec",
    "networkx",
    "numpy",
)
VALIDATOR_STRANGERS = ("amk.ir.passes",)


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports_of(path: Path) -> Iterator[str]:
    """Each module that a file imports, anywhere in it; ``from a import b`` counts as ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_under(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize("path", [*LIBRARY, *TESTS], ids=name_of)
def test_a_module_is_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LINES_MAX
    assert path.name != "utils.py", "say what it holds"


@pytest.mark.parametrize("path", LIBRARY, ids=name_of)
def test_only_settings_reads_the_environment(path: Path) -> None:
    found = {
        ast.unparse(node)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"os.environ", "os.getenv", "os.environb"}
    }
    found |= {name for name in imports_of(path) if name in {"os.environ", "os.getenv"}}
    assert not found or path == ROOT / "amk/settings.py"


@pytest.mark.parametrize("path", [path for path in LIBRARY if "cli" not in path.parts], ids=name_of)
def test_the_library_does_not_print(path: Path) -> None:
    called = [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not called, f"print on lines {called}: use logging under `amk`"


@pytest.mark.parametrize("path", sorted((ROOT / "amk/validator").rglob("*.py")), ids=name_of)
def test_the_validator_imports_nothing_it_could_be_wrong_with(path: Path) -> None:
    for module in imports_of(path):
        assert is_under(module, VALIDATOR_IMPORTS) or module.split(".")[0] in sys.stdlib_module_names, module
        assert not is_under(module, VALIDATOR_STRANGERS), module


def test_every_folder_of_modules_is_a_package() -> None:
    bare = {name_of(path.parent) for path in LIBRARY if not (path.parent / "__init__.py").exists()}
    assert not bare
