"""The plan of one kernel alone: its tensors are what a call takes, operands before results.

What makes a function of a kernel, in a process (`runtime.library.code_module`) and in an exported library
(`compiler.packaging.library`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from tilewright.base.symbolic import Dim, names_in, symbols
from tilewright.formats.plan.steps import Dimension, Entry, Plan, Step, Storage


class Counts(Protocol):
    """What a kernel says of itself."""

    @property
    def binding_count(self) -> int: ...

    @property
    def constant_count(self) -> int: ...


def misfit_of(step: Step, kernel: Counts) -> str | None:
    """What is wrong where a dispatch passes something else than its kernel takes; None where it fits."""
    takes = (kernel.binding_count, kernel.constant_count)
    passes = (len(step.arguments), len(step.dims))
    if takes == passes:
        return None
    return (
        f"kernel '{step.target}' takes {takes[0]} bindings and {takes[1]} constants, "
        f"the plan passes {passes[0]} and {passes[1]}"
    )


def kernel_plans(plan: Plan) -> Mapping[str, Plan]:
    """By name, for each kernel of a plan whose tensors tell all its sizes, the plan of it alone.

    Where several steps run a kernel, the first of them says how.  The place of a dimension (`Dimension.input`)
    counts results as well, behind the operands: a kernel may have sizes that no operand tells.
    """
    first = {s.target: s for s in reversed(plan.steps) if s.kind == "dispatch"}
    steps = (first[s.target] for s in plan.steps if s.kind == "dispatch")
    found = {step.target: _plan_of(plan, step) for step in steps}
    return {name: alone for name, alone in found.items() if alone is not None}


def _plan_of(plan: Plan, step: Step) -> Plan | None:
    shapes = [plan.entries[argument].shape for argument in step.arguments]
    dims = tuple(_dimensions(plan, shapes))
    sizes: list[Dim] = [extent for shape in shapes for extent in shape]
    used = names_in((*sizes, *step.grid, *step.dims))
    if not used <= {dim.name for dim in dims}:
        return None
    operand_count = len(shapes) - step.result_count
    names = _tensor_names(plan, step)
    entries = tuple(
        Entry(index, plan.entries[argument].dtype, shape)
        for index, (argument, shape) in enumerate(zip(step.arguments, shapes, strict=True))
    )
    kinds = ("input",) * operand_count + ("output",) * step.result_count
    rows = tuple((name, index) for index, name in enumerate(names))
    return Plan(
        name=step.target,
        inputs=rows[:operand_count],
        outputs=rows[operand_count:],
        dims=dims,
        storages=tuple(
            Storage(kind, entry.size_bytes)
            for kind, entry in zip(kinds, entries, strict=True)
        ),
        entries=entries,
        steps=(
            Step(
                "dispatch",
                step.target,
                step.target,
                tuple(range(len(entries))),
                step.result_count,
                step.grid,
                step.dims,
            ),
        ),
        arena_bytes=0,
    )


def _dimensions(plan: Plan, shapes: Sequence[Sequence[Dim]]) -> Iterator[Dimension]:
    """The sizes that stand alone as an extent, each where it does so first."""
    limits = {dim.name: dim for dim in plan.dims}
    known: set[str] = set()
    for place, shape in enumerate(shapes):
        for axis, extent in enumerate(shape):
            name = str(extent)
            is_alone = not isinstance(extent, int) and {
                symbol.name for symbol in symbols(extent)
            } == {name}
            if not is_alone or name in known:
                continue
            known.add(name)
            limit = limits.get(name)
            yield Dimension(
                name,
                place,
                axis,
                limit.minimum if limit else 0,
                limit.maximum if limit else None,
            )


def _tensor_names(plan: Plan, step: Step) -> Iterator[str]:
    """What errors call the tensors: by their place, and by the name that the model has for them."""
    signature = {entry: name for name, entry in (*plan.inputs, *plan.outputs)}
    for place, argument in enumerate(step.arguments):
        storage = plan.storages[plan.entries[argument].storage]
        name = signature.get(argument, storage.name)
        yield f"{place}: {name}" if name else str(place)
