"""The whole line, checkpoint to compiled model, as one readable function each way."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace as replace_options
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace
from rich.console import Console

import amk
from amk.errors import BadOptionError, CertificateMismatchError
from amk.frontend.checkpoint import resolve
from amk.frontend.coverage import match_tensors
from amk.frontend.graphs import graph_for
from amk.ir.buffers import Quantization
from amk.ir.graph import Graph
from amk.ir.passes import Passes
from amk.ir.passes.tile import Tile
from amk.ir.quantize import GROUP_SIZES
from amk.ir.schedule import Schedule
from amk.parity.verdicts import ensure_twin
from amk.runtime.artefact import ARTEFACT_VERSION, Manifest, read_artefact
from amk.runtime.device import probe
from amk.runtime.kernel import KernelFacts, build_for_host, build_kernel
from amk.runtime.model import CompiledModel
from amk.target import Target, resolve_target
from amk.validator import ValidatedSchedule, certify, check_certificate

__all__ = ["CompiledModel", "compile", "load"]

logger = logging.getLogger("amk.pipeline")

DEFAULT_CONTEXT: Final = 8192
DTYPES: Final = ("bf16", "w8a16")
MOST_TOKENS_PER_PASS: Final = 8  # hi and lo of eight rows fill the sixteen rows of a matrix instruction

_KV: Final[dict[str, Literal["f32", "bf16"]]] = {"float32": "f32", "bfloat16": "bf16"}


def compile(  # noqa: A001 - amk.compile is what users call it
    model: object,
    *,
    arch: str | None = None,
    target: str | None = None,
    dtype: str = "bf16",
    group_size: int = 0,
    kv_dtype: str = "float32",
    max_context: int | None = None,
    tokens_per_pass: int = MOST_TOKENS_PER_PASS,
    revision: str | None = None,
    local_files_only: bool = False,
    cache_dir: str | Path | None = None,
    device: int | None = None,
    progress: bool = True,
) -> CompiledModel:
    """Compile a checkpoint: recognise it, check its twin against HuggingFace, schedule it, prove the schedule safe.

    Parameters
    ----------
    model
        An alias (``SmolLM2-135M``), hub id, folder, GGUF file, or a transformers model in memory.
    arch
        ``cpu`` (the reference machine), ``host`` (the kernel, on this processor), ``sm_80``, ``sm_90`` or ``sm_120``;
        None for this machine's GPU, else ``cpu``.
    target
        A chip record (``h200``, ``a100`` ...); the arch's default otherwise. A present device's SM count wins.
    dtype
        Of the weights: ``bf16``, or ``w8a16``: matrices as eight-bit integers, activations as they are; an embedding
        that is not the head as well stays bf16.
    group_size
        With ``w8a16``, columns of a row that share a scale: 64 or 128; 0 for all of them.
    kv_dtype
        Of the KV cache: ``float32``, or ``bfloat16`` for half the memory and less precision.
    max_context
        Positions of the KV cache; None for the model's limit, at most 8192.
    tokens_per_pass
        Prompt tokens that one pass over the weights processes, 1 to 8.
    revision, local_files_only, cache_dir
        As in huggingface_hub, for hub ids.
    device
        CUDA ordinal to plan for and to run on; None for the first of the arch.
    progress
        Show the stage on a terminal.

    Raises
    ------
    UsageError, CheckpointError, UnsupportedModelError, TwinMismatchError
        What was asked for, the checkpoint or the model is not possible; the message names the mend.
    ScheduleRefutedError, ScheduleUnknownError
        The lowering made a schedule that could not be proved: a defect in amk, and nothing runs.
    BuildError
        The kernel cannot be built.
    """
    quantization = _quantization(dtype, group_size)
    _check_options(kv_dtype=kv_dtype, tokens_per_pass=tokens_per_pass)
    chip = choose_target(arch=arch, target=target, device=device)
    checkpoint = resolve(model, revision=revision, local_files_only=local_files_only, cache_dir=cache_dir)
    with _stage(f"recognising {checkpoint.name}", progress):
        graph = graph_for(checkpoint)
        if checkpoint.at_hand():
            match_tensors(graph, checkpoint)
    context = _context(max_context, graph)
    tile = Tile(max_context=context, tokens_per_pass=min(tokens_per_pass, context), kv_dtype=_KV[kv_dtype])
    with _stage("comparing its twin with HuggingFace", progress):
        ensure_twin(checkpoint, Passes(tile=tile), chip)  # what the model is, whatever its weights are rounded to
    passes = Passes(tile=replace_options(tile, quantization=quantization))
    with _stage(f"scheduling for {chip.name}", progress):
        schedule = passes.run(graph, chip)
    with _stage("proving the schedule safe", progress):
        validated = certify(schedule, vm=vm_for(schedule))
    manifest = Manifest(
        version=ARTEFACT_VERSION,
        amk=amk.__version__,
        model=checkpoint.name,
        source=checkpoint.source,
        config_digest=checkpoint.config_digest(),
        weights_digest=checkpoint.digest() if checkpoint.at_hand() else "",
        dtype=dtype,
        group_size=group_size,
        kv_dtype=kv_dtype,
        kernel=_kernel_facts(validated, progress),
    )
    return CompiledModel(checkpoint=checkpoint, graph=graph, validated=validated, manifest=manifest, device=device)


def load(path: str | Path, *, model: object | None = None, progress: bool = True) -> CompiledModel:
    """Load an ``.amk`` file. Its schedule is proved again: a stored verdict is never trusted.

    Parameters
    ----------
    model
        The checkpoint, where the name in the file does not lead to it (it was compiled from memory, or has moved).

    Raises
    ------
    UnreadableInputError, ArtefactError, CertificateMismatchError
        The file cannot be read, is not what it should be, or its parts do not fit each other.
    CheckpointError
        The checkpoint it names cannot be resolved, or is no longer the one that was compiled.
    ScheduleRefutedError, ScheduleUnknownError, BuildError
    """
    file = Path(path)
    artefact = read_artefact(file)
    manifest = artefact.manifest
    checkpoint = resolve(manifest.model if model is None else model)
    if checkpoint.config_digest() != manifest.config_digest:
        raise CertificateMismatchError(
            path=file, field="config", found=checkpoint.config_digest(), expected=manifest.config_digest
        )
    with _stage("proving the schedule safe", progress):
        validated = certify(artefact.schedule, vm=vm_for(artefact.schedule))
    check_certificate(artefact.certificate, artefact.schedule, path=file, vm=vm_for(artefact.schedule))
    kernel = _kernel_facts(validated, progress)
    if manifest.kernel is not None and kernel is not None and kernel.source != manifest.kernel.source:
        raise CertificateMismatchError(
            path=file, field="kernel source", found=manifest.kernel.source, expected=kernel.source
        )
    return CompiledModel(
        checkpoint=checkpoint, graph=artefact.graph, validated=validated, manifest=replace(manifest, kernel=kernel)
    )


def _kernel_facts(validated: ValidatedSchedule, progress: bool) -> KernelFacts | None:  # noqa: FBT001 - as _stage
    if validated.schedule.target.arch == "cpu":
        return None
    with _stage("building the kernel", progress):
        build = build_for_host if validated.schedule.target.arch == "host" else build_kernel
        return build(validated).facts


def vm_for(schedule: Schedule) -> str:
    """Digest of the virtual machine that runs ``schedule``: the kernel's on a GPU, none on the reference machine."""
    if schedule.target.arch == "cpu":
        return ""
    from amk.codegen.emit import vm_digest

    return vm_digest(schedule.target.arch)


