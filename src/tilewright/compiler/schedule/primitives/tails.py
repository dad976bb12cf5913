"""Primitives on where loops end: overlap, partition, shorten, specialize, split_counts, split_powers, trim, widen.

Most give parts of a loop their own code; values private to an iteration get their own buffers in each copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias, TypeGuard, cast

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import differences, index_sides, is_at_most_zero
from tilewright.compiler.analysis.proofs import within
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.grid import GRID_KINDS, THREAD_KINDS
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    Rewriter,
    StatementMap,
    body_symbols,
    buffers_read,
    buffers_written,
    dim_symbols,
    expression_symbols,
    loops,
    map_body,
    renamed,
    stores,
    substitute,
)
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.handles import WHOLE, LoopName, Piece, copy_piece
from tilewright.compiler.schedule.primitives.loops import dim_argument, guard, rebind
from tilewright.compiler.schedule.trace import primitive

E = Expressions


def copy_of(
    kernel: ir.Kernel,
    body: ir.Body,
    original: ir.Statement,
    names: FreshNames | None = None,
    private: Sequence[ir.Buffer] | None = None,
    statement: StatementMap | None = None,
) -> tuple[ir.Kernel, ir.Body]:
    """`body`, made from `original`, with its own loop names and copies of its `private` buffers, by default those of an iteration.

    Buffers that other code reads stay shared.  The kernel is that with the new buffers.  `statement`: see `Rewriter`.
    """
    names = names or FreshNames.of(kernel)
    private = dependence.private_buffers(body) if private is None else private
    own = {
        b: ir.Buffer(names.fresh(b.name), b.dtype, b.shape, b.space, b.data)
        for b in dependence.only_inside(private, kernel.body, original)
    }
    dims = renamed(loops(body), names)
    copy = Rewriter(dims=dims, buffers=own, statement=statement).body(body)
    return tree.add_locals(kernel, own.values()), copy


Case: TypeAlias = tuple[ir.Expression | None, ir.Body]
"""When code runs, always if that is None, and the code; without any, there is no such case."""


def in_cases(
    kernel: ir.Kernel, old: ir.For, cases: Iterable[Case], names: FreshNames | None = None
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Put code of its own for each of some cases in the place of a loop: the first keeps its names, the others are copies.

    Returns: a piece for each case that there is, which what is known of sizes does not rule out.
    """
    names = names or FreshNames.of(kernel)
    code: list[ir.Statement] = []
    parts: list[Piece] = []
    for number, (condition, body) in enumerate(cases):
        is_known = isinstance(condition, ir.Const)
        if not body or (is_known and not condition.value):
            continue
        made = body
        if number:
            kernel, made = copy_of(kernel, body, old, names)
        parts.append(copy_piece(body, made) if number else WHOLE)
        code += made if condition is None or is_known else (ir.If(condition, made),)
    return tree.rewrite(kernel, old, code), tuple(parts)


def run_of(old: ir.For, extent: Dim, body: ir.Body, first: Dim = 0) -> ir.For:
    """A loop that runs `body`, that of `old` or a part of it, for `extent` iterations from `first` on."""
    var = tree.loop_symbol(old.var.name, extent)
    body = rebind(body, var.name, first + tree.reference(var))
    return ir.For(var, extent, body, old.kind, old.reduction)


