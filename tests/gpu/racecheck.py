"""compute-sanitizer's racecheck over a tiny model on this machine's GPU: ``python -m tests.gpu.racecheck``.

The tool follows the thread that arrives at a barrier and not those that it has met at ``bar.warp.sync``, and takes the
writes of a bulk copy for those of the lane that issued it: of the kernel as it ships it reports each reuse of shared
memory behind one lane's arrival. Nor does it know that volatile accesses are relaxed ones (PTX ISA, "Memory
Consistency Model"), as those to a flag are. Here every lane arrives and every lane copies, flags are read and written
by atomic operations, and all else is the source that ships.
What does ship is checked on the host by ThreadSanitizer (tests/host/test_watches.py).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

import amk
from amk.codegen import emit, nvrtc
from tests.checkpoints import save_llama

EDITS = {
    "prim/memory.cuh": (
        ("return *static_cast<const volatile u32*>(flag);", "return atomicOr(const_cast<u32*>(flag), 0u);", 1),
        ("{ *static_cast<volatile u32*>(flag) = value; }", "{ atomicExch(flag, value); }", 1),
    ),
    "vm/block.cuh": (("if (lane == 0) mbarrier_arrive", "mbarrier_arrive", 1),),
    "vm/kernel.cuh": (
        ("if (block.lane == 0) mbarrier_arrive", "mbarrier_arrive", 1),
        (", Config::kConsumerWarps);", ", Config::kConsumerWarps * kWarp);", 2),
    ),
}


def as_followed(headers: dict[str, str]) -> dict[str, str]:
    """``headers`` with every lane arriving, and copying, where one does, and atomic flags."""
    changed = {**headers, "prim/bulk/copy.cuh": headers["prim/async/copy.cuh"]}
    for path, edits in EDITS.items():
        for old, new, count in edits:
            assert changed[path].count(old) == count, path
            changed[path] = changed[path].replace(old, new)
    return changed


def generate(*, as_shipped: bool) -> None:
    """A prompt and two tokens."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setenv("AMK_WATCHDOG_S", "900")
        if not as_shipped:
            real = emit.csrc_headers
            patch.setattr(emit, "csrc_headers", lambda: as_followed(real()))
            # The arrivals of all lanes need a few registers more; a spill is no matter here.
            parse = nvrtc.parse_log
            patch.setattr(nvrtc, "parse_log", lambda log: replace(parse(log), spilled_bytes=0))
        model = amk.compile(save_llama(Path(folder), seed=3, max_position_embeddings=128), progress=False)
        model.generate([1, 2, 3], max_new_tokens=2, eos_token_id=[])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--as-shipped", action="store_true", help="one lane arrives: shows what the tool does not follow"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    words = parser.parse_args()
    if words.inside:
        generate(as_shipped=words.as_shipped)
        return 0
    tool = ["compute-sanitizer", "--tool", "racecheck", "--racecheck-report", "analysis", "--error-exitcode", "1"]
    own = [sys.executable, "-m", "tests.gpu.racecheck", "--inside", *(["--as-shipped"] if words.as_shipped else [])]
    return subprocess.run([*tool, *own], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
