"""How a kernel, a reference and their input maker are named, so that a process of their own can load them."""

from __future__ import annotations

import hashlib
from typing import TypeAlias

from amk.contracts.wire import Node
from amk.ir.record import Record

MODULE_INPUTS = "get_inputs"
MODULE_INIT = "get_init_inputs"


class Pickled(Record, tag="pickled"):
    """A callable as cloudpickle has it.

    Attributes
    ----------
    paths
        Folders that its modules are imported from; before those of the interpreter.
    """

    data: bytes
    label: str
    paths: tuple[str, ...] = ()


class Named(Record, tag="named"):
    """What a module holds: ``target`` is ``module.path:attribute``. A class is built, see ``Text``."""

    target: str
    paths: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.target


class Text(Record, tag="text"):
    """A module's source text, and what it holds.

    Attributes
    ----------
    attribute
        A class is built with the reference's init inputs; any other callable is the kernel itself.
    label
        Where the text is from: for messages.
    """

    code: str
    attribute: str
    label: str = "text"
    paths: tuple[str, ...] = ()


class Factory(Record, tag="factory"):
    """A function that makes the kernel: ``module.path:function``, and its arguments, without tensors."""

    target: str
    arguments: tuple[Node, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        return self.target


Source: TypeAlias = Pickled | Named | Text | Factory


class KernelPair(Record):
    """A kernel, what it should equal, and how their inputs are made.

    Attributes
    ----------
    inputs
        A source of a function of no argument, or of a seed; or the name of one in the module of ``reference``.
    init
        In the module of ``reference``, a function that makes the arguments which its class, and the candidate's, are
        built with. A module without one builds without arguments.
    """

    name: str
    candidate: Source
    reference: Source
    inputs: Source | str = MODULE_INPUTS
    init: str = MODULE_INIT


def kernelbench_pair(
    name: str, *, reference: str, candidate: str, model: str = "Model", model_new: str = "ModelNew"
) -> KernelPair:
    """The pair of two source texts in KernelBench's form.

    Parameters
    ----------
    reference
        Defines the class ``model``, ``get_inputs`` and ``get_init_inputs``.
    candidate
        Defines the class ``model_new``; may be the same text.
    """
    return KernelPair(
        name=name,
        candidate=Text(code=candidate, attribute=model_new, label=f"{name}: {model_new}"),
        reference=Text(code=reference, attribute=model, label=f"{name}: {model}"),
    )


def digest_of(source: Source) -> str:
    """sha256, in hex, of what a source says: of builds that it makes."""
    import msgspec

    return hashlib.sha256(msgspec.json.encode(source)).hexdigest()
