"""Kernels that are compiled when they are loaded or first called: as on any other machine, and once."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
import torch

from amk.contracts.outcomes import Answer, Ask, Outcome
from amk.contracts.sources import Text
from amk.contracts.subject import Limits, Process, Ready, release

X = torch.arange(6.0).reshape(2, 3)
LIMITS = Limits(timeout_s=60.0, first_timeout_s=120.0, load_timeout_s=120.0)

# Without torch's headers, which take a compiler half a minute: what is built is a plain extension module.
INLINE = r"""
from torch.utils.cpp_extension import load_inline

SOURCE = '''
#include <Python.h>
static PyObject *twice(PyObject *self, PyObject *arguments) {
    unsigned long long from, to, count;
    if (!PyArg_ParseTuple(arguments, "KKK", &from, &to, &count)) return nullptr;
    for (unsigned long long i = 0; i < count; ++i) ((float *)to)[i] = 2 * ((float *)from)[i];
    Py_RETURN_NONE;
}
static PyMethodDef methods[] = {{"twice", twice, METH_VARARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "inline_twice", "", -1, methods};
PyMODINIT_FUNC PyInit_inline_twice() { return PyModule_Create(&module); }
'''
extension = load_inline("inline_twice", [SOURCE], no_implicit_headers=True, extra_cflags=["-O0"])

def kernel(x):
    out = x.new_empty(x.shape)
    extension.twice(x.data_ptr(), out.data_ptr(), x.numel())
    return out
"""


def asked(process: Process, **how: object) -> Answer:
    outcome: Outcome = process.ask(Ask(inputs=(X,), **how))  # type: ignore[arg-type]
    assert isinstance(outcome, Answer), outcome
    return outcome


@pytest.mark.skipif(not (shutil.which("g++") and shutil.which("ninja")), reason="needs a C++ compiler and ninja")
def test_an_inline_extension_is_built_once_a_kernel(amk_home: Path) -> None:
    code = f"import torch\n{INLINE}"
    taken = []
    for _ in range(2):
        with Process(Text(code=code, attribute="kernel"), limits=LIMITS) as process:
            start = time.monotonic()
            loaded = process.load()
            taken.append(time.monotonic() - start)
            assert isinstance(loaded, Ready), loaded
            assert torch.equal(asked(process).values[0], X * 2)
    assert taken[1] < taken[0] / 2
    assert list(amk_home.glob("cache/kernels/*/extensions/inline_twice/*.so"))
    other = Process(Text(code=code.replace("2 *", "3 *"), attribute="kernel"), limits=LIMITS)
    with other:
        assert isinstance(other.load(), Ready)
        assert torch.equal(asked(other).values[0], X * 3), "not what another kernel has built under the same name"


def test_locks_of_builds_that_were_killed_are_removed(amk_home: Path) -> None:
    folder = amk_home / "extensions" / "one"
    folder.mkdir(parents=True)
    lock = folder / "lock"
    lock.touch()
    release(amk_home, older_than_s=100.0)
    assert lock.exists()
    release(amk_home, older_than_s=0.0)
    assert not lock.exists()


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_what_torch_compiles_is_called_like_any_other(amk_home: Path) -> None:
    code = "import torch\n@torch.compile\ndef kernel(x):\n    return torch.empty_like(x).copy_(x) * 2"
    with Process(Text(code=code, attribute="kernel"), limits=LIMITS) as process:
        plain = asked(process)
        poisoned = asked(process, poison=0xFF)
    assert torch.equal(plain.values[0], X * 2)
    assert plain.digests == poisoned.digests
    assert plain.patched == ()
    assert plain.threads == ()
