"""What a compilation made, as one record that prints."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from amk.ir.graph import Graph
from amk.ir.record import Record
from amk.ir.schedule import Schedule
from amk.runtime.artefact import Manifest
from amk.runtime.kernel import KernelFacts

if TYPE_CHECKING:
    from amk.validator import Certificate


class Report(Record):
    """Sizes are bytes of one device. ``notes`` say what was converted or assumed on the way in."""

    model: str
    source: str
    config_digest: str
    weights_digest: str
    family: str
    layers: int
    hidden: int
    vocab: int
    arch: str
    target: str
    workers: int
    dtype: str
    group_size: int
    kv_dtype: str
    max_context: int
    tokens_per_pass: int
    tasks: dict[str, int]
    hops: int
    weight_bytes: int
    kv_bytes: int
    activation_bytes: int
    schedule_digest: str
    certificate: str
    kernel: KernelFacts | None
    notes: tuple[str, ...]

    @classmethod
    def of(
        cls, manifest: Manifest, graph: Graph, schedule: Schedule, certificate: Certificate, notes: tuple[str, ...]
    ) -> Report:
        """Gather the facts of a compiled model."""
        sizes: Counter[str] = Counter()
        for buffer in schedule.buffers:
            sizes[buffer.kind] += buffer.bytes
        weights = sizes["weight"] + sizes["const"]
        return cls(
            model=manifest.model,
            source=manifest.source,
            config_digest=manifest.config_digest,
            weights_digest=manifest.weights_digest,
            family=graph.family,
            layers=graph.layers,
            hidden=graph.hidden,
            vocab=graph.vocab,
            arch=schedule.target.arch,
            target=schedule.target.name,
            workers=len(schedule.queues),
            dtype=manifest.dtype,
            group_size=manifest.group_size,
            kv_dtype=manifest.kv_dtype,
            max_context=schedule.max_context,
            tokens_per_pass=schedule.symbol("tokens").high,
            tasks=dict(Counter(type(task.op).__name__.lower() for task in schedule.tasks)),
            hops=len(schedule.counters),
            weight_bytes=weights,
            kv_bytes=sizes["kv"],
            activation_bytes=sum(sizes.values()) - weights - sizes["kv"],
            schedule_digest=schedule.digest(),
            certificate=certificate.one_line(),
            kernel=manifest.kernel,
            notes=notes,
        )

    def __str__(self) -> str:
        tasks = ", ".join(f"{count} {kind}" for kind, count in self.tasks.items())
        groups = f" in groups of {self.group_size}" if self.group_size else ""
        weights = self.weights_digest[:16] or "not at hand; resolved when first needed"
        lines = [
            ("model", f"{self.model} ({self.family}, {self.layers} layers, hidden {self.hidden}, vocab {self.vocab})"),
            ("source", self.source),
            ("config", f"sha256 {self.config_digest[:16]}"),
            ("weights", f"{weights if not self.weights_digest else f'sha256 {weights}'}"),
            ("target", f"{self.target} ({self.arch}), {self.workers} workers"),
            ("precision", f"weights {self.dtype}{groups}, KV cache {self.kv_dtype}"),
            ("context", f"{self.max_context} positions, {self.tokens_per_pass} prompt tokens a pass"),
            (
                "memory",
                f"weights {_mb(self.weight_bytes)}, KV {_mb(self.kv_bytes)}, other {_mb(self.activation_bytes)}",
            ),
            ("schedule", f"sha256 {self.schedule_digest[:16]}, {self.hops} hops; {tasks}"),
            ("certificate", self.certificate),
            *([("kernel", str(self.kernel))] if self.kernel else []),
            *(("note", note) for note in self.notes),
        ]
        return "\n".join(f"{name:<12} {text}" for name, text in lines)


def _mb(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"
