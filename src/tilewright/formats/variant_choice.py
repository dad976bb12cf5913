"""Which of several codes a machine can run, and which of those is best.

Called by sessions, for plans, and by the virtual machine before it loads an artifact's module.  The
bytecode of an artifact chooses by the same rule (`compiler.program.emit_bytecode`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from tilewright.base.errors import TargetError
from tilewright.base.target import Target


class CodeTarget(Protocol):
    """Code and what it needs: an architecture and features by LLVM's names."""

    @property
    def target(self) -> str: ...

    @property
    def arch(self) -> str: ...

    @property
    def features(self) -> frozenset[str]: ...


Code = TypeVar("Code", bound=CodeTarget)


def choose_variant(variants: Sequence[Code], machine: Target, location: str) -> Code:
    """The variant with the most features that `machine` has.

    Raises: TargetError naming what the machine lacks.
    """
    same_arch = [v for v in variants if v.arch == machine.arch]
    fitting = [v for v in same_arch if v.features <= machine.features]
    if not fitting:
        lacking = min(
            (v.features - machine.features for v in same_arch), key=len, default=()
        )
        raise TargetError(
            f"no code for this CPU ('{machine.arch}', '{machine.cpu}'); the artifact has "
            + ", ".join(f"'{v.target}'" for v in variants)
            + (f"; missing here: {' '.join(sorted(lacking))}" if lacking else ""),
            location=location,
            hint="compile with target='x86_64' and levels=('v2', 'v3', 'v4') for any x86-64",
        )
    return max(fitting, key=lambda v: len(v.features))
