"""Primitives on loops: split, fuse, reorder, tile, unroll, vectorize.

Each is a pure function of a kernel and plain arguments; it raises ScheduleError with the reason when
the rewrite would change what the kernel computes or cannot be expressed.  None of them copies code
(see `tails`), moves a statement out of its loops (see `nests`) or changes a buffer (see `memory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import accesses
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.rewrite import FreshNames, loops, only_statement, substitute
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.handles import LoopName
from tilewright.compiler.schedule.trace import primitive

E = Expressions


def dim_argument(kernel: ir.Kernel, value: Dim | str, around: Sequence[ir.For] = ()) -> Dim:
    """A size given as number, dimension or text, with the bounds of the kernel's symbols."""
    parsed = symbolic.parse(value) if isinstance(value, str) else value
    known = {s.name: symbolic.Expr.of_atom(s) for s in kernel.dims}
    known |= {loop.var.name: tree.reference(loop.var) for loop in around}
    for used in symbolic.symbols(parsed):
        if used.name not in known:
            raise ScheduleError(f"unknown symbol '{used.name}' in '{parsed}'")
    return symbolic.substitute(parsed, known)


def _two_names(kernel: ir.Kernel, loop: str, into: Sequence[str] | None) -> tuple[str, str]:
    if into is None:
        names = FreshNames.of(kernel)
        return names.fresh(f"{loop}_o"), names.fresh(f"{loop}_i")
    if len({*into}) != 2 or len(into) != 2:
        raise ScheduleError(f"'{loop}' is split into 2 loops, got the names {list(into)}")
    outer, inner = (tree.free_name(kernel, name, loop) for name in into)
    return outer, inner


def rebind(body: ir.Body, name: str, value: Dim) -> ir.Body:
    """`body` with a loop variable replaced; `value` may use a new variable of the same name.

    Symbols are equal by name, so one with new bounds must come in by way of another name.
    """
    if name not in symbolic.names_in((value,)):
        return substitute(body, {name: value})
    between = f"{name}~"
    return substitute(substitute(body, {name: symbolic.symbol(between)}), {between: value})


@primitive
def split(
    kernel: ir.Kernel,
    loop: str,
    factor: int,
    tail: str = "guard",
    into: Sequence[str] | None = None,
) -> tuple[ir.Kernel, tuple[LoopName, LoopName]]:
    """Split a loop in two; `tail` says what happens when `factor` does not divide the extent.

    rewrite:
        for i in n: S(i)
        ->
        guard:  for i_o in ceil(n / f): for i_i in f: if i_o * f + i_i < n: S(i_o * f + i_i)
                (the guard goes inside the loops that are perfectly nested in `i`)
        tight:  for i_o in ceil(n / f): for i_i in min(f, n - i_o * f): S(i_o * f + i_i)

    Raises: ScheduleError for a factor below 1 or a grid loop.
    """
    old = tree.find(kernel, loop)
    if factor < 1:
        raise ScheduleError(f"cannot split '{loop}' by {factor}")
    if tail not in ("guard", "tight"):
        raise ScheduleError(f"tail is 'guard' or 'tight', got '{tail}'")
    dependence.check_fixed((old,), old.body)
    outer, inner = _two_names(kernel, loop, into)
    divides = symbolic.is_multiple(old.extent, factor)
    count = symbolic.ceildiv(old.extent, factor)
    outer_loop = tree.make_loop(outer, count, (), old.kind, reduction=old.reduction)
    # A single block starts at 0 whatever the variable; index algebra sees that more easily.
    base = 0 if count == 1 else tree.reference(outer_loop.var) * factor
    size: Dim = factor
    if tail == "tight" and not divides:
        size = symbolic.minimum(factor, old.extent - base)
    inner_loop = tree.make_loop(inner, size, (), reduction=old.reduction)
    index = base + tree.reference(inner_loop.var)
    if factor == 1:
        index = base
    body = rebind(old.body, loop, index)
    if tail == "guard" and not divides:
        body = _guard_inside(index, old.extent, body)
    nest = tree.with_inner(outer_loop, (tree.with_inner(inner_loop, body),))
    return tree.rewrite(kernel, old, (nest,)), (LoopName(outer), LoopName(inner))


