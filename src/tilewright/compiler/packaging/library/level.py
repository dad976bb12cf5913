"""Levels: the code that a library has for one kind of processor.

Says what goes into a library and refuses what cannot.  Called by exports and by `sources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from tilewright.base.errors import UserError
from tilewright.base.record import record
from tilewright.base.target import LEVELS, Target
from tilewright.compiler.backends.backend import CompiledKernel
from tilewright.compiler.packaging.parts import Part
from tilewright.formats.executable import ExportDecl
from tilewright.formats.plan import Plan


@final
@record(kw_only=True)
class Level:
    """A plan, what the processor must have for it, and where the linker finds its kernels.

    Attributes:
        label: what it is called in files, symbols and options: `v3`.
        features: by LLVM's names; `base.host` knows all that a library can ask for.
        kernels: by the `target` of the plan's steps; `function` is the linker's symbol, unique among
            all levels of a library (kernels are named by a digest of their code, so two levels have the
            same name for code that reads alike).
        constants: the places of the plan's constants among the library's, in order; empty where no model is called.
    """

    label: str
    arch: str
    features: frozenset[str]
    plan: Plan
    kernels: Mapping[str, ExportDecl]
    constants: tuple[int, ...] = ()


def level_of(
    part: Part, kernels: Sequence[CompiledKernel], constants: tuple[int, ...] = ()
) -> Level:
    """The level of a compiled part, whose kernels have symbols of their own (`kernel_objects`)."""
    return Level(
        label=level_label(part.target),
        arch=part.target.arch,
        features=part.target.features,
        plan=part.plan,
        kernels={kernel.name: kernel.export for kernel in kernels},
        constants=constants,
    )


def level_label(target: Target) -> str:
    """The word for a target: of a level its own, of other targets the CPU; after the back end's, if it says one."""
    named = (name for name, features in LEVELS.items() if features == target.features)
    label = next(named, target.cpu) if target.arch == "x86_64" else target.cpu
    return label if target.backend == "cpu" else f"{target.backend}-{label}"


def refuse_host_steps(plan: Plan) -> None:
    """Libraries have no Python to run reference implementations in.

    Raises: UserError listing the ops without machine code and their nodes.
    """
    rows: dict[str, list[str]] = {}
    for step in plan.steps:
        if step.kind == "host":
            rows.setdefault(step.target, []).append(step.name)
    if not rows:
        return
    lines = (f"  {op}: " + ", ".join(map(repr, names)) for op, names in rows.items())
    raise UserError(
        f"{sum(map(len, rows.values()))} steps run in Python, which a library does not have:\n"
        + "\n".join(lines),
        location=plan.name,
        hint="save a .vmfb instead, or replace these ops; 'tilewright coverage' lists them by node",
    )
