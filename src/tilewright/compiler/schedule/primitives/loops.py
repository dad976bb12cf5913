"""Primitives on loops: split, fuse, reorder, partition, specialize, unroll, vectorize, bind.

Each is a pure function of a kernel and plain arguments; it raises ScheduleError with the reason
when the rewrite would change what the kernel computes or cannot be expressed.  None of them moves
a statement out of its loops (see `nests`) or changes a buffer (see `memory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.ir import (
    Body,
    Buffer,
    Compare,
    Const,
    Expression,
    For,
    If,
    Kernel,
    LoopKind,
    Statement,
    Store,
)
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    Rewriter,
    loops,
    rename_loops,
    replace_buffers,
    substitute,
)
from tilewright.compiler.schedule.dependence import (
    accesses,
    carried,
    conflict,
    index_sides,
    live_outside,
    overlap,
    private_buffers,
)
from tilewright.compiler.schedule.trace import names_of, primitive
from tilewright.compiler.schedule.tree import (
    add_locals,
    chain,
    enclosing_loops,
    find,
    loop_symbol,
    make_loop,
    only_statement,
    path_to,
    reference,
    rewrite,
    swap,
    with_inner,
)

E = Expressions


def dim_argument(kernel: Kernel, value: Dim | str, around: Sequence[For] = ()) -> Dim:
    """A size given as number, dimension or text, with the bounds of the kernel's symbols."""
    parsed = symbolic.parse(value) if isinstance(value, str) else value
    known = {s.name: symbolic.Expr.of_atom(s) for s in kernel.dims}
    known |= {loop.var.name: reference(loop.var) for loop in around}
    for used in symbolic.symbols(parsed):
        if used.name not in known:
            raise ScheduleError(f"unknown symbol '{used.name}' in '{parsed}'")
    return symbolic.substitute(parsed, known)


def _two_names(kernel: Kernel, loop: str, into: Sequence[str] | None) -> tuple[str, str]:
    names = names_of(kernel)
    if into is None:
        return names.fresh(f"{loop}_o"), names.fresh(f"{loop}_i")
    if len(into) != 2:
        raise ScheduleError(f"'{loop}' is split into 2 loops, got {len(into)} names")
    for name in into:
        if name != loop and names.fresh(name) != name:
            raise ScheduleError(f"the name '{name}' is taken", location=kernel.name)
    return into[0], into[1]


def rebind(body: Body, name: str, value: Dim) -> Body:
    """`body` with a loop variable replaced; `value` may use a new variable of the same name.

    Symbols are equal by name, so one with new bounds must come in by way of another name.
    """
    if all(s.name != name for s in symbolic.symbols(value)):
        return substitute(body, {name: value})
    between = f"{name}~"
    return substitute(substitute(body, {name: symbolic.symbol(between)}), {between: value})


@primitive
def split(
    kernel: Kernel,
    loop: str,
    factor: int,
    tail: str = "guard",
    into: Sequence[str] | None = None,
) -> Kernel:
    """Split a loop in two; `tail` says what happens when `factor` does not divide the extent.

    rewrite:
        for i in n: S(i)
        ->
        guard:  for i_o in ceil(n / f): for i_i in f: if i_o * f + i_i < n: S(i_o * f + i_i)
                (the guard goes inside the loops that are perfectly nested in `i`)
        tight:  for i_o in ceil(n / f): for i_i in min(f, n - i_o * f): S(i_o * f + i_i)

    Raises: ScheduleError for a factor below 1 or a grid loop.
    """
    old = find(kernel, loop)
    if factor < 1:
        raise ScheduleError(f"cannot split '{loop}' by {factor}", location=kernel.name)
    if tail not in ("guard", "tight"):
        raise ScheduleError(f"tail is 'guard' or 'tight', got '{tail}'")
    outer, inner = _two_names(kernel, loop, into)
    divides = symbolic.is_multiple(old.extent, factor)
    count = symbolic.ceildiv(old.extent, factor)
    outer_loop = make_loop(outer, count, (), old.kind, reduction=old.reduction)
    # A single block starts at 0 whatever the variable; index algebra sees that more easily.
    base = 0 if count == 1 else reference(outer_loop.var) * factor
    size: Dim = factor
    if tail == "tight" and not divides:
        size = symbolic.minimum(factor, old.extent - base)
    inner_loop = make_loop(inner, size, (), reduction=old.reduction)
    index = base + reference(inner_loop.var)
    body = rebind(old.body, loop, index)
    if tail == "guard" and not divides:
        body = _guard_inside(index, old.extent, body)
    return rewrite(kernel, old, (with_inner(outer_loop, (with_inner(inner_loop, body),)),))