def _guard_inside(index: Dim, extent: Dim, body: ir.Body) -> ir.Body:
    """The guard as deep as `body` is a perfect nest, so that its loops can still be reordered."""
    inner = only_statement(body)
    if isinstance(inner, ir.For):
        return (tree.with_inner(inner, _guard_inside(index, extent, inner.body)),)
    return (guard(index, extent, body),)


def guard(index: Dim, extent: Dim, body: ir.Body) -> ir.Statement:
    """`body` where `index < extent`."""
    return ir.If(ir.Compare("lt", E.index(index), E.index(extent)), body)


@primitive
def fuse(
    kernel: ir.Kernel, outer: str, inner: str, into: str | None = None
) -> tuple[ir.Kernel, LoopName]:
    """Make one loop of two perfectly nested ones.

    rewrite:
        for i in n: for j in m: S(i, j)
        ->
        for i in n * m: S(i // m, i % m)

    Raises: ScheduleError unless `inner` is the only statement in `outer` with a fixed extent.
    """
    first = tree.find(kernel, outer)
    nest = tree.chain(first)
    if len(nest) < 2 or nest[1].var.name != inner:
        raise ScheduleError(f"'{inner}' is not directly inside '{outer}'")
    second = nest[1]
    if outer in symbolic.names_in((second.extent,)):
        raise ScheduleError(f"the extent of '{inner}' depends on '{outer}'")
    if first.kind is not second.kind or first.reduction != second.reduction:
        raise ScheduleError(f"'{outer}' and '{inner}' are loops of different kinds")
    if second.extent == 0:
        raise ScheduleError(f"'{inner}' never runs")
    dependence.check_fixed((first, second), second.body)
    name = tree.free_name(kernel, into or outer, outer, inner)
    extent = first.extent * second.extent
    fused = tree.make_loop(name, extent, (), first.kind, reduction=first.reduction)
    index = tree.reference(fused.var)
    # Through another name first: `name` may be one of the two.
    between = symbolic.symbol(f"{name}~", 0, fused.var.upper)
    body = substitute(
        second.body,
        {
            outer: symbolic.floordiv(between, second.extent),
            inner: symbolic.mod(between, second.extent),
        },
    )
    body = substitute(body, {f"{name}~": index})
    return tree.rewrite(kernel, first, (tree.with_inner(fused, body),)), LoopName(name)


@primitive
def reorder(kernel: ir.Kernel, order: Sequence[str]) -> ir.Kernel:
    """Put perfectly nested loops in another order, outermost first.

    rewrite:
        for i: for j: S
        ->
        for j: for i: S

    Raises: ScheduleError if the loops are not one nest, if an extent depends on a loop that would
    come later, or if iterations depend on each other: of the nest, or, where loops only move
    inward past others that keep their order, of those loops.
    """
    first = next((s for s in loops(kernel.body) if s.var.name in order), None)
    if first is None:
        raise ScheduleError(f"no loop among {list(order)}")
    nest = tree.chain(first)
    positions = [n for n, s in enumerate(nest) if s.var.name in order]
    if len(positions) != len(order) or len(set(order)) != len(order):
        missing = sorted(set(order) - {s.var.name for s in nest})
        raise ScheduleError(f"{missing} are not perfectly nested in '{first.var.name}'")
    by_name = {s.var.name: s for s in nest}
    wanted = list(nest[: positions[-1] + 1])
    for position, name in zip(positions, order, strict=True):
        wanted[position] = by_name[name]
    if all(a is b for a, b in zip(wanted, nest, strict=False)):
        return kernel
    _check_extents(wanted)
    dependence.check_fixed(nest, nest[-1].body)
    moved = nest[: positions[-1] + 1]
    inward = _moved_inward(moved, wanted)
    if inward is None or not all(_is_parallel(kernel, x, moved[-1]) for x in inward):
        _check_permutable(kernel, moved)
    return tree.rewrite(kernel, first, tree.nested(wanted, nest[positions[-1]].body))


