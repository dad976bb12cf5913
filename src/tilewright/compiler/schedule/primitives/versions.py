"""Primitives on what calls have in common or not: version, version_by_limits, version_of_sizes, precompute_factors.

A size that only a call knows may decide which code is worth running; what iterations have in common may be worth
making once.  No sum gets other terms.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Final, final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis.accesses import Fact, facts_where
from tilewright.compiler.analysis.proofs import in_bounds
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    body_if_defined,
    buffers_written,
    expression_symbols,
    is_target,
    loads,
    loops,
    map_body,
    only_statement,
    rename_loops,
    renamed,
    stores,
)
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.handles import (
    WHOLE,
    BufferName,
    LoopName,
    Piece,
    copy_piece,
)
from tilewright.compiler.schedule.primitives.guards import settled
from tilewright.compiler.schedule.primitives.loops import dim_argument
from tilewright.compiler.schedule.primitives.reduction import terms_of
from tilewright.compiler.schedule.primitives.tails import copy_of, guard_sides
from tilewright.compiler.schedule.trace import primitive

E: Final = Expressions


@primitive
def version(
    kernel: ir.Kernel, loop: str, size: Dim | str, least: int
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Give a loop two codes: for where a size is at least so large, and for where it is not.

    rewrite:
        for i in n: S(i)
        ->
        if size >= least: for i in n: S(i)
        if size < least: for i_2 in n: S(i_2)

    Raises: ScheduleError for a size that is known, and for a loop of workgroups, whose number is that of all calls.
    """
    old = tree.find_inside(kernel, loop)
    limit = _open_size(kernel, size, tree.enclosing_loops(kernel, old))
    kernel, other = copy_of(kernel, (old,), old)
    large = ir.If(E.compare("ge", E.index(limit), E.index(least)), (old,))
    small = ir.If(E.compare("lt", E.index(limit), E.index(least)), other)
    return tree.rewrite(kernel, old, (large, small)), (WHOLE, copy_piece((old,), other))


@primitive
def version_by_limits(
    kernel: ir.Kernel, loop: str, size: Dim | str, limits: Sequence[int]
) -> ir.Kernel:
    """Give a loop a code for sizes up to the first of some limits, one for those up to the next, and one for those behind the last.

    In each, a loop that is written out has code of its own for the iterations that are there at all of its sizes, in which
    nothing is asked, and none for those that are there at none.

    rewrite:
        if n <= 4: for i in m: unroll j in 4: if j < n: S(i, j)
        ->
        if n <= 4: if n <= 3: for i in m: unroll j in 3: if j < n: S(i, j)
                   if n > 3: for i_2 in m: unroll j_2 in 3: S(i_2, j_2)
                                           unroll j_3 in 1: if 3 + j_3 < n: S(i_2, 3 + j_3)

    A call has one size, so only one of them runs in it, with temporaries of its own.

    Raises: ScheduleError unless the size is made of those of a call and the limits rise, and for a loop of workgroups, whose
    number is that of all calls.
    """
    if not limits or any(low >= high for low, high in itertools.pairwise(limits)):
        raise ScheduleError(f"{list(limits)} are no limits that rise")
    old = tree.find_inside(kernel, loop)
    limit = _open_size(kernel, size, ())
    names = FreshNames.of(kernel)
    own = [b for b in kernel.locals if b.space in ir.LOCAL_SPACES]
    known = tree.facts_at(kernel, old)
    code: list[ir.Statement] = []
    for low, high in itertools.pairwise((None, *limits, None)):
        above = () if low is None else (E.compare("ge", E.index(limit), E.index(low + 1)),)
        below = () if high is None else (E.compare("le", E.index(limit), E.index(high)),)
        condition = functools.reduce(E.and_, (*above, *below))
        facts = (*known, *facts_where(condition))
        ended = functools.partial(_ended, limit, facts, names)
        if code:
            kernel, copy = copy_of(kernel, (old,), old, names, own, ended)
        else:
            copy = map_body((old,), statement=ended)
        code.append(ir.If(condition, copy))
    return tree.rewrite(kernel, old, code)