def _guard_inside(index: Dim, extent: Dim, body: Body) -> Body:
    """The guard as deep as `body` is a perfect nest, so that its loops can still be reordered."""
    inner = only_statement(body)
    if isinstance(inner, For):
        return (with_inner(inner, _guard_inside(index, extent, inner.body)),)
    return (guard(index, extent, body),)


def guard(index: Dim, extent: Dim, body: Body) -> Statement:
    """`body` where `index < extent`."""
    return If(Compare("lt", E.index(index), E.index(extent)), body)


@primitive
def fuse(kernel: Kernel, outer: str, inner: str, into: str | None = None) -> Kernel:
    """Make one loop of two perfectly nested ones.

    rewrite:
        for i in n: for j in m: S(i, j)
        ->
        for i in n * m: S(i // m, i % m)

    Raises: ScheduleError unless `inner` is the only statement in `outer` with a fixed extent.
    """
    first = find(kernel, outer)
    nest = chain(first)
    if len(nest) < 2 or nest[1].var.name != inner:
        raise ScheduleError(f"'{inner}' is not directly inside '{outer}'")
    second = nest[1]
    if any(s.name == outer for s in symbolic.symbols(second.extent)):
        raise ScheduleError(f"the extent of '{inner}' depends on '{outer}'")
    if first.kind is not second.kind or first.reduction != second.reduction:
        raise ScheduleError(f"'{outer}' and '{inner}' are loops of different kinds")
    if second.extent == 0:
        raise ScheduleError(f"'{inner}' never runs", location=kernel.name)
    name = into or outer
    if name not in (outer, inner) and names_of(kernel).fresh(name) != name:
        raise ScheduleError(f"the name '{name}' is taken", location=kernel.name)
    extent = first.extent * second.extent
    fused = make_loop(name, extent, (), first.kind, reduction=first.reduction)
    index = reference(fused.var)
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
    return rewrite(kernel, first, (with_inner(fused, body),))


@primitive
def reorder(kernel: Kernel, order: Sequence[str]) -> Kernel:
    """Put perfectly nested loops in another order, outermost first.

    rewrite:
        for i: for j: S
        ->
        for j: for i: S

    Raises: ScheduleError if the loops are not one nest, if an extent depends on a loop that would
    come later, or if the iterations of the nest depend on each other.
    """
    first = next((s for s in loops(kernel.body) if s.var.name in order), None)
    if first is None:
        raise ScheduleError(f"no loop among {list(order)}", location=kernel.name)
    nest = chain(first)
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
    _check_permutable(kernel, nest[: positions[-1] + 1])
    body = nest[positions[-1]].body
    for statement in reversed(wanted):
        body = (with_inner(statement, body),)
    return rewrite(kernel, first, body)


def _check_extents(wanted: Sequence[For]) -> None:
    inside = {s.var.name for s in wanted}
    for statement in wanted:
        late = [s.name for s in symbolic.symbols(statement.extent) if s.name in inside]
        if late:
            raise ScheduleError(
                f"the extent of '{statement.var.name}' depends on '{late[0]}'"
            )
        inside.discard(statement.var.name)


