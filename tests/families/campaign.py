"""Random configs by the thousand: ``python -m tests.families.campaign --configs 1000 --seed 1 --json out.json``.

Exit code 1 if one was accepted and decoded wrong, or failed in any other way than a named refusal.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from rich.console import Console
from rich.progress import track

from amk.errors import AmkError
from tests.families.generate import FAMILY_NAMES, random_config
from tests.families.judge import judge


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    words = parser.parse_args()
    console = Console(stderr=True)
    console.print(f"seed {words.seed}")
    counts: dict[str, Counter[str]] = {family: Counter() for family in FAMILY_NAMES}
    wrong = []
    start = time.perf_counter()
    for number in track(range(words.configs), console=console, description="configs"):
        family = FAMILY_NAMES[number % len(FAMILY_NAMES)]
        config = random_config(Random(f"{words.seed}/{number}"), family)
        try:
            outcome = judge(config, tokens=16, lengths=(11, 19), seed=number)
            failure = outcome.wrong
            counts[family][f"refused {outcome.refused}" if outcome.refused else "accepted"] += 1
        except AmkError as error:
            failure = str(error)
        if failure:
            wrong.append({"number": number, "family": family, "config": config, "failure": failure})
            console.print(f"[red]{number} {family}[/red]: {failure}")
    found = {
        "seed": words.seed,
        "configs": words.configs,
        "wrong": wrong,
        "accepted": sum(count["accepted"] for count in counts.values()),
        "families": {family: dict(sorted(count.items())) for family, count in counts.items()},
        "seconds": round(time.perf_counter() - start, 1),
    }
    text = json.dumps(found, indent=1)
    if words.json:
        words.json.write_text(text + "\n")
    sys.stdout.write(text + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
