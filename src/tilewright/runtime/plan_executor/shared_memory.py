"""Outputs in the memory of inputs: which may be, and inputs that are saved from those that may not.

An output may have the memory of the input that it updates: the plan copies the one to the other before anything
writes it, and nobody reads the input behind that.  Every other overlap would change an input that is still read.
Called by `executor`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.formats.plan import Plan, Step
from tilewright.runtime.plan_executor.tensors import Array


def updated_inputs(plan: Plan) -> frozenset[tuple[int, int]]:
    """(input, output) by position, of all that may have the same memory."""
    inputs = {plan.entries[entry].storage: i for i, (_, entry) in enumerate(plan.inputs)}
    outputs = {plan.entries[entry].storage: i for i, (_, entry) in enumerate(plan.outputs)}
    found: list[tuple[int, int]] = []
    for position, step in enumerate(plan.steps):
        if step.kind != "copy":
            continue
        source, target = (plan.entries[entry].storage for entry in step.arguments)
        if source in inputs and target in outputs and _gives_over(plan, position):
            found.append((inputs[source], outputs[target]))
    return frozenset(found)


def _gives_over(plan: Plan, position: int) -> bool:
    """Whether the copy there is of a whole storage that is not read any more to one that nobody wrote before."""
    source, target = (plan.entries[entry] for entry in plan.steps[position].arguments)
    for entry in (source, target):
        if entry.offset_bytes != 0:
            return False
        if entry.size_bytes != plan.storages[entry.storage].size_bytes:
            return False
    before, behind = plan.steps[:position], plan.steps[position + 1 :]
    if any(target.storage in _storages(plan, step) for step in before):
        return False
    return not any(source.storage in _storages(plan, step) for step in behind)


def _storages(plan: Plan, step: Step) -> set[int]:
    return {plan.entries[entry].storage for entry in step.arguments}


def saved(
    inputs: Sequence[Array], outputs: Sequence[Array], allowed: frozenset[tuple[int, int]]
) -> list[Array]:
    """`inputs`, copied where an output overlaps them that may not have their memory."""
    ranges = [_range(array) for array in outputs]
    result: list[Array] = []
    for position, array in enumerate(inputs):
        start, stop = _range(array)
        met = [i for i, (a, b) in enumerate(ranges) if a < stop and start < b]
        fine = all((position, i) in allowed and ranges[i] == (start, stop) for i in met)
        result.append(array if fine else array.copy())
    return result


def _range(array: Array) -> tuple[int, int]:
    """First address and the one behind the last of a dense array."""
    start = array.__array_interface__["data"][0]
    return start, start + array.nbytes
