"""How often the standard test, as gate G00 has it, agrees with the benchmark's own rule, stated once more here.

The rule, from its description: build both models under one seed; five times, draw inputs under a fresh seed, run the
reference and then the kernel on them in one process, and require equal shapes and ``torch.allclose`` at 1e-2. Whatever
raises is incorrect.

    python -m tests.contracts.agreement --out FILE [--correct 200 --broken 200]
"""

from __future__ import annotations

import argparse
import multiprocessing
import platform
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import msgspec
import torch
from torch import Tensor

from amk.contracts.sources import kernelbench_pair
from amk.contracts.verdicts import STANDARD
from amk.contracts.verify import Options, judge_kernel
from tests.contracts.mutants.broken import broken
from tests.contracts.mutants.compose import Kernel
from tests.contracts.mutants.correct import correct

TRIALS = 5
TOLERANCE = 1e-2
BUILD_SEED = 42
TIMEOUT_S = 60.0
CALLS_BEFORE = 3
"""About as many as the judge makes before G00: with the inputs as they are made, and to find a size that is quick."""

RETRIALS = 9
"""Other seeds under which the rule is asked once more about a kernel that the two disagree on."""

FORK = multiprocessing.get_context("fork")


class Row(msgspec.Struct, frozen=True, omit_defaults=True):
    """One kernel: what the rule and G00 say. ``explained`` is of a disagreement."""

    kernel: str
    mutation: str
    rule: bool
    gate: bool
    explained: str = ""


class Study(msgspec.Struct, frozen=True):
    """``agreement`` is the share of kernels on which the two say the same."""

    torch: str
    machine: str
    tolerance: float
    trials: int
    kernels: int
    agreement: float
    both_accept: int
    both_refuse: int
    only_rule_accepts: int
    only_gate_accepts: int
    disagreements: tuple[Row, ...]
    rows: tuple[Row, ...]


# --- the rule --------------------------------------------------------------------------------------------------------


def rule_accepts(text: str, seed: int = BUILD_SEED, *, keep: bool = False, calls: int = 0) -> bool:
    """What the rule says of a module, in a process that is thrown away; of one that does not come back, no.

    ``keep`` leaves the inputs of all trials in memory, so that none has the address of one before. ``calls`` more are
    made of the kernel in the beginning.
    """
    ours, theirs = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_send_verdict, args=(text, seed, theirs, keep, calls))
    process.start()
    theirs.close()
    try:
        return bool(ours.poll(TIMEOUT_S) and ours.recv())
    except EOFError:
        return False
    finally:
        process.kill()
        process.join()
        ours.close()


def _send_verdict(text: str, seed: int, connection: Connection, keep: bool, calls: int) -> None:
    connection.send(_is_correct(text, seed, [] if keep else None, calls))


def _is_correct(text: str, seed: int, kept: list[object] | None, calls: int) -> bool:
    module = ModuleType("benchmarked")
    try:
        exec(compile(text, "<benchmarked>", "exec"), module.__dict__)
        torch.manual_seed(seed)
        reference = module.Model(*module.get_init_inputs())
        torch.manual_seed(seed)
        kernel = module.ModelNew(*module.get_init_inputs())
        torch.manual_seed(seed)
        seeds = torch.randint(2**31, (TRIALS,)).tolist()
        with torch.no_grad():
            for _ in range(calls):
                kernel(*module.get_inputs())
            return all(_trial(module, reference, kernel, each, kept) for each in seeds)
    except Exception:  # noqa: BLE001 - the rule: whatever raises is incorrect
        return False


def _trial(
    module: ModuleType, reference: torch.nn.Module, kernel: torch.nn.Module, seed: int, kept: list[object] | None
) -> bool:
    torch.manual_seed(seed)
    inputs = module.get_inputs()
    if kept is not None:
        kept.append(inputs)
    return all(
        mine.shape == theirs.shape and torch.allclose(mine, theirs, atol=TOLERANCE, rtol=TOLERANCE)
        for theirs, mine in zip(_tensors(reference(*inputs)), _tensors(kernel(*inputs)), strict=True)
    )


def _tensors(result: object) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


# --- the study -------------------------------------------------------------------------------------------------------


def gate_accepts(text: str) -> tuple[bool, int]:
    """(what G00 says of a module, at how many of its seeds the results were close enough)."""
    judgement = judge_kernel(kernelbench_pair("kernel", reference=text, candidate=text), Options(gates=(STANDARD,)))
    finding = judgement.finding(STANDARD)
    if finding is None:  # it does not load, or not live through its own inputs
        return False, 0
    return finding.verdict == "pass", int(finding.figures[f"passed at {TOLERANCE:g}"])


def row_of(kernel: Kernel) -> Row:
    """Both verdicts, and where they differ why."""
    rule, (gate, passed) = rule_accepts(kernel.text), gate_accepts(kernel.text)
    explained = "" if rule == gate else _explained(kernel.text, rule=rule, passed=passed)
    return Row(kernel=kernel.name, mutation=kernel.mutation, rule=rule, gate=gate, explained=explained)


def _explained(text: str, *, rule: bool, passed: int) -> str:
    """What decides between the two, if that can be shown; else somebody has to look."""
    if rule != rule_accepts(text, keep=True):
        return "an address decides: the rule's inputs come where those of a trial before were, G00's do not"
    if rule != rule_accepts(text, calls=CALLS_BEFORE):
        return f"the number of calls decides: the rule itself changes its mind behind {CALLS_BEFORE} more of them"
    accepted = rule + sum(rule_accepts(text, BUILD_SEED + 1 + more) for more in range(RETRIALS))
    if 0 < accepted < 1 + RETRIALS:
        return (
            f"the draw decides: the rule itself accepts it under {accepted} of {1 + RETRIALS} seeds, and it is within "
            f"the tolerance at {passed} of G00's {TRIALS} draws"
        )
    if passed not in {0, TRIALS}:
        return f"the draw decides: it is within the tolerance at {passed} of G00's {TRIALS} draws"
    return ""


def study(kernels: Iterable[Kernel]) -> Study:
    """Ask both about each kernel."""
    rows = tuple(_noted(kernels))
    agreeing = sum(row.rule == row.gate for row in rows)
    return Study(
        torch=str(torch.__version__),
        machine=platform.machine(),
        tolerance=TOLERANCE,
        trials=TRIALS,
        kernels=len(rows),
        agreement=agreeing / len(rows),
        both_accept=sum(row.rule and row.gate for row in rows),
        both_refuse=sum(not row.rule and not row.gate for row in rows),
        only_rule_accepts=sum(row.rule and not row.gate for row in rows),
        only_gate_accepts=sum(row.gate and not row.rule for row in rows),
        disagreements=tuple(row for row in rows if row.rule != row.gate),
        rows=rows,
    )


def _noted(kernels: Iterable[Kernel]) -> Iterator[Row]:
    for kernel in kernels:
        row = row_of(kernel)
        if row.rule != row.gate:
            print(f"{row.kernel} ({row.mutation}): rule {row.rule}, G00 {row.gate}: {row.explained or 'UNEXPLAINED'}")
        yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--correct", type=int, default=200)
    parser.add_argument("--broken", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = study([*correct(given.correct, seed=given.seed), *broken(given.broken, seed=given.seed)])
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    print(f"{found.kernels} kernels, agreement {found.agreement:.2%}, {len(found.disagreements)} disagreements")


if __name__ == "__main__":
    main()