def choose_target(*, arch: str | None, target: str | None, device: int | None) -> Target:
    """The chip to plan for: what was asked for, sized as the device that is present.

    Raises
    ------
    UnknownArchError, UnknownTargetError, TargetArchMismatchError, BadOptionError
    """
    asked = resolve_target(arch=arch, target=target) if arch or target else None
    if asked is not None and asked.arch in ("cpu", "host"):
        return asked
    present = [found for found in probe().devices if found.supported and (asked is None or found.arch == asked.arch)]
    if device is not None:
        chosen = [found for found in present if found.ordinal == device]
        if not chosen:
            here = ", ".join(f"{found.ordinal} ({found.name}, {found.arch})" for found in present) or "none"
            raise BadOptionError(
                option="device", value=device, why="there is no such device of that arch", fix=f"use one of: {here}"
            )
        present = chosen
    if not present:
        return asked or resolve_target(arch="cpu", target=None)
    arch_here = asked.arch if asked else present[0].arch
    return resolve_target(arch=arch_here, target=target, workers=present[0].workers)


def _quantization(dtype: str, group_size: int) -> Quantization | None:
    if dtype not in DTYPES:
        fix = "use one of: " + ", ".join(DTYPES)
        raise BadOptionError(option="dtype", value=dtype, why="there is no such weight format", fix=fix)
    if group_size not in (0, *GROUP_SIZES):
        fix = f"use 0, or one of: {', '.join(map(str, GROUP_SIZES))}"
        raise BadOptionError(option="group_size", value=group_size, why="no kernel has such groups", fix=fix)
    if dtype == "w8a16":
        return Quantization(group=group_size)
    if group_size:
        raise BadOptionError(
            option="group_size", value=group_size, why=f"{dtype} has no scales", fix='use it with dtype="w8a16"'
        )
    return None


def _check_options(*, kv_dtype: str, tokens_per_pass: int) -> None:
    if kv_dtype not in _KV:
        fix = "use one of: " + ", ".join(_KV)
        raise BadOptionError(option="kv_dtype", value=kv_dtype, why="there is no such cache format", fix=fix)
    if not 1 <= tokens_per_pass <= MOST_TOKENS_PER_PASS:
        why = "a pass takes hi and lo of eight rows at most"
        raise BadOptionError(option="tokens_per_pass", value=tokens_per_pass, why=why, fix="use 1 to 8")


def _context(asked: int | None, graph: Graph) -> int:
    if asked is None:
        return min(graph.context_limit, DEFAULT_CONTEXT)
    if not 1 <= asked <= graph.context_limit:
        why = f"the model was made for {graph.context_limit} positions"
        raise BadOptionError(option="max_context", value=asked, why=why, fix=f"use 1 to {graph.context_limit}")
    return asked


@contextmanager
def _stage(what: str, progress: bool) -> Iterator[None]:  # noqa: FBT001 - passed on from compile
    """Log a stage, and show it while it lasts where someone is watching."""
    logger.info(what)
    console = Console(stderr=True)
    if progress and console.is_terminal:
        with console.status(f"{what} ..."):
            yield
    else:
        yield
