"""The source of a kernel: constants from the schedule, headers from csrc/, and a digest of all of it."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from msgspec.structs import replace

from amk.codegen import abi, emit
from amk.codegen.config import kernel_config
from amk.codegen.emit import TEMPLATE, environment, render, vm_digest
from amk.codegen.errors import NotGeneratableError
from amk.target import resolve_target
from amk.validator import certify
from tests.builders import llama_graph, lower
from tests.codegen.programs import CONFIG, GEMV
from tests.codegen.shapes import ARCHS, scheduled
from tests.conftest import Run

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "kernel.sm_90.cu"

TEMPLATE_LINES = 60

CHOSEN = {"copy.cuh", "trace.cuh"}
"""Primitives under the name by which they are included."""


def test_the_golden_kernel(update_golden: bool) -> None:
    text = render(kernel_config(scheduled("smollm2", "sm_90")))
    if update_golden:
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def other(value: object) -> object:
    return not value if isinstance(value, bool) else 12345


@pytest.mark.parametrize("field", [name for name in CONFIG.__struct_fields__ if name != "gemvs"])
def test_every_constant_is_in_the_source(field: str) -> None:
    assert render(CONFIG) != render(replace(CONFIG, **{field: other(getattr(CONFIG, field))}))


@pytest.mark.parametrize("field", GEMV.__struct_fields__)
def test_every_constant_of_a_shape_is_in_the_source(field: str) -> None:
    changed = replace(GEMV, **{field: other(getattr(GEMV, field))})
    assert render(CONFIG) != render(replace(CONFIG, gemvs=(changed,)))
    both = render(replace(CONFIG, gemvs=(GEMV, changed)))
    assert both.count("struct Gemv") == 2
    assert "case 1:" in both


@pytest.mark.parametrize(
    "variables", [{}, {"config": CONFIG}, {"config": object(), "kernels": [("amk_kernel", "true")]}]
)
def test_a_missing_variable_is_an_error(variables: dict[str, object]) -> None:
    with pytest.raises(UndefinedError):
        environment().get_template(TEMPLATE).render(**variables)


def test_templates_hold_types_constants_and_instantiations_only() -> None:
    templates = list((resources.files("amk.codegen") / "templates").iterdir())
    assert templates
    for template in templates:
        text = template.read_text(encoding="utf-8")
        assert len(text.splitlines()) < TEMPLATE_LINES, template.name
        controls = re.findall(r"{%-? *(\w+)", text)
        assert set(controls) <= {"for", "endfor"}, f"{template.name}: an instantiation needs no other control flow"


@pytest.mark.parametrize("arch", ARCHS)
def test_what_the_compiler_is_given(arch: str) -> None:
    source = emit.emit(certify(scheduled("smollm2", arch)))
    assert source.arch == arch
    assert source.headers["abi.cuh"] == abi.header()
    assert (
        source.headers["copy.cuh"] == source.headers["prim/async/copy.cuh" if arch == "sm_80" else "prim/bulk/copy.cuh"]
    )
    assert f"__launch_bounds__({source.config.threads}, 1)" in source.text
    assert f"<= {source.config.shared_bytes}" in source.text


def test_the_digest_is_stable(run_python: Run) -> None:
    program = """
from amk.codegen.emit import emit, vm_digest
from amk.validator import certify
from tests.codegen.shapes import scheduled
print(emit(certify(scheduled("smollm2", "sm_90"))).digest(), vm_digest("sm_90"), vm_digest("host"))
"""
    here = f"{emit.emit(certify(scheduled('smollm2', 'sm_90'))).digest()} {vm_digest('sm_90')} {vm_digest('host')}\n"
    for seed in ("1", "2"):
        result = run_python(program, PYTHONHASHSEED=seed)
        assert result.stdout == here, result.stderr


def test_models_of_one_shape_have_one_kernel() -> None:
    target = scheduled("smollm2", "sm_90").target
    one, other = llama_graph(), llama_graph(vocab=1009, layers=1)
    digests = {emit.emit(certify(lower(graph, target))).digest() for graph in (one, other)}
    assert len(digests) == 1


def test_there_is_no_kernel_for_a_cpu() -> None:
    with pytest.raises(NotGeneratableError, match="arch cpu"):
        emit.emit(certify(lower(llama_graph())))


@pytest.mark.parametrize(("arch", "of"), [("sm_90", "csrc_headers"), ("host", "host_headers")])
def test_the_digest_of_the_machine_covers_every_header(arch: str, of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    headers = getattr(emit, of)()
    digests = {vm_digest(arch)}
    for name in headers:
        monkeypatch.setattr(emit, of, lambda name=name: {**headers, name: headers[name] + "\n"})
        digests.add(vm_digest(arch))
    monkeypatch.setattr(emit, of, lambda: headers)
    monkeypatch.setattr(abi, "header", lambda: "")
    digests.add(vm_digest(arch))
    assert len(digests) == len(headers) + 2


def test_generating_a_kernel_loads_no_framework_and_no_driver(run_python: Run) -> None:
    result = run_python(
        "import sys, amk.codegen.cache, amk.codegen.emit\n"
        "print([name for name in ('torch', 'transformers', 'cuda') if name in sys.modules])"
    )
    assert result.stdout == "[]\n", result.stderr


def test_the_host_is_given_what_nvrtc_is_given() -> None:
    """Byte for byte, but for the primitives and what stands behind them."""
    chips = [resolve_target(arch=arch, target="h200") for arch in ("host", "sm_90")]
    host, gpu = (emit.emit(certify(lower(llama_graph(), chip))) for chip in chips)
    assert host.text == gpu.text
    shared = {path for path in gpu.headers if not path.startswith("prim/") and path not in CHOSEN}
    assert {path for path in shared if path.startswith(("vm/", "ops/"))} > {"vm/kernel.cuh", "ops/gemv.cuh"}
    assert {path: gpu.headers[path] for path in shared} == {path: host.headers[path] for path in shared}
    rest = host.headers.keys() - shared
    assert all(path.startswith(("prim/", "host/")) or path in CHOSEN for path in rest)