def _check_permutable(kernel: Kernel, nest: Sequence[For]) -> None:
    found = carried(nest[-1], tuple(s.var for s in nest[:-1]), scope=kernel.body)
    if found is not None:
        raise ScheduleError(
            f"iterations of {[s.var.name for s in nest]} depend on each other through "
            f"'{found[0].buffer.name}'"
        )


def copy_of(
    kernel: Kernel, body: Body, original: Statement, names: FreshNames | None = None
) -> tuple[Kernel, Body]:
    """`body`, made from `original`, with its own loop names and copies of its private buffers.

    Buffers that other code reads stay shared.  The kernel is that with the new buffers.
    """
    names = names or names_of(kernel)
    own = {
        b: Buffer(names.fresh(b.name), b.dtype, b.shape, b.space, b.data)
        for b in private_buffers(body)
        if not live_outside(kernel.body, original, b)
    }
    copy = replace_buffers(rename_loops(body, names), own)
    return add_locals(kernel, own.values()), copy


@primitive
def tile(
    kernel: Kernel,
    loop_factors: Sequence[Sequence[object]],
    tail: str = "guard",
) -> Kernel:
    """Split several perfectly nested loops and move the inner halves inside.

    rewrite:
        for i: for j: S
        ->
        for i_o: for j_o: for i_i: for j_i: S

    `loop_factors` is a list of [loop, factor].  Raises: what `split` and `reorder` raise.
    """
    outers: list[str] = []
    inners: list[str] = []
    for entry in loop_factors:
        loop, factor = entry
        if not isinstance(loop, str) or not isinstance(factor, int):
            raise ScheduleError(f"a tile is [loop, factor], got {entry!r}")
        outer, inner = _two_names(kernel, loop, None)
        kernel = split(kernel, loop, factor, tail, (outer, inner))
        outers.append(outer)
        inners.append(inner)
    return reorder(kernel, (*outers, *inners))


@primitive
def partition(kernel: Kernel, loop: str, at: Dim | str) -> Kernel:
    """Cut a loop in two at iteration `at`, each part with its own code.

    rewrite:
        for i in n: S(i)
        ->
        for i in min(at, n): S(i)
        for i_2 in n - min(at, n): S(min(at, n) + i_2)
    """
    old = find(kernel, loop)
    point = dim_argument(kernel, at, enclosing_loops(kernel, old))
    if isinstance(point, int) and point < 0:
        raise ScheduleError(f"cannot cut '{loop}' at {point}", location=kernel.name)
    point = symbolic.minimum(point, old.extent)
    first = make_loop(loop, point, (), old.kind, reduction=old.reduction)
    head = rebind(old.body, loop, reference(first.var))
    rest = old.extent - point
    second = make_loop(loop, rest, (), old.kind, reduction=old.reduction)
    tail = rebind(old.body, loop, point + reference(second.var))
    parts: list[Statement] = []
    if first.extent != 0:
        parts.append(with_inner(first, head))
    if second.extent != 0:
        kernel, tail = copy_of(kernel, (with_inner(second, tail),), old)
        parts.extend(tail)
    return rewrite(kernel, old, parts)


