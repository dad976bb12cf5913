"""Read square blocks row by row and transpose them in registers.

    C[i] = A[0 : 8*s : s]; C[i+c] = A[1 : 8*s+1 : s]; ...   (8 lanes each)
    ->  r0 = A[0:8]; r1 = A[s : s+8]; ...;  C[i] = column 0 of (r0, r1, ...); ...

Strided vectors next to each other cost a load per element; the rows of their block cost one per
vector, and a few shuffles.  `s` may be a size that only a call knows.  Requires: no loop of kind UNROLL or VECTOR.  Ensures: nothing is read
that was not read before.  Called by `machine`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Opaque
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import with_inner
from tilewright.compiler.kernel.rewrite import (
    Rewriter,
    lane_index,
    loads_below,
    with_body,
)

_LANE: Final = "lane of the load"


@final
@record
class Place:
    """Lane `l` is at `corner + l * step`."""

    corner: Dim
    step: Dim


@final
@record
class Family:
    """Loads of one kind by how far they are from the first one, whose place is `first`."""

    first: Place
    columns: dict[int, list[ir.Load]]


def transpose(kernel: ir.Kernel) -> ir.Kernel:
    """The kernel with columns of blocks instead of strided loads, where whole blocks are read."""
    return with_body(kernel, _body(kernel.body))


def _body(body: Sequence[ir.Statement]) -> ir.Body:
    columns = {
        id(load): column for family in _families(body) for load, column in _columns(family)
    }
    rewriter = Rewriter(expression=lambda value: columns.get(id(value), value))
    return tuple(_statement(old, rewriter if columns else None) for old in body)


def _statement(old: ir.Statement, rewriter: Rewriter | None) -> ir.Statement:
    if isinstance(old, ir.For | ir.If):
        return with_inner(old, _body(old.body))
    if rewriter is None or not isinstance(old, ir.Store):
        return old
    return replace(old, value=rewriter.expression(old.value))


def _families(body: Sequence[ir.Statement]) -> list[Family]:
    """Strided loads that differ by constants, of buffers that nothing here stores to."""
    written = {s.buffer for s in ir.walk(body) if isinstance(s, ir.Store)}
    found: dict[tuple[ir.Buffer, int, Dim], list[tuple[Dim, Family]]] = {}
    for load, place in _strided(body):
        if load.buffer in written:
            continue
        kin = found.setdefault((load.buffer, load.lanes, place.step), [])
        for first, family in kin:
            apart = place.corner - first
            if isinstance(apart, int):
                family.columns.setdefault(apart, []).append(load)
                break
        else:
            kin.append((place.corner, Family(place, {0: [load]})))
    return [family for kin in found.values() for _, family in kin]


def _strided(body: Sequence[ir.Statement]) -> Iterator[tuple[ir.Load, Place]]:
    """Unmasked loads whose lanes lie further apart than a vector is long, and where they lie."""
    roots = [statement.value for statement in body if isinstance(statement, ir.Store)]
    found = [load for root in roots for load in loads_below(root)]
    for load in dict.fromkeys(found):
        if (
            load.lanes > 2
            and load.mask is None
            and load.lanes & (load.lanes - 1) == 0
            and load.buffer.space is not ir.Space.REGISTER
            and load.dtype.bits >= 8
            and not load.dtype.is_bool
        ):
            place = _place(load)
            if place is not None:
                yield load, place


def _place(load: ir.Load) -> Place | None:
    """Where lanes lie that are one step apart, further than a vector is long where the step is known."""
    (index,) = load.indices
    if load.stride:
        is_far = load.stride >= load.lanes and not _is_gathered(index)
        return Place(index, load.stride) if is_far else None
    lane = lane_index(load.lanes)

    def named(atom: Opaque) -> Dim:
        own = symbolic.Expr.of_atom(atom)
        return symbolic.symbol(_LANE) if own == lane else own

    linear = symbolic.linear(symbolic.map_opaque(index, named), _LANE)
    if linear is None or any(map(_is_gathered, linear)) or isinstance(linear[0], int):
        return None
    return Place(linear[1], linear[0])


def _is_gathered(index: Dim) -> bool:
    return any(isinstance(atom, Opaque) for atom in symbolic.atoms(index))


def _columns(family: Family) -> Iterator[tuple[ir.Load, ir.Transposed]]:
    """The loads of whole blocks, with what takes their place."""
    some = next(iter(family.columns.values()))[0]
    lanes, pending = some.lanes, sorted(family.columns)
    while len(pending) >= lanes:
        first = pending[0]
        if pending[lanes - 1] != first + lanes - 1:
            pending.pop(0)
            continue
        corner, step = family.first.corner + first, family.first.step
        rows = tuple(
            ir.Load(some.buffer, (corner + lane * step,), lanes) for lane in range(lanes)
        )
        for column in range(lanes):
            whole = ir.Transposed(rows, column, some.dtype, lanes)
            yield from ((load, whole) for load in family.columns[first + column])
        pending = pending[lanes:]
