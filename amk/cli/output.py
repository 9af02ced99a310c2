"""What a command writes: text for a person, or one JSON document for a program."""

from __future__ import annotations

import json
import sys
from typing import Final

from rich.console import Console

# Markup is off: region names such as ``hidden[0:64]`` would be read as styles. Styles are given with rich.text.Text.
# Soft wrap leaves long lines whole, so that what is printed can be searched and copied.
OUT: Final = Console(markup=False, highlight=False, soft_wrap=True)
ERR: Final = Console(markup=False, highlight=False, soft_wrap=True, stderr=True)


def print_json(document: object) -> None:
    """Write ``document`` to standard output as the only thing on it."""
    json.dump(document, sys.stdout, indent=2)
    sys.stdout.write("\n")
