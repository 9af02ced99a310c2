"""A compiled model in the hands of a user."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amk.errors import CertificateMismatchError, NoDeviceError, NoTokenizerError
from amk.frontend.coverage import match_tensors
from amk.ir.buffers import Quantization
from amk.ir.graph import Graph
from amk.ir.schedule import Schedule
from amk.runtime.artefact import Manifest, write_artefact
from amk.runtime.device import Device, probe
from amk.runtime.generate import Generation, Generator, Prompt, Token
from amk.runtime.kernel import build_for_host, build_kernel
from amk.runtime.report import Report
from amk.runtime.session import Session
from amk.settings import settings

if TYPE_CHECKING:
    from amk.codegen.config import KernelConfig
    from amk.codegen.host import Watch
    from amk.frontend.checkpoint import Checkpoint
    from amk.interpreter.memory import LoadRope, LoadTensor
    from amk.runtime.backend import Backend
    from amk.runtime.chip import Chip
    from amk.validator import Certificate, ValidatedSchedule


class CompiledModel:
    """A model whose schedule is proved safe; ``amk.compile`` and ``amk.load`` make them.

    Weights, tokenizer and device are taken up when first needed, so compiling needs a config alone. One sequence runs
    at a time: calls from several threads are served one after another, and a stream that another call overtakes ends in
    ``SupersededError``.

    Attributes
    ----------
    checkpoint, graph
        What was compiled.
    manifest
        Names, digests and options.
    device
        CUDA ordinal to run on; None for the first of the arch.
    """

    def __init__(
        self,
        *,
        checkpoint: Checkpoint,
        graph: Graph,
        validated: ValidatedSchedule,
        manifest: Manifest,
        device: int | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.graph = graph
        self.manifest = manifest
        self.device = device
        self._validated = validated
        self._lock = threading.RLock()

    @property
    def schedule(self) -> Schedule:
        """The schedule that was proved."""
        return self._validated.schedule

    @property
    def certificate(self) -> Certificate:
        """What was proved, and of what."""
        return self._validated.certificate

    @property
    def quantization(self) -> Quantization | None:
        """How its matrices became integers; None where they are bf16."""
        return Quantization(group=self.manifest.group_size) if self.manifest.dtype == "w8a16" else None

    @property
    def arch(self) -> str:
        """``cpu``, ``host`` or the GPU architecture it is compiled for."""
        return self.schedule.target.arch

    def report(self) -> Report:
        """What was compiled, for which chip, with which memory, and the certificate; prints as text."""
        notes = self.checkpoint.notes if self.checkpoint.at_hand() else ()
        return Report.of(self.manifest, self.graph, self.schedule, self.certificate, notes)

    def generate(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> Generation:
        """Greedy decoding of text, chat messages or token ids; see ``runtime.generate.Generator.generate``."""
        with self._lock:
            return self.generator.generate(prompt, max_new_tokens=max_new_tokens, eos_token_id=eos_token_id)

    def stream(
        self,
        prompt: Prompt,
        *,
        max_new_tokens: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
    ) -> Iterator[Token]:
        """The same tokens as they are made."""
        tokens = self.generator.stream(prompt, max_new_tokens=max_new_tokens, eos_token_id=eos_token_id)
        try:
            while True:
                with self._lock:
                    token = next(tokens, None)
                if token is None:
                    return
                yield token
        finally:
            with self._lock:
                tokens.close()

    def save(self, path: str | Path) -> Path:
        """Write an ``.amk`` file: schedule, certificate, graph and config; no weights. Raises UnwritablePathError."""
        target = Path(path)
        write_artefact(
            target,
            manifest=self.manifest,
            config=self.checkpoint.config,
            graph=self.graph,
            schedule=self.schedule,
            certificate=self.certificate,
        )
        return target

    @cached_property
    def generator(self) -> Generator:
        """Prompts to text, on ``session``."""
        return Generator(
            self.session,
            tokenizer=self.tokenizer,
            eos=self.checkpoint.eos_token_ids(),
            source=self.checkpoint.source,
        )

    @cached_property
    def tokenizer(self) -> Any | None:
        """The checkpoint's HuggingFace tokenizer; None if it has none."""
        try:
            return self.checkpoint.tokenizer()
        except NoTokenizerError:
            return None  # prompts may still be token ids; text is refused when it comes

    @property
    def origin(self) -> str:
        """One line: the checkpoint that runs, where it was read, and the digest of its content. Reads the weights."""
        _ = self.session
        return f"{self.checkpoint.source}; sha256 {self.checkpoint.digest()[:16]}"

    @cached_property
    def session(self) -> Session:
        """The model on its device; the weights are read now.

        Raises
        ------
        CheckpointError
            The weights cannot be had, or are not those of this model.
        NoDeviceError
            There is nothing to run it on.
        """
        return self.open_session()

    def open_session(self, *, seed: int | None = None, stamped: bool = False) -> Session:
        """A session of its own, with its own memory.

        ``seed`` shuffles the order of the reference machine's tasks, or of the threads of ``arch="host"``. ``stamped``
        is for a kernel that writes when its tasks run, once ``backend.stamps`` says where.
        """
        if self.arch == "cpu":
            return self.machine_session(seed=seed)
        if self.arch == "host":
            return self.host_session(seed=seed, stamped=stamped)
        from amk.runtime.cuda import CudaChip

        device = self._device()
        kernel = build_kernel(self._validated, stamped=stamped)
        chip = CudaChip(kernel.cubin, kernel.config, device=device, workers=len(self.schedule.queues))
        return self._kernel_session(kernel.config, chip, watchdog_s=settings().watchdog_s)

    def host_session(self, *, seed: int | None = None, watch: Watch = "nothing", stamped: bool = False) -> Session:
        """A session that runs the kernel on this machine's processor, watched by ``watch``. Compiled for arch host.

        Raises
        ------
        BuildError
        """
        from amk.runtime.host import PATIENCE, HostChip

        kernel = build_for_host(self._validated, watch, stamped=stamped)
        chip = HostChip(kernel.program, kernel.config, workers=len(self.schedule.queues), seed=seed or 0)
        return self._kernel_session(kernel.config, chip, watchdog_s=PATIENCE * settings().watchdog_s)

    def _kernel_session(self, config: KernelConfig, chip: Chip, *, watchdog_s: float) -> Session:
        from amk.runtime.launch import KernelBackend

        load, rope = self._weights()
        return self._session_on(
            KernelBackend(self._validated, config, chip, load=load, rope=rope, watchdog_s=watchdog_s)
        )

    def machine_session(self, *, seed: int | None = None) -> Session:
        """A session that runs the schedule, whatever its chip, on the reference machine."""
        from amk.runtime.backend import MachineBackend

        load, rope = self._weights()
        return self._session_on(MachineBackend(self._validated, load, rope, seed=seed))

    def _session_on(self, backend: Backend) -> Session:
        return Session(backend, vocab=self.graph.vocab, context_limit=self.graph.context_limit)

    def _device(self) -> Device:
        """The device asked for, or the first of the program's arch."""
        driver = probe()
        for device in driver.devices:
            if device.arch == self.arch and self.device in (None, device.ordinal):
                return device
        found = ", ".join(f"{device.name} ({device.arch})" for device in driver.devices)
        why = driver.missing or f"this machine has {found or 'no device'}"
        raise NoDeviceError(arch=self.arch, action="run a model", why=why)

    def _weights(self) -> tuple[LoadTensor, LoadRope]:
        """How to load the checkpoint's tensors and its rotary factors, once it is known to be the one compiled.

        Raises
        ------
        CheckpointError, CertificateMismatchError
        """
        from amk.frontend.rope import rope_table

        match_tensors(self.graph, self.checkpoint)
        expected = self.manifest.weights_digest
        if expected and (found := self.checkpoint.digest()) != expected:
            raise CertificateMismatchError(
                path=self.checkpoint.name,
                field="weights",
                found=f"sha256 {found[:16]}",
                expected=f"sha256 {expected[:16]}",
            )
        config, tables = self.checkpoint.config, self.graph.ropes
        return self.checkpoint.load, lambda table, rows: rope_table(config, rows, layer_type=tables[table].layer_type)

    def close(self) -> None:
        """Give back the memory and device that ``session`` holds; they are taken up again when next needed."""
        with self._lock:
            session = self.__dict__.pop("session", None)
            self.__dict__.pop("generator", None)
            if session is not None:
                session.backend.close()

    def __repr__(self) -> str:
        return f"CompiledModel({self.manifest.model!r}, target={self.schedule.target.name!r})"