@primitive
def partition(
    kernel: ir.Kernel, loop: str, at: Dim | str
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Cut a loop in two at iteration `at`, each part with its own code.

    rewrite:
        for i in n: S(i)
        ->
        for i in min(at, n): S(i)
        for i_2 in n - min(at, n): S(min(at, n) + i_2)

    Raises: ScheduleError for a negative number, and for a loop of workgroups.
    """
    old = tree.find_inside(kernel, loop)
    dependence.check_fixed((old,), old.body)
    point = dim_argument(kernel, at, tree.enclosing_loops(kernel, old))
    if isinstance(point, int) and point < 0:
        raise ScheduleError(f"cannot cut '{loop}' at {point}")
    is_inside = within(point, old.extent + 1)
    if not is_inside and not _is_at_most_zero(kernel, old, point - old.extent):
        point = symbolic.minimum(point, old.extent)
    halves: tuple[tuple[Dim, Dim], ...] = ((point, 0), (old.extent - point, point))
    runs = ((run_of(old, n, old.body, first),) if n != 0 else () for n, first in halves)
    return in_cases(kernel, old, ((None, run) for run in runs))


def _is_at_most_zero(kernel: ir.Kernel, loop: ir.For, value: Dim) -> bool:
    """Whether guards around a loop, or bounds, say that a number is at most 0, behind a quotient, too."""
    said = map(_unrounded, differences(tree.facts_at(kernel, loop)))
    return is_at_most_zero(_unrounded(value), said)


def _unrounded(value: Dim) -> Dim:
    """What is at most 0 just where `value` is, without a quotient beside a known number."""
    for dividend, divisor in symbolic.quotients(value):
        quotient = symbolic.floordiv(dividend, divisor)
        above, below = value - quotient, value + quotient
        if isinstance(above, int):
            return _unrounded(dividend + above * divisor - (divisor - 1))
        if isinstance(below, int):
            return _unrounded(below * divisor - dividend)
    return value


@primitive
def specialize(
    kernel: ir.Kernel, loop: str, at: str | None = None, tail: str = "exact"
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Give the full and the last, partial run of a guarded loop their own code without guard.

    rewrite:
        for i in f: if r + i < n: S(i)                      (f divides r)
        ->
        if r + f <= n: for i in f: S(i)
        exact:    if r == n - n % f: for i_2 in n % f: S(i_2)
        guarded:  if r + f > n: for i_2 in f: if r + i_2 < n: S(i_2)

    With `at`, the two cases are told apart in front of that loop, around or equal to `loop`.
    Raises: ScheduleError if the loop has no such guard, as `split` makes it, or if r changes
    inside `at`; for a loop of workgroups.
    """
    old, top, (condition, rest, limit) = _guarded(kernel, loop, at)
    assert isinstance(old.extent, int), "asked by guard_of"
    if tail not in ("exact", "guarded"):
        raise ScheduleError(f"tail is 'exact' or 'guarded', got '{tail}'")
    rest_count, without = symbolic.mod(limit, old.extent), _without(old.body, condition)
    end, size = E.index(rest + old.extent), E.index(limit)
    full = tree.swap((top,), old, (tree.with_inner(old, without),))
    cases: list[Case] = [(E.compare("le", end, size), full)]
    if tail == "guarded":
        cases.append((E.compare("gt", end, size), (top,)))
    elif rest_count != 0:
        last = tree.swap((top,), old, (run_of(old, rest_count, without),))
        is_last = E.compare("eq", E.index(rest), E.index(limit - rest_count))
        cases.append((is_last, last))
    return in_cases(kernel, top, cases)


@primitive
def shorten(
    kernel: ir.Kernel, loop: str, extent: int, at: str | None = None
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Give a guarded loop its own code for where no iteration from `extent` on passes the guard.

    rewrite:
        for i in f: if r + i < n: S(i)                      (e < f divides r)
        ->
        if r + e < n: for i in f: if r + i < n: S(i)
        if r + e >= n: for i_2 in e: if r + i_2 < n: S(i_2)

    With an `extent` of 0 the second case has no code.
    With `at`, the two cases are told apart in front of that loop, around or equal to `loop`.
    Raises: ScheduleError if the loop has no such guard, as `split` makes it, or is no longer than `extent`, or if r
    changes inside `at`; for a loop of workgroups.
    """
    old, top, (_, rest, limit) = _guarded(kernel, loop, at)
    assert isinstance(old.extent, int), "asked by guard_of"
    if not 0 <= extent < old.extent:
        raise ScheduleError(f"'{loop}' runs {old.extent} times, not more than {extent}")
    end, size = E.index(rest + extent), E.index(limit)
    cases: list[Case] = [(E.compare("lt", end, size), (top,))]
    if extent:
        short = tree.swap((top,), old, (run_of(old, extent, old.body),))
        cases.append((E.compare("ge", end, size), short))
    return in_cases(kernel, top, cases)


@primitive
def overlap(
    kernel: ir.Kernel, loop: str, last: str = "joined"
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Let the last run of a guarded loop begin earlier, where it is whole: it makes again what the one before it has made.

    rewrite:
        for r in n: for i in 4: if 4 * r + i < m: y[4 * r + i] = x[4 * r + i]       (m >= 4)
        ->
        joined:  for r in n: for i in 4: y[s + i] = x[s + i]                        (s = min(4 * r, m - 4))
        partial: for r in m // 4: for i in 4: y[4 * r + i] = x[4 * r + i]
                 for r_2 in n - m // 4: for i_2 in 4: y[m - 4 + i_2] = x[m - 4 + i_2]

    With `alone` the last run has code of its own, too, if it was whole before.

    Raises: ScheduleError if the loop has no such guard, as `split` makes it, if nothing says that a whole run is there, if
    runs are those of several workgroups or threads, if they differ in more than where they begin, read what they make, or
    store to an element more than once, or if other code reads what an iteration makes for itself; for a loop of workgroups.
    """
    if last not in ("joined", "partial", "alone"):
        raise ScheduleError(f"last is 'joined', 'partial' or 'alone', got '{last}'")
    old, _, (condition, rest, limit) = _guarded(kernel, loop, None)
    assert isinstance(old.extent, int), "asked by guard_of"
    if not _is_at_most_zero(kernel, old, old.extent - limit):
        raise ScheduleError(f"nothing says that there are {old.extent} of '{loop}'")
    begun = f"{loop}~"
    each = {old.var.name: symbolic.symbol(begun) - rest}
    body = substitute(_without(old.body, condition), each)
    runs = _runs_that_may_overlap(kernel, old, rest, body)

    def begin_at(first: Dim) -> ir.Statement:
        place = first + tree.reference(old.var)
        return tree.with_inner(old, substitute(body, {begun: place}))

    at_end = limit - old.extent
    if last == "joined":
        code = begin_at(symbolic.minimum(rest, at_end))
        return tree.rewrite(kernel, old, (code,)), (WHOLE,)
    whole = symbolic.floordiv(limit if last == "partial" else limit - 1, old.extent)
    count = symbolic.minimum(whole, runs.extent)
    cases: list[Case] = []
    for number, first in ((count, rest), (runs.extent - count, at_end)):
        inside = tree.swap(runs.body, old, (begin_at(first),))
        cases.append((None, (run_of(runs, number, inside),)))
    return in_cases(kernel, runs, cases)


def _runs_that_may_overlap(
    kernel: ir.Kernel, old: ir.For, rest: Dim, body: ir.Body
) -> ir.For:
    """The loop around `old` that `rest` counts, whose iterations may meet in what they make.  Raises: as `overlap`."""
    loop = old.var.name
    around = {x.var.name: x for x in tree.enclosing_loops(kernel, old)}
    runs = around.get(next(iter(symbolic.names_in((rest,))), ""))
    if runs is None or rest != old.extent * tree.reference(runs.var):
        raise ScheduleError(f"runs of '{loop}' are not those of one loop")
    between = tree.path_inside(runs, old)
    conditions = (x.condition for x in between if isinstance(x, ir.If))
    used = {s.name for x in conditions for s in expression_symbols(x)}
    used |= symbolic.names_in(x.extent for x in between if isinstance(x, ir.For))
    if runs.var.name in used | {s.name for s in body_symbols(body)}:
        raise ScheduleError(f"runs of '{loop}' differ in more than where they begin")
    _check_made_again(kernel, runs, old)
    return runs


def _check_made_again(kernel: ir.Kernel, runs: ir.For, old: ir.For) -> None:
    """What a later one of `runs` of a loop makes again must be the same, and nobody may see that it is made twice."""
    loop = old.var.name
    if runs.kind in (*GRID_KINDS, *THREAD_KINDS):
        raise ScheduleError(f"runs of '{loop}' are those of several workgroups or threads")
    _check_unseen(kernel, old)
    written = buffers_written((runs,))
    private = dependence.private_buffers(old.body)
    for buffer in buffers_read((runs,)):
        if buffer in written and all(buffer is not b for b in private):
            raise ScheduleError(f"runs of '{loop}' read what they make, '{buffer.name}'")
    # In one run the last iteration that stores to an element is the last one of all; of several, it may be another.
    *around, last = (x for x in tree.path_inside(runs, old) if isinstance(x, ir.For))
    if last is not runs:
        outer = [x.var for x in around]
        met = dependence.carried(last, outer, scope=kernel.body)
        if met is not None:
            raise ScheduleError(f"runs of '{loop}' meet in '{met.name}'")


def _guarded(
    kernel: ir.Kernel, loop: str, at: str | None
) -> tuple[ir.For, ir.For, tuple[ir.Expression, Dim, Dim]]:
    """A guarded loop, the loop in front of which its cases are told apart, and the guard."""
    old = tree.find(kernel, loop)
    top = tree.find_inside(kernel, loop if at is None else at)
    if not isinstance(old.extent, int):
        raise ScheduleError(f"'{loop}' has no constant extent")
    found = guard_of(old)
    if found is None:
        raise ScheduleError(f"'{loop}' has no guard to specialize on")
    condition, rest, _ = found
    dependence.check_guard_fixed(ir.If(condition, old.body), (top,))
    _check_private_outside(old, condition)
    path = tree.path_inside(top, old)
    inside = {s.var.name for s in (*path, old) if isinstance(s, ir.For)}
    if not inside.isdisjoint(symbolic.names_in((rest,))):
        raise ScheduleError(f"which case '{loop}' is in changes inside '{at}'")
    return old, top, found


@primitive
def trim(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Leave out the iterations at the end of a loop that nobody sees.

    rewrite:
        for i in n: t = S(i); if i < m: y[i] = t                (m <= n)
        ->
        for i in m: t = S(i); y[i] = t

    Raises: ScheduleError if there is no such guard, if memory says how large m is, or if what stands outside it is seen.
    """
    old = tree.find(kernel, loop)
    found = guard_of(old)
    if found is None or found[1] != 0:
        raise ScheduleError(f"'{loop}' has no guard on its own index")
    condition, _, limit = found
    if any(payloads(limit)):
        raise ScheduleError(f"memory says how many iterations '{loop}' has")
    if not within(limit, old.extent + 1):
        raise ScheduleError(f"nothing says that '{loop}' has as many as {limit} iterations")
    _check_private_outside(old, condition)
    _check_unseen(kernel, old)
    shorter = run_of(old, limit, _without(old.body, condition))
    return tree.rewrite(kernel, old, (shorter,))


@primitive
def widen(kernel: ir.Kernel, loop: str, extent: int) -> tuple[ir.Kernel, LoopName]:
    """Let a loop whose length only a call knows run a known number of times, the last of them for nothing.

    rewrite:
        if n <= 64: for i in n: S(i)
        ->
        if n <= 64: for i in 64: if i < n: S(i)

    Raises: ScheduleError for a length that is known, unless its bounds or a guard around the loop say that it is at most
    `extent`, and for a loop of workgroups.
    """
    old = tree.find_inside(kernel, loop)
    dependence.check_fixed((old,), old.body)
    if isinstance(old.extent, int):
        raise ScheduleError(f"'{loop}' runs {old.extent} times in every call")
    if not _is_at_most_zero(kernel, old, old.extent - extent):
        raise ScheduleError(f"nothing says that '{loop}' runs at most {extent} times")
    wide = run_of(old, extent, old.body)
    inside = guard(tree.reference(wide.var), old.extent, wide.body)
    return tree.rewrite(kernel, old, (tree.with_inner(wide, (inside,)),)), LoopName(loop)


def _check_unseen(kernel: ir.Kernel, loop: ir.For) -> None:
    """What is private to an iteration of a loop must be read in it alone."""
    private = dependence.private_buffers(loop.body)
    if any(dependence.live_outside(kernel.body, loop, b) for b in private):
        raise ScheduleError(f"what '{loop.var.name}' computes is read elsewhere")


def _check_private_outside(loop: ir.For, condition: ir.Expression) -> None:
    """What a guarded iteration does outside its guard must stay within the iteration."""
    private = dependence.private_buffers(loop.body)
    unguarded = map_body(
        loop.body, statement=lambda s: () if _is_guard(s, condition) else s
    )
    for statement in stores(unguarded):
        if all(statement.buffer is not b for b in private):
            raise ScheduleError(
                f"'{loop.var.name}' stores to '{statement.buffer.name}' outside the guard"
            )


def guard_of(loop: ir.For) -> tuple[ir.Expression, Dim, Dim] | None:
    """The condition `r + i < n` inside `loop`, with r (a multiple of the extent) and n, both the same all through it."""
    if isinstance(loop.extent, int) and loop.extent < 1:
        return None
    own = {x.var.name for x in loops((loop,))}
    for condition in (s.condition for s in ir.walk(loop.body) if isinstance(s, ir.If)):
        sides = guard_sides(condition)
        if sides is None or (at := symbolic.linear(sides[0], loop.var.name)) is None:
            continue
        step = loop.extent if isinstance(loop.extent, int) else 0
        is_step = at[1] == 0 or (step and symbolic.is_multiple(at[1], step))
        apart = (s.name for x in (at[1], sides[1]) for s in dim_symbols(x))
        if at[0] == 1 and is_step and own.isdisjoint(apart):
            return condition, at[1], sides[1]
    return None


def guard_sides(condition: ir.Expression) -> tuple[Dim, Dim] | None:
    """`(index, extent)` of a condition `index < extent`."""
    if not isinstance(condition, ir.Compare) or condition.op != "lt":
        return None
    return index_sides(condition)


def _without(body: ir.Body, condition: ir.Expression) -> ir.Body:
    """`body` with the guards on `condition` opened."""

    def opened(statement: ir.Statement) -> ir.Statement | ir.Body:
        return statement.body if _is_guard(statement, condition) else statement

    return map_body(body, statement=opened)


def _is_guard(statement: ir.Statement, condition: ir.Expression) -> TypeGuard[ir.If]:
    return isinstance(statement, ir.If) and statement.condition is condition


@primitive
def split_counts(
    kernel: ir.Kernel, loop: str, block: int = 0
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Give each number of times that a short loop of unknown length may run its own code.

    rewrite:
        for i in n: S(i)                                            (n <= 2)
        ->
        if n == 2: for i in 2: S(i)
        if n == 1: for i_2 in 1: S(i_2)

    With a `block`, so many iterations, if there are as many, run in front, and only what is left of them is counted:

    rewrite:
        for i in n: S(i)                                            (n < 2 * 3)
        ->
        for b in n // 3: for i in 3: S(i)
        if n % 3 == 2: for i_2 in 2: S(n // 3 * 3 + i_2)
        if n % 3 == 1: for i_3 in 1: S(n // 3 * 3 + i_3)

    Raises: ScheduleError where the number is known or has no bound, for a block that may run twice, and for a loop of
    workgroups.
    """
    old = tree.find_inside(kernel, loop)
    most = symbolic.bounds(old.extent)[1]
    if isinstance(old.extent, int) or most is None or most < 1:
        raise ScheduleError(
            f"'{loop}' runs {old.extent} times, which is no number up to a bound"
        )
    if block < 0 or 0 < 2 * block <= most:
        raise ScheduleError(f"'{loop}' may run {most} times, no fewer than two of {block}")
    dependence.check_fixed((old,), old.body)
    names = FreshNames.of(kernel)
    cases: list[Case] = []
    rest, start = old.extent, cast("Dim", 0)
    if block:
        blocks = symbolic.floordiv(old.extent, block)
        around = tree.make_loop(names.fresh(f"{loop}_b"), blocks, ())
        cases.append((None, (tree.with_inner(around, (run_of(old, block, old.body),)),)))
        rest, start = symbolic.mod(old.extent, block), blocks * block
    for count in range(symbolic.bounds(rest)[1] or 0, 0, -1):
        is_it = E.compare("eq", E.index(rest), E.index(count))
        cases.append((is_it, (run_of(old, count, old.body, start),)))
    return in_cases(kernel, old, cases, names)


@primitive
def split_powers(
    kernel: ir.Kernel, loop: str, largest: int
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Run a short loop of unknown length as blocks of `largest`, ..., 4, 2, 1 iterations.

    rewrite:
        for i in n: S(i)                                            (n < 2 * largest)
        ->
        for p in n // 2 % 2: for i in 2: S(n // 4 * 4 + i)          (once per power)
        for p_2 in n % 2: for i_2 in 1: S(n // 2 * 2 + i_2)

    Raises: ScheduleError unless `largest` is a power of two and n surely below twice that; for a loop of workgroups.
    """
    old = tree.find_inside(kernel, loop)
    upper = symbolic.bounds(old.extent)[1]
    if largest < 1 or largest & (largest - 1) or upper is None or upper >= 2 * largest:
        raise ScheduleError(
            f"'{loop}' runs up to {upper} times, not below twice the power of two {largest}"
        )
    dependence.check_fixed((old,), old.body)
    names = FreshNames.of(kernel)

    def blocks() -> Iterator[Case]:
        size = largest
        while size:
            count = symbolic.mod(symbolic.floordiv(old.extent, size), 2)
            start = symbolic.floordiv(old.extent, 2 * size) * (2 * size)
            around = tree.make_loop(names.fresh(f"{loop}_p"), count, ())
            yield None, (tree.with_inner(around, (run_of(old, size, old.body, start),)),)
            size //= 2

    return in_cases(kernel, old, blocks(), names)
