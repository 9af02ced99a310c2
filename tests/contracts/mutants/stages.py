"""What a generated kernel is a chain of: a stage as the reference has it, ways to write the same, ways to break it.

Each is statements on ``x``. ``_@`` ends a name with the stage's number; ``$D`` stands for the size of the dimension
that it works on (the last one; of images the channels) and ``$E`` for another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["rows", "image", "any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One operation.

    Attributes
    ----------
    works_on
        What it takes: rows (the last dimension counts), images [N, C, H, W], or anything.
    code
        As the reference has it.
    rewrites
        The same function in other words.
    faults
        By the name of the mutation, what is not the same function.
    state
        Statements of the constructor.
    takes, makes
        Of a stage that begins a chain: the arguments, and the inputs for them.
    ends
        It reduces: no stage comes after it.
    widens
        The dimension it works on has size ``$E`` behind it.
    """

    name: str
    works_on: Kind
    code: str
    rewrites: tuple[str, ...]
    faults: Mapping[str, str] = field(default_factory=dict)
    state: str = ""
    takes: str = ""
    makes: str = ""
    ends: bool = False
    widens: bool = False