@primitive
def specialize(
    kernel: Kernel, loop: str, at: str | None = None, tail: str = "exact"
) -> Kernel:
    """Give the full and the last, partial run of a guarded loop their own code without guard.

    rewrite:
        for i in f: if r + i < n: S(i)                      (f divides r)
        ->
        if r + f <= n: for i in f: S(i)
        exact:    if r == n - n % f: for i_2 in n % f: S(i_2)
        guarded:  if r + f > n: for i_2 in f: if r + i_2 < n: S(i_2)

    With `at`, the two cases are told apart in front of that loop, around or equal to `loop`.
    Raises: ScheduleError if the loop has no such guard, as `split` makes it, or if r changes
    inside `at`.
    """
    old = find(kernel, loop)
    top = old if at is None else find(kernel, at)
    if not isinstance(old.extent, int):
        raise ScheduleError(f"'{loop}' has no constant extent", location=kernel.name)
    found = _guard_of(old)
    if found is None:
        raise ScheduleError(f"'{loop}' has no guard to specialize on", location=kernel.name)
    condition, rest, limit = found
    _check_private_outside(old, condition)
    path = path_to((top,), old)
    if path is None:
        raise ScheduleError(f"'{loop}' is not inside '{at}'", location=kernel.name)
    inside = {s.var.name for s in (*path, old) if isinstance(s, For)}
    if any(s.name in inside for s in symbolic.symbols(rest)):
        raise ScheduleError(f"which case '{loop}' is in changes inside '{at}'")
    if tail not in ("exact", "guarded"):
        raise ScheduleError(f"tail is 'exact' or 'guarded', got '{tail}'")
    factor, rest_count = old.extent, symbolic.mod(limit, old.extent)
    full = swap((top,), old, (with_inner(old, _without(old.body, condition)),))
    parts = _when(E.compare("le", E.index(rest + factor), E.index(limit)), full)
    if tail == "guarded":
        kernel, last = copy_of(kernel, (top,), top)
        parts += _when(E.compare("gt", E.index(rest + factor), E.index(limit)), last)
    elif rest_count != 0:
        part = make_loop(loop, rest_count, (), old.kind, reduction=old.reduction)
        body = rebind(_without(old.body, condition), loop, reference(part.var))
        last = swap((top,), old, (with_inner(part, body),))
        kernel, last = copy_of(kernel, last, top)
        start = limit - rest_count
        parts += _when(E.compare("eq", E.index(rest), E.index(start)), last)
    return rewrite(kernel, top, parts)


def _check_private_outside(loop: For, condition: Expression) -> None:
    """What a guarded iteration does outside its guard must stay within the iteration."""
    private = private_buffers(loop.body)
    for statement in _unguarded(loop.body, condition):
        if all(statement.buffer is not b for b in private):
            raise ScheduleError(
                f"'{loop.var.name}' stores to '{statement.buffer.name}' outside the guard"
            )


def _unguarded(body: Body, condition: Expression) -> list[Store]:
    found: list[Store] = []
    for statement in body:
        if isinstance(statement, If) and statement.condition is condition:
            continue
        if isinstance(statement, Store):
            found.append(statement)
        elif isinstance(statement, For | If):
            found.extend(_unguarded(statement.body, condition))
    return found


def _when(condition: Expression, body: Body) -> Body:
    """`body` under a condition, which may be decided already."""
    if not isinstance(condition, Const):
        return (If(condition, body),)
    return body if condition.value else ()


def _guard_of(loop: For) -> tuple[Expression, Dim, Dim] | None:
    """The condition `r + i < n` inside `loop`, with r (a multiple of the extent) and n."""
    assert isinstance(loop.extent, int)
    for condition in _conditions(loop.body):
        sides = guard_sides(condition)
        if sides is None:
            continue
        split_index = symbolic.linear(sides[0], loop.var.name)
        if split_index is None or split_index[0] != 1:
            continue
        if symbolic.is_multiple(split_index[1], loop.extent):
            return condition, split_index[1], sides[1]
    return None


def guard_sides(condition: Expression) -> tuple[Dim, Dim] | None:
    """`(index, extent)` of a condition `index < extent`."""
    if not isinstance(condition, Compare) or condition.op != "lt":
        return None
    return index_sides(condition)


def _conditions(body: Sequence[Statement]) -> list[Expression]:
    found: list[Expression] = []
    for statement in body:
        if isinstance(statement, If):
            found.append(statement.condition)
        if isinstance(statement, For | If):
            found.extend(_conditions(statement.body))
    return found