def _ended(
    size: Dim, facts: Sequence[Fact], names: FreshNames, loop: ir.Statement
) -> ir.Body:
    """A loop that is written out as its iterations that are there at all sizes that `facts` allow, and those at some."""
    step = _step_of(loop, size)
    if not isinstance(loop, ir.For) or not isinstance(loop.extent, int) or step is None:
        return (loop,)
    said = (a for a, b in facts if b == size and isinstance(a, int))
    least = max((0, symbolic.bounds(size)[0] or 0, *said))
    limits = (b for a, b in facts if a == size and isinstance(b, int))
    most = min((step * loop.extent, *limits))
    whole = min(least // step, loop.extent)
    found: list[ir.Statement] = []
    for first, end in itertools.pairwise(
        (0, whole, max(whole, -(-most // step)), loop.extent)
    ):
        if first == end:
            continue
        var = tree.loop_symbol(names.fresh(loop.var.name), end - first)
        run = ir.For(var, end - first, (), loop.kind, loop.reduction)
        dims = {loop.var.name: first + tree.reference(var)}
        if found:
            dims |= renamed(loops(loop.body), names)
        part = settled(loop.body, ((least, size), (size, most)), (run,), dims)
        if any(stores(part)):
            found.append(tree.with_inner(run, part))
    return tuple(found)


def _step_of(loop: ir.Statement, size: Dim) -> int | None:
    """How much of a size each iteration of a loop that is written out asks for; None where it is no such loop, or does not ask."""
    if not isinstance(loop, ir.For) or loop.kind is not ir.LoopKind.UNROLL:
        return None
    for statement in ir.walk(loop.body):
        sides = guard_sides(statement.condition) if isinstance(statement, ir.If) else None
        split = symbolic.linear(sides[0], loop.var.name) if sides else None
        if sides and split and sides[1] == size and isinstance(split[0], int):
            return split[0] if split[0] > 0 else None
    return None


def _open_size(kernel: ir.Kernel, size: Dim | str, around: Sequence[ir.For]) -> Dim:
    """A size that only a call knows.  Raises: ScheduleError for one that is known before."""
    limit = dim_argument(kernel, size, around)
    if isinstance(limit, int):
        raise ScheduleError(f"{limit} is known before a call")
    return limit


@primitive
def version_of_sizes(
    kernel: ir.Kernel, loop: str, size: Dim | str, numbers: Sequence[int]
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Give a loop its own code for each of some numbers that a size may be; the last part is for all others.

    Loops around that run once where the size is such a number are at 0 there.  A number that makes a divisor 0, as 2 does
    that of `n // 8`, has none.

    rewrite:
        for b in (n + 63) // 64: for i in min(n - 64 * b, 64): S(b, i, n)
        ->
        for b in (n + 63) // 64:
            if n == 2: for i_2 in 2: S(0, i_2, 2)
            if n == 3: for i_3 in 3: S(0, i_3, 3)
            if n < 2 or n > 3: for i in min(n - 64 * b, 64): S(b, i, n)

    Raises: ScheduleError unless the size is a symbol of the kernel, and for a loop of workgroups.
    """
    old = tree.find_inside(kernel, loop)
    around = tree.enclosing_loops(kernel, old)
    limit = dim_argument(kernel, size, around)
    symbol = symbolic.only_atom(limit)
    if not isinstance(symbol, Symbol) or symbol not in kernel.dims:
        raise ScheduleError(f"{limit} is no size of its own")
    names = FreshNames.of(kernel)
    code: list[ir.Statement] = []
    parts: list[Piece] = []
    others: list[ir.Expression] = []
    for number in dict.fromkeys(numbers):
        dims = _known_where(symbol.name, number, around)
        if dims is None:
            continue
        extended, copy = copy_of(kernel, (old,), old, names)
        known = body_if_defined(copy, dims)
        if known is None:
            continue
        kernel = extended
        parts.append(copy_piece((old,), copy))
        code.append(ir.If(E.compare("eq", E.index(limit), E.index(number)), known))
        others.append(E.compare("ne", E.index(limit), E.index(number)))
    if others:
        code.append(ir.If(functools.reduce(E.and_, others), (old,)))
    return tree.rewrite(kernel, old, code or (old,)), (*parts, WHOLE)


def _known_where(name: str, number: int, around: Sequence[ir.For]) -> dict[str, Dim] | None:
    """What symbols are where a size is a number: that size, and loops around that run once; None if a divisor is 0."""
    known: dict[str, Dim] = {name: number}
    for loop in around:
        extent = symbolic.substitute_if_defined(loop.extent, known)
        if extent is None:
            return None
        if extent == 1:
            known[loop.var.name] = 0
    return known


@primitive
def precompute_factors(
    kernel: ir.Kernel, loop: str, lane: str
) -> tuple[ir.Kernel, tuple[BufferName, LoopName]]:
    """Compute the factors that a sum's steps have in common for all iterations of a loop in front of it.

    Products that one step adds get a loop of their own; what scales them is part of the factors.  Factors of
    neighbouring iterations of `lane` are neighbours.  Makes the buffer, in workgroup memory, and the outermost loop
    that fills it.  Numbers are scaled before they are added instead of afterwards, as `rfactor` adds them in another
    order.

    rewrite:
        for i: for j: for k: y[i, j] += (x[i, 2 * k] * f(w[k, j]) + x[i, 2 * k + 1] * g(w[k, j])) * s[k, j]
        ->
        for k_2: for j_2: t[k_2, 0, j_2] = f(w[k_2, j_2]) * s[k_2, j_2]
                          t[k_2, 1, j_2] = g(w[k_2, j_2]) * s[k_2, j_2]
        for i: for j: for k: for part in 2: y[i, j] += x[i, 2 * k + part] * t[k, part, j]

    Raises: ScheduleError where there is no such sum; where the loop changes what factors are made of; where the loops
    on which they depend have no constant extents; for a `lane` that is none of these; where what factors are made of
    may not be there when the loop does not run.
    """
    old = tree.find_inside(kernel, loop)
    found = common_factors(old, lane)
    if found is None:
        raise ScheduleError(
            f"no sum in '{loop}' has factors by '{lane}' that are the same for all its iterations"
        )
    _check_exists(kernel, old, found)
    names = FreshNames.of(kernel)
    dtype = found.factors[0].dtype
    made = ir.Buffer(names.fresh("factors"), dtype, found.shape, ir.Space.WORKGROUP)
    each = tuple(
        ir.Store(made, found.place(part), factor)
        for part, factor in enumerate(found.factors)
    )
    copy = rename_loops(tree.nested(tree.bare(found.loops), each), names)
    terms = tree.make_loop(names.fresh("part"), len(found.factors), (), reduction=True)
    part = tree.reference(terms.var)
    left = ir.Load(found.left.buffer, found.index(part))
    total = ir.Load(found.total.buffer, found.total.indices)
    value = E.binary("add", total, E.binary("mul", left, ir.Load(made, found.place(part))))
    step = ir.Store(found.total.buffer, found.total.indices, value)
    changed = tree.swap((old,), found.total, (tree.with_inner(terms, (step,)),))
    (outermost,) = copy
    assert isinstance(outermost, ir.For), "factors depend on a loop"
    kernel = tree.add_locals(tree.rewrite(kernel, old, (*copy, *changed)), (made,))
    return kernel, (BufferName(made.name), LoopName(outermost.var.name))


@final
@record
class CommonFactors:
    """A step of a sum, `total += (left * factor + …) * scale`, whose factors are the same for all iterations of a loop.

    Attributes:
        loops: those on which factors depend, each of a constant extent, in the order of a buffer's axes.
        total: the store.
        left: the element that the first factor is multiplied by.
        axis, stride: from one product's element to the next, along which axis and how far.
        factors: with their scale.
    """

    loops: tuple[ir.For, ...]
    total: ir.Store
    left: ir.Load
    axis: int
    stride: int
    factors: tuple[ir.Expression, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a buffer for all factors."""
        sizes = [loop.extent for loop in self.loops if isinstance(loop.extent, int)]
        return (*sizes[:-1], len(self.factors), sizes[-1])

    def place(self, part: Dim) -> tuple[Dim, ...]:
        """Where the factor of one product lies in that buffer."""
        indices = [tree.reference(loop.var) for loop in self.loops]
        return (*indices[:-1], part, indices[-1])

    def index(self, part: Dim) -> tuple[Dim, ...]:
        """The element that it is multiplied by."""
        moved = self.left.indices[self.axis] + self.stride * part
        return (*self.left.indices[: self.axis], moved, *self.left.indices[self.axis + 1 :])


def common_factors(loop: ir.For, lane: str) -> CommonFactors | None:
    """What `precompute_factors` would make in front of a loop; None where it does not apply."""
    sums = [
        s
        for s in loops((loop,))
        if s.reduction and isinstance(only_statement(s.body), ir.Store)
    ]
    if len(sums) != 1:
        return None
    store = only_statement(sums[0].body)
    path = tree.path_to((loop,), sums[0])
    if (
        not isinstance(store, ir.Store)
        or path is None
        or any(isinstance(s, ir.If) for s in path)
    ):
        return None
    found = _products(store)
    if found is None:
        return None
    left, axis, step, factors = found
    around = [s for s in (*path, sums[0]) if isinstance(s, ir.For) and s is not loop]
    used = {s.name for value in factors for s in expression_symbols(value)}
    inside = [x for x in around if x.var.name in used]
    read = {load.buffer for value in factors for load in loads(value)}
    if (
        loop.var.name in used
        or not {*read, left.buffer}.isdisjoint(buffers_written((loop,)))
        or not all(isinstance(x.extent, int) for x in inside)
        or all(x.var.name != lane for x in inside)
    ):
        return None
    order = tuple(sorted(inside, key=lambda x: x.var.name == lane))
    return CommonFactors(order, store, left, axis, step, factors)


_Row = tuple[ir.Load, int, int, tuple[ir.Expression, ...]]
"""The first of elements that are evenly apart, along which axis, how far, and what each is multiplied by."""


def _products(store: ir.Store) -> _Row | None:
    """The left elements and the scaled right factors of what a store adds to its element."""
    term = _added(store)
    if term is None:
        return None
    scale: ir.Expression | None = None
    match term:
        case ir.Binary(op="mul", left=ir.Binary() as inner, right=right):
            term, scale = inner, right
        case _:
            pass
    lefts: list[ir.Load] = []
    factors: list[ir.Expression] = []
    for product in terms_of(term):
        match product:
            case ir.Binary(op="mul", left=ir.Load() as left, right=factor):
                lefts.append(left)
                factors.append(factor if scale is None else E.binary("mul", factor, scale))
            case _:
                return None
    return _in_a_row(lefts, factors)


def _added(store: ir.Store) -> ir.Expression | None:
    """What a store adds to its element."""
    value = store.value
    if not isinstance(value, ir.Binary) or value.op != "add":
        return None
    return value.right if is_target(value.left, store) else None


def _in_a_row(found: Sequence[ir.Load], factors: Sequence[ir.Expression]) -> _Row | None:
    """Elements and factors in the order of memory, whatever that of the products; None where elements are not evenly apart."""
    first = found[0]
    if any(
        x.buffer is not first.buffer or x.mask is not None or x.lanes != 1 for x in found
    ):
        return None
    apart = [[b - a for a, b in zip(first.indices, x.indices, strict=True)] for x in found]
    moved = {axis for steps in apart for axis, n in enumerate(steps) if n != 0}
    if len(moved) != 1:
        return None
    (axis,) = moved
    places = {n: i for i, steps in enumerate(apart) if isinstance(n := steps[axis], int)}
    order = sorted(places)
    step = order[1] - order[0] if len(order) > 1 else 0
    if len(order) < len(found) or order != [order[0] + i * step for i in range(len(order))]:
        return None
    at = [places[n] for n in order]
    return found[at[0]], axis, step, tuple(factors[i] for i in at)


def _check_exists(kernel: ir.Kernel, loop: ir.For, found: CommonFactors) -> None:
    facts = tree.facts_at(kernel, loop)
    for load in {id(x): x for factor in found.factors for x in loads(factor)}.values():
        if load.mask is not None or not in_bounds(load, found.loops, facts):
            raise ScheduleError(
                f"'{loop.var.name}' may run no time, and then that part of '{load.buffer.name}' may not exist"
            )
