"""Outputs in the memory of inputs: which may be, and inputs that are saved from those that may not.

An output may have the memory of the input that it updates: the plan copies the one to the other before anything
writes it, and nobody reads the input behind that.  Every other overlap would change an input that is still read.
Called by `executor`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.formats.plan import Plan
from tilewright.runtime.plan_executor.tensors import Array


def updated_inputs(plan: Plan) -> frozenset[tuple[int, int]]:
    """(input, output) by position, of all that may have the same memory."""
    inputs = {plan.entries[entry].storage: i for i, (_, entry) in enumerate(plan.inputs)}
    outputs = {plan.entries[entry].storage: i for i, (_, entry) in enumerate(plan.outputs)}
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, step in enumerate(plan.steps):
        for entry in step.arguments:
            storage = plan.entries[entry].storage
            first.setdefault(storage, position)
            last[storage] = position
    loops = [(step.goto, i) for i, step in enumerate(plan.steps) if 0 <= step.goto < i]
    found: list[tuple[int, int]] = []
    for position, step in enumerate(plan.steps):
        if step.kind != "copy":
            continue
        source, target = (plan.entries[entry].storage for entry in step.arguments)
        if source not in inputs or target not in outputs or source == target:
            continue
        # Nobody wrote the one before, and nobody reads the other any more, not in a further trip of a loop either.
        is_handed_over = first[target] == last[source] == position
        if any(begin < position < end for begin, end in loops):
            continue
        if is_handed_over and all(_is_whole(plan, entry) for entry in step.arguments):
            found.append((inputs[source], outputs[target]))
    return frozenset(found)


def _is_whole(plan: Plan, index: int) -> bool:
    entry = plan.entries[index]
    size = plan.storages[entry.storage].size_bytes
    return entry.offset_bytes == 0 and entry.size_bytes == size


def saved(
    inputs: Sequence[Array],
    outputs: Sequence[Array | None],
    allowed: frozenset[tuple[int, int]],
) -> list[Array]:
    """`inputs`, copied where an output overlaps them that may not have their memory; None is an output in new memory."""
    ranges = [(0, 0) if array is None else _range(array) for array in outputs]
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