def _without(body: Body, condition: Expression) -> Body:
    """`body` with the guards on `condition` opened."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, If) and statement.condition is condition:
            result.extend(_without(statement.body, condition))
        elif isinstance(statement, For | If):
            result.append(with_inner(statement, _without(statement.body, condition)))
        else:
            result.append(statement)
    return tuple(result)


@primitive
def split_powers(kernel: Kernel, loop: str, largest: int) -> Kernel:
    """Run a short loop of unknown length as blocks of `largest`, ..., 4, 2, 1 iterations.

    rewrite:
        for i in n: S(i)                                            (n < 2 * largest)
        ->
        for p in n // 2 % 2: for i in 2: S(n // 4 * 4 + i)          (once per power)
        for p_2 in n % 2: for i_2 in 1: S(n // 2 * 2 + i_2)

    Raises: ScheduleError unless `largest` is a power of two and n surely below twice that.
    """
    old = find(kernel, loop)
    upper = symbolic.bounds(old.extent)[1]
    if largest < 1 or largest & (largest - 1) or upper is None or upper >= 2 * largest:
        raise ScheduleError(
            f"'{loop}' runs up to {upper} times, not below twice the power of two {largest}"
        )
    names = names_of(kernel)
    parts: list[Statement] = []
    size = largest
    while size:
        count = symbolic.mod(symbolic.floordiv(old.extent, size), 2)
        start = symbolic.floordiv(old.extent, 2 * size) * (2 * size)
        block = make_loop(names.fresh(f"{loop}_p"), count, ())
        inner = make_loop(loop, size, (), old.kind, reduction=old.reduction)
        body = rebind(old.body, loop, start + reference(inner.var))
        made: Body = (with_inner(block, (with_inner(inner, body),)),)
        if size != largest:
            kernel, made = copy_of(kernel, made, old, names)
        parts.extend(made)
        size //= 2
    return rewrite(kernel, old, parts)


def _with_kind(kernel: Kernel, old: For, kind: LoopKind) -> Kernel:
    new = For(old.var, old.extent, old.body, kind, old.reduction)
    return rewrite(kernel, old, (new,))


@primitive
def unroll(kernel: Kernel, loop: str) -> Kernel:
    """Mark a loop to be written out.

    rewrite:
        for i in 4: S(i)
        ->
        unroll i in 4: S(i)

    Raises: ScheduleError if the extent is not a constant.
    """
    old = find(kernel, loop)
    if not isinstance(old.extent, int):
        raise ScheduleError(
            f"'{loop}' cannot be unrolled: its extent is '{old.extent}'",
            location=kernel.name,
        )
    return _with_kind(kernel, old, LoopKind.UNROLL)


@primitive
def vectorize(kernel: Kernel, loop: str) -> Kernel:
    """Mark a loop to run as the lanes of vectors.

    rewrite:
        for i in 16: S(i)
        ->
        vector i in 16: S(i)

    Raises: ScheduleError if the extent is not a constant or the iterations are not independent.
    """
    old = find(kernel, loop)
    if not isinstance(old.extent, int):
        raise ScheduleError(
            f"'{loop}' cannot be vectorized: its extent is '{old.extent}'",
            location=kernel.name,
        )
    found = carried_strictly(old)
    if found is not None:
        raise ScheduleError(
            f"'{loop}' cannot be vectorized: its iterations meet in '{found}'",
            location=kernel.name,
        )
    return _with_kind(kernel, old, LoopKind.VECTOR)


def carried_strictly(loop: For) -> str | None:
    """The buffer in which two iterations meet, private ones and updates included."""
    found = accesses(loop.body)
    pair = conflict(
        [replace(a, update=None) for a in found if a.write],
        [replace(a, update=None) for a in found],
        (loop.var,),
    )
    return None if pair is None else pair[0].buffer.name


@primitive
def bind(kernel: Kernel, loop: str, axis: str) -> Kernel:
    """Run the iterations of an outermost loop as workgroups along a grid axis.

    rewrite:
        for i in n: S(i)
        ->
        grid.x i in n: S(i)

    Raises: ScheduleError if anything stands beside or around the loop except grid loops, if the
    axis is taken, or if the iterations are not independent.
    """
    old = find(kernel, loop)
    kinds = {"x": LoopKind.GRID_X, "y": LoopKind.GRID_Y, "z": LoopKind.GRID_Z}
    if axis not in kinds:
        raise ScheduleError(f"grid axes are x, y and z, got '{axis}'")
    path = path_to(kernel.body, old) or ()
    level: Sequence[Statement] = kernel.body
    for statement in (*path, old):
        if len(level) != 1:
            raise ScheduleError(f"'{loop}' is not alone at the top of '{kernel.name}'")
        if statement is old:
            break
        if not isinstance(statement, For) or statement.kind not in kinds.values():
            raise ScheduleError(f"'{loop}' is inside other code, not outermost")
        level = statement.body
    if any(isinstance(s, For) and s.kind is kinds[axis] for s in path):
        raise ScheduleError(f"grid axis '{axis}' is taken")
    check_parallel(kernel, old)
    return _with_kind(kernel, old, kinds[axis])


def check_parallel(kernel: Kernel, loop: For) -> None:
    """Raises: ScheduleError unless the iterations of `loop` may run at the same time."""
    pair = carried(loop, scope=kernel.body, updates_commute=False)
    if pair is not None:
        raise ScheduleError(
            f"iterations of '{loop.var.name}' meet in '{pair[0].buffer.name}'",
            location=kernel.name,
        )


@primitive
def simplify_guards(kernel: Kernel) -> Kernel:
    """Open the guards that surely hold and drop the code under those that surely do not.

    rewrite:
        for i in 4: if i < 8: S(i)
        ->
        for i in 4: S(i)
    """

    def decide(statement: Statement) -> Statement | Body:
        if not isinstance(statement, If):
            return statement
        sides = guard_sides(statement.condition)
        if sides is None:
            return statement
        known = E.compare("lt", E.index(sides[0]), E.index(sides[1]))
        if not isinstance(known, Const):
            return statement
        return statement.body if known.value else ()

    return replace(kernel, body=Rewriter(statement=decide).body(kernel.body))


@primitive
def join(kernel: Kernel, loop: str, into: str) -> Kernel:
    """Make one loop of everything at the top of a kernel: the iterations of `loop`, then the rest.

    For kernels of several nests that do not depend on each other, so that all of them become
    workgroups of one grid.

    rewrite:
        for i in n: A(i)
        B
        ->
        for j in n + 1:
            if j < n: A(j)
            if j == n: B

    Raises: ScheduleError if `loop` is not at the top or the parts touch the same elements.
    """
    old = find(kernel, loop)
    if all(s is not old for s in kernel.body):
        raise ScheduleError(f"'{loop}' is not at the top of '{kernel.name}'")
    rest = tuple(s for s in kernel.body if s is not old)
    if not rest:
        return kernel
    parts = [accesses((s,)) for s in rest]
    pair = overlap(accesses((old,)), [a for part in parts for a in part])
    if pair is not None:
        raise ScheduleError(
            f"'{loop}' and the code beside it both touch '{pair[0].buffer.name}'",
            location=kernel.name,
        )
    if names_of(kernel).fresh(into) != into:
        raise ScheduleError(f"the name '{into}' is taken", location=kernel.name)
    joined = make_loop(into, old.extent + 1, ())
    index = reference(joined.var)
    narrow = loop_symbol(into, old.extent)
    first = substitute(old.body, {loop: reference(narrow)})
    body: Body = (
        If(E.compare("lt", E.index(index), E.index(old.extent)), first),
        If(E.compare("eq", E.index(index), E.index(old.extent)), rest),
    )
    return replace(kernel, body=(with_inner(joined, body),))