def _check_extents(wanted: Sequence[ir.For]) -> None:
    inside = {s.var.name for s in wanted}
    for statement in wanted:
        late = sorted(
            s.name for s in symbolic.symbols(statement.extent) if s.name in inside
        )
        if late:
            raise ScheduleError(
                f"the extent of '{statement.var.name}' depends on '{late[0]}'"
            )
        inside.discard(statement.var.name)


def _moved_inward(before: Sequence[ir.For], after: Sequence[ir.For]) -> list[ir.For] | None:
    """The fewest loops that go inward while all others keep their order; None if there are others."""
    inward: list[ir.For] = []
    rest = list(after)
    for loop in before:
        if rest and rest[0] is loop:
            rest.pop(0)
        elif loop in rest:
            inward.append(loop)
        while rest and rest[0] in inward:
            rest.pop(0)
    return None if rest else inward


def _is_parallel(kernel: ir.Kernel, loop: ir.For, innermost: ir.For) -> bool:
    """Whether iterations of `loop` share nothing but what is private to those of `innermost`."""
    private = frozenset(
        dependence.only_inside(
            dependence.private_buffers(innermost.body), kernel.body, innermost
        )
    )
    found = accesses(loop.body)
    writes = [a for a in found if a.write]
    return dependence.conflict(writes, found, (loop.var,), private) is None


def _check_permutable(kernel: ir.Kernel, nest: Sequence[ir.For]) -> None:
    found = dependence.carried(nest[-1], tuple(s.var for s in nest[:-1]), scope=kernel.body)
    if found is not None:
        raise ScheduleError(
            f"iterations of {[s.var.name for s in nest]} depend on each other through "
            f"'{found.name}'"
        )


@primitive
def tile(
    kernel: ir.Kernel,
    loop_factors: Sequence[Sequence[object]],
    tail: str = "guard",
) -> tuple[ir.Kernel, tuple[LoopName, ...]]:
    """Split several perfectly nested loops and move the inner halves inside.

    rewrite:
        for i: for j: S
        ->
        for i_o: for j_o: for i_i: for j_i: S

    `loop_factors` is a list of [loop, factor].  Raises: what `split` and `reorder` raise.
    """
    outers: list[LoopName] = []
    inners: list[LoopName] = []
    for entry in loop_factors:
        loop, factor = entry if len(entry) == 2 else (None, None)
        if not isinstance(loop, str) or not isinstance(factor, int):
            raise ScheduleError(f"a tile is [loop, factor], got {entry!r}")
        kernel, (outer, inner) = split.rewrite(kernel, loop, factor, tail)
        outers.append(outer)
        inners.append(inner)
    return reorder(kernel, (*outers, *inners)), (*outers, *inners)


@primitive
def unroll(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Mark a loop to be written out.

    rewrite:
        for i in 4: S(i)
        ->
        unroll i in 4: S(i)

    Raises: ScheduleError if the extent is not a constant.
    """
    old = tree.find(kernel, loop)
    if not isinstance(old.extent, int):
        raise ScheduleError(f"'{loop}' cannot be unrolled: its extent is '{old.extent}'")
    return tree.rewrite(kernel, old, (replace(old, kind=ir.LoopKind.UNROLL),))


@primitive
def vectorize(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Mark a loop to run as the lanes of vectors.

    rewrite:
        for i in 16: S(i)
        ->
        vector i in 16: S(i)

    Raises: ScheduleError if the extent is not a constant or the iterations are not independent.
    """
    old = tree.find(kernel, loop)
    if not isinstance(old.extent, int):
        raise ScheduleError(f"'{loop}' cannot be vectorized: its extent is '{old.extent}'")
    found = accesses(old.body)
    writes = [a for a in found if a.write]
    # Private buffers and updates included.
    met = dependence.conflict(writes, found, (old.var,), updates_commute=False)
    if met is not None:
        raise ScheduleError(
            f"'{loop}' cannot be vectorized: its iterations meet in '{met.name}'"
        )
    return tree.rewrite(kernel, old, (replace(old, kind=ir.LoopKind.VECTOR),))
