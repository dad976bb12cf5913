"""Instructions of machines as data: one table per family, and what each of them means.

An instruction is a row: its name, what it computes as a small loop nest of the kernel IR, and the forms that
machines have of it, with the features they need and the words of each printer.  Schedules put it in the place
of a loop that means the same (`schedule.primitives.tensorize`), the evaluator runs its meaning.
"""

from __future__ import annotations

import functools
from typing import Final

from tilewright.base.target import Target
from tilewright.compiler.kernel.instructions import aarch64, x86
from tilewright.compiler.kernel.instructions.meaning import meaning as meaning
from tilewright.compiler.kernel.ir import Argument, Form, Instruction
from tilewright.compiler.kernel.text import expression_text

_FAMILIES: Final = {"x86_64": x86.INSTRUCTIONS, "aarch64": aarch64.INSTRUCTIONS}

INSTRUCTIONS: Final[dict[str, Instruction]] = {
    row.name: row for rows in _FAMILIES.values() for row in rows
}
"""Every instruction by name."""


@functools.cache
def _alike() -> dict[str, tuple[Instruction, ...]]:
    """By the name of each instruction, all that mean the same: one may stand for another."""
    found: dict[str, list[Instruction]] = {}
    for row in INSTRUCTIONS.values():
        lanes = row.tile_lanes
        letters = [Argument(n, dtype, lanes) for n, dtype in enumerate(row.operands)]
        found.setdefault(expression_text(meaning(row, letters)), []).append(row)
    return {row.name: tuple(rows) for rows in found.values() for row in rows}


def all_forms(instruction: Instruction) -> tuple[Form, ...]:
    """The forms of an instruction, and of those that mean the same, on any machine."""
    return tuple(form for row in _alike()[instruction.name] for form in row.forms)


def forms_for(instruction: Instruction, target: Target) -> tuple[Form, ...]:
    """Those that a target has, widest first; of one width, those that are applied once and need no addition."""
    rows = [r for r in _alike()[instruction.name] if r in _FAMILIES.get(target.arch, ())]
    found = [f for row in rows for f in row.forms if f.features <= target.features]
    return tuple(sorted(found, key=lambda form: (-form.lanes, len(form.rounds), form.adds)))


def form_for(instruction: Instruction, target: Target, lanes: int) -> Form | None:
    """The widest form with which a target computes so many lanes; None if there is none."""
    forms = forms_for(instruction, target)
    return next((form for form in forms if lanes % form.lanes == 0), None)
