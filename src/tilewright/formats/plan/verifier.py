"""What must hold of a plan before anybody runs it: every index, kind, range and lifetime, and that it can end.

Sizes that depend on a call are checked when the plan is bound; what a kernel does inside its
bindings is the executable's matter.  Called by `from_json`.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

from tilewright.base.errors import ArchiveError
from tilewright.base.symbolic import Dim, names_in
from tilewright.formats.plan.steps import (
    CHECK_BYTES,
    FLOW_KINDS,
    STEP_KINDS,
    STORAGE_KINDS,
    Plan,
    Step,
    operands_of,
    results_of,
)
from tilewright.formats.ways import first_lost

_RANK_LIMIT: Final = 64
_OPERAND_LIMIT: Final = 1 << 16
_PLACE_BYTES: Final = 8
_SYMBOL_LIMIT: Final = 4096
_WRITTEN: Final = {"row": ("row",), "allocate": ("block",), "rebind": ("block",)}


def verify_plan(plan: Plan) -> None:
    """Refuse an inconsistent plan.

    Raises: ArchiveError naming what is wrong.
    """
    for check in _CHECKS:
        check(plan)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise ArchiveError(problem, location="plan")


def _require_indices(values: Iterable[int], limit: int, subject: str) -> None:
    _require(all(0 <= v < limit for v in values), f"{subject} out of range")


def _require_size(value: Dim, subject: str) -> None:
    _require(not isinstance(value, int) or value >= 0, f"{subject} is negative")


def _check_storages(plan: Plan) -> None:
    for index, storage in enumerate(plan.storages):
        subject = f"storage {index} ('{storage.name}')"
        _require(storage.kind in STORAGE_KINDS, f"{subject}: unknown kind '{storage.kind}'")
        _require_size(storage.size_bytes, f"{subject}: size")
        if storage.kind == "transient":
            _require(0 <= storage.first <= storage.last, f"{subject}: bad lifetime")


def _check_entries(plan: Plan) -> None:
    _require_indices(
        (e.storage for e in plan.entries), len(plan.storages), "storage of an entry"
    )
    for index, entry in enumerate(plan.entries):
        subject = f"entry {index}"
        storage = plan.storages[entry.storage]
        _require(len(entry.shape) <= _RANK_LIMIT, f"{subject}: too many axes")
        _require_size(entry.offset_bytes, f"{subject}: offset")
        for dim in entry.shape:
            _require_size(dim, f"{subject}: dimension")
        sizes = (entry.offset_bytes, entry.size_bytes, storage.size_bytes)
        if all(isinstance(s, int) for s in sizes):
            offset, size, room = cast("tuple[int, int, int]", sizes)
            _require(offset + size <= room, f"{subject}: past its storage")


def _check_signature(plan: Plan) -> None:
    """Each input and output has a storage of its own kind for itself."""
    for kind, rows in (("input", plan.inputs), ("output", plan.outputs)):
        _require_indices((e for _, e in rows), len(plan.entries), f"{kind} entry")
        storages = [plan.entries[e].storage for _, e in rows]
        _require(len(set(storages)) == len(storages), f"two {kind}s share a storage")
        owned = [i for i, s in enumerate(plan.storages) if s.kind == kind]
        _require(sorted(storages) == owned, f"{kind}s and storages of that kind differ")
    names = [name for name, _ in plan.inputs]
    _require(len(set(names)) == len(names), "two inputs have one name")


def _check_filling(plan: Plan) -> None:
    """What a call brings and takes has the sizes that its storages are bound with."""
    for kind, rows in (("input", plan.inputs), ("output", plan.outputs)):
        for name, index in rows:
            entry = plan.entries[index]
            size = plan.storages[entry.storage].size_bytes
            fills = entry.offset_bytes == 0 and entry.size_bytes == size
            _require(fills, f"{kind} '{name}': does not fill its storage")


def _check_dims(plan: Plan) -> None:
    names = [dim.name for dim in plan.dims]
    _require(len(set(names)) == len(names), "a dimension is listed twice")
    for dim in plan.dims:
        subject = f"dimension '{dim.name}'"
        _require(0 <= dim.input < len(plan.inputs), f"{subject}: no input {dim.input}")
        rank = len(plan.entries[plan.inputs[dim.input][1]].shape)
        _require(0 <= dim.axis < rank, f"{subject}: no axis {dim.axis}")
        _require(dim.minimum >= 0, f"{subject}: negative minimum")
        _require(dim.maximum is None or dim.maximum >= 0, f"{subject}: negative maximum")
    known = {*names, *(size.name for step in plan.steps for size in step.sizes)}
    sizes = [s.size_bytes for s in plan.storages]
    for entry in plan.entries:
        sizes += (*entry.shape, entry.offset_bytes)
    for step in plan.steps:
        moved = 0 if step.bytes_moved is None else step.bytes_moved
        sizes += (*step.grid, *step.dims, step.flops, moved)
    for pair in plan.equalities:
        sizes += pair
    for check in plan.checks:
        sizes += (check.size, check.low, check.high)
    used = names_in(sizes)
    _require(used <= known, f"dimensions {sorted(used - known)} have no value")


def _check_steps(plan: Plan) -> None:
    for position, step in enumerate(plan.steps):
        subject = f"step '{step.name}'"
        _require(step.kind in STEP_KINDS, f"{subject}: unknown kind '{step.kind}'")
        _require_indices(step.arguments, len(plan.entries), f"{subject}: argument")
        _require(
            0 <= step.result_count <= len(step.arguments), f"{subject}: bad result count"
        )
        for size in step.grid:
            _require_size(size, f"{subject}: grid")
        _check_accesses(plan, position, step, subject)
        _require((step.host is not None) == (step.kind == "host"), f"{subject}: host call")
        if step.kind == "copy":
            _check_copy(plan, step, subject)
        if step.kind == "row":
            _check_row(plan, step, subject)
        if step.kind == "call":
            _check_call(step, subject)
        if step.kind == "expect":
            paired = not step.arguments and len(step.dims) % 2 == 0
            _require(paired, f"{subject}: compares no pairs")
        _check_flow(plan, step, subject)
        if step.host is not None:
            _check_host(step, subject)


def _check_accesses(plan: Plan, position: int, step: Step, subject: str) -> None:
    for entry in step.arguments:
        storage = plan.storages[plan.entries[entry].storage]
        alive = storage.kind != "transient" or storage.first <= position <= storage.last
        _require(alive, f"{subject}: uses '{storage.name}' outside its lifetime")
    for entry in results_of(step):
        storage = plan.storages[plan.entries[entry].storage]
        kinds = _WRITTEN.get(step.kind, ("output", "transient", "block"))
        _require(
            storage.kind in kinds,
            f"{subject}: writes {storage.kind} '{storage.name}'",
        )


def _check_copy(plan: Plan, step: Step, subject: str) -> None:
    _require(len(step.arguments) == 2 and step.result_count == 1, f"{subject}: not 1 -> 1")
    source, target = (plan.entries[e] for e in step.arguments)
    _require(source.size_bytes == target.size_bytes, f"{subject}: sizes differ")
    _require(source.storage != target.storage, f"{subject}: copies onto itself")


def _check_row(plan: Plan, step: Step, subject: str) -> None:
    """An i64, a table of whole rows that is no row itself, and a row that fills its storage."""
    fits = len(step.arguments) == 3 and step.result_count == 1
    _require(fits, f"{subject}: not 2 -> 1")
    place, table, row = (plan.entries[e] for e in step.arguments)
    _require(place.size_bytes == _PLACE_BYTES, f"{subject}: does not read 8 bytes")
    nested = plan.storages[table.storage].kind == "row"
    whole, part = table.size_bytes, row.size_bytes
    is_sized = isinstance(part, int) and part > 0 and whole != 0
    _require(not nested and is_sized, f"{subject}: bad table")
    fills = row.offset_bytes == 0 and plan.storages[row.storage].size_bytes == part
    # Where the size of the table depends on a call, binding it looks.
    is_whole = not isinstance(whole, int) or whole % cast("int", part) == 0
    _require(fills and is_whole, f"{subject}: not a row of its table")


def _check_flow(plan: Plan, step: Step, subject: str) -> None:
    """Where it goes there is a label; what it reads is small, whole and of the right type."""
    goes = step.kind in ("branch", "jump")
    inside = 0 <= step.goto < len(plan.steps)
    _require(inside if goes else step.goto == -1, f"{subject}: bad target")
    _require(not goes or plan.steps[step.goto].kind == "label", f"{subject}: bad target")
    _require(bool(step.sizes) == (step.kind in ("read", "rebind")), f"{subject}: bad sizes")
    if step.kind not in FLOW_KINDS:
        return
    for size in step.sizes:
        known = all(size.name != dim.name for dim in plan.dims)
        _require(known and size.minimum >= 0, f"{subject}: bad size '{size.name}'")
    if step.kind in ("allocate", "rebind"):
        _check_blocks(plan, step, subject)
        return
    count = 1 if step.kind in ("branch", "read") else 0
    _require(
        len(step.arguments) == count and step.result_count == 0,
        f"{subject}: not {count} -> 0",
    )
    if not count:
        return
    entry = plan.entries[step.arguments[0]]
    wanted = 1 if step.kind == "branch" else 8 * len(step.sizes)
    _require(entry.size_bytes == wanted, f"{subject}: does not read {wanted} bytes")


def _check_ways(plan: Plan) -> None:
    """From every step that a call may come to, some way leads to the end."""
    if all(step.goto < 0 or step.goto > at for at, step in enumerate(plan.steps)):
        return  # every step leads forwards
    lost = first_lost([_next_steps(plan, at) for at in range(len(plan.steps))])
    if lost is not None:
        problem = f"step '{plan.steps[lost].name}': no way leads from here to the end"
        raise ArchiveError(problem, location="plan")


def _next_steps(plan: Plan, position: int) -> Sequence[int]:
    step = plan.steps[position]
    ways = {"jump": (step.goto,), "branch": (position + 1, step.goto)}
    return ways.get(step.kind, (position + 1,))


def _check_blocks(plan: Plan, step: Step, subject: str) -> None:
    """Only blocks have memory that can be given and taken over; each is taken once, and taken over once."""
    count = 0 if step.kind == "allocate" else step.result_count
    fits = step.result_count + count == len(step.arguments)
    if step.kind == "allocate":
        fits = fits and step.result_count == 1
    else:
        fits = fits and len(step.dims) == len(step.sizes)
        names = {size.name for size in step.sizes}
        fits = fits and len(names) == len(step.sizes)
    _require(fits, f"{subject}: not {count} -> {step.result_count}")
    storages = [plan.entries[e].storage for e in step.arguments]
    are_blocks = all(plan.storages[s].kind == "block" for s in storages)
    _require(are_blocks, f"{subject}: moves what is no block")
    for side in (storages[:count], storages[count:]):
        _require(len(set(side)) == len(side), f"{subject}: moves one block twice")


def _check_call(step: Step, subject: str) -> None:
    """A symbol that a linker takes, and nothing but tensors."""
    fits = 0 < len(step.target) <= _SYMBOL_LIMIT and step.target.isascii()
    _require(fits and step.target.isprintable(), f"{subject}: '{step.target}' is no symbol")
    _require(
        not step.dims and step.grid == (1, 1, 1), f"{subject}: has a grid or dimensions"
    )


def _check_host(step: Step, subject: str) -> None:
    assert step.host is not None
    call = step.host
    _require(0 <= call.operand_count <= _OPERAND_LIMIT, f"{subject}: bad operand count")
    _require_indices(call.present, call.operand_count, f"{subject}: operand")
    _require(
        len(set(call.present)) == len(call.present) == len(operands_of(step)),
        f"{subject}: operands do not match the call",
    )


def _check_index_checks(plan: Plan) -> None:
    if not plan.checks:
        return
    _require_indices([plan.check_storage], len(plan.storages), "storage of the checks")
    storage = plan.storages[plan.check_storage]
    wanted = CHECK_BYTES * len(plan.checks)
    fits = storage.kind == "transient" and storage.size_bytes == wanted
    _require(fits, f"storage of the checks: not {wanted} bytes of kind 'transient'")
    _require(storage.last >= len(plan.steps) - 1, "storage of the checks: ends too early")
    for index, entry in enumerate(plan.entries):
        if entry.storage == plan.check_storage:
            at = entry.offset_bytes
            is_record = isinstance(at, int) and at < wanted and at % CHECK_BYTES == 0
            _require(is_record, f"entry {index}: is no record of a check")


def _check_arena(plan: Plan) -> None:
    """In a static plan every transient lies in the arena, apart from those it lives with."""
    if plan.arena_bytes < 0:
        return
    rows: list[tuple[int, int, int, int]] = []  # first, last, start, end
    for storage in plan.storages:
        if storage.kind != "transient":
            continue
        subject = f"transient '{storage.name}'"
        _require(isinstance(storage.size_bytes, int), f"{subject}: size is not known")
        start = storage.offset_bytes
        end = start + cast("int", storage.size_bytes)
        _require(start >= 0 and end <= plan.arena_bytes, f"{subject}: past the arena")
        if start < end:
            rows.append((storage.first, storage.last, start, end))
    _check_overlaps(sorted(rows))


def _check_overlaps(rows: list[tuple[int, int, int, int]]) -> None:
    """Sweep over the steps with the ranges alive so far, sorted by where they start."""
    alive: list[tuple[int, int]] = []  # start, end
    ends: list[tuple[int, tuple[int, int]]] = []  # a heap of (last step, range)
    for first, last, start, end in rows:
        while ends and ends[0][0] < first:
            _, done = heapq.heappop(ends)
            alive.remove(done)
        place = bisect.bisect(alive, (start, end))
        left_fits = place == 0 or alive[place - 1][1] <= start
        right_fits = place == len(alive) or end <= alive[place][0]
        _require(left_fits and right_fits, "two transients overlap while both are alive")
        alive.insert(place, (start, end))
        heapq.heappush(ends, (last, (start, end)))


def _check_values(plan: Plan) -> None:
    for value in plan.values:
        subject = f"value '{value.name:.80}'"
        _require(0 <= value.step < len(plan.steps), f"{subject}: no step {value.step}")
        results = results_of(plan.steps[value.step])
        _require(0 <= value.result < len(results), f"{subject}: no result {value.result}")
        rank = len(plan.entries[results[value.result]].shape)
        is_order = sorted(value.axes) == list(range(rank))
        _require(not value.axes or is_order, f"{subject}: axes are none of {rank}")


_CHECKS: Final[tuple[Callable[[Plan], None], ...]] = (
    _check_storages,
    _check_entries,
    _check_signature,
    _check_dims,
    _check_filling,
    _check_steps,
    _check_ways,
    _check_index_checks,
    _check_arena,
    _check_values,
)
