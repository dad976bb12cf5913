"""Levels: the code that a library has for one kind of processor.

Says what goes into a library and refuses what cannot.  Called by exports and by `sources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base.errors import UserError
from tilewright.base.record import record
from tilewright.base.target import LEVELS, Target
from tilewright.compiler.backends.backend import CompiledKernel
from tilewright.compiler.packaging.archive import Part
from tilewright.formats.executable import ExportDecl
from tilewright.formats.plan import Plan, Step


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
        plan=expecting_at_once(part.plan),
        kernels={kernel.name: kernel.export for kernel in kernels},
        constants=constants,
    )


def expecting_at_once(plan: Plan) -> Plan:
    """The plan with what its steps expect of sizes expected of every call: a library looks before it runs.

    A call is refused, too, for what a branch expects that would not have run.
    """
    expected = [step for step in plan.steps if step.kind == "expect"]
    if not expected:
        return plan
    pairs = [pair for step in expected for pair in step.pairs]
    steps = (
        Step("label", step.name, "", (), 0) if step.kind == "expect" else step
        for step in plan.steps
    )
    equalities = tuple(dict.fromkeys((*plan.equalities, *pairs)))
    return replace(plan, steps=tuple(steps), equalities=equalities)


_SHOWN: Final = 12  # places that an error lists


def level_label(target: Target) -> str:
    """The word for a target: of a level its own, of other targets the CPU; after the back end's, if it says one."""
    named = (name for name, features in LEVELS.items() if features == target.features)
    label = next(named, target.cpu) if target.arch == "x86_64" else target.cpu
    return label if target.backend == "cpu" else f"{target.backend}-{label}"


def refuse_host_steps(plan: Plan) -> None:
    """Libraries have no Python to run reference implementations in.

    Raises: UserError listing the ops without machine code and their nodes, or for sizes that data decides.
    """
    if plan.has_reads:
        places = dict.fromkeys(
            s.target or "a node without a name" for s in plan.steps if s.sizes
        )
        listed = [f"  {place}" for place in places][:_SHOWN]
        more = len(places) - len(listed)
        listed += [f"  and {more} more"] if more else []
        raise UserError(
            "the program has sizes that data decides, which a library does not read:\n"
            + "\n".join(listed),
            location=plan.name,
            hint="save a .vmfb instead, or compile with input_values for the inputs that decide them",
        )
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
