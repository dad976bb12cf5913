"""Primitives on buffers: set_scope, privatize, cache_write, cache_read, compute_at, keep_line, expand, separate.

They decide where values live while code runs: registers, workgroup memory, device memory.  Loops
stay as they are, except for the copies that caches need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import Access, Fact, accesses
from tilewright.compiler.analysis.proofs import in_bounds
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.fields import payloads
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    dim_symbols,
    expression_symbols,
    loads_of,
    loops,
    map_body,
    rename_loops,
    replace_buffers,
    split_terms,
    subexpressions,
)
from tilewright.compiler.kernel.text import expression_text
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.handles import BufferName, LoopName
from tilewright.compiler.schedule.primitives.inlining import inline
from tilewright.compiler.schedule.primitives.nests import largest
from tilewright.compiler.schedule.trace import primitive

_SCOPES: Final = {s.value: s for s in (*ir.LOCAL_SPACES, ir.Space.DEVICE)}


def _space(name: str) -> ir.Space:
    if name not in _SCOPES:
        raise ScheduleError(f"a scope is one of {' '.join(_SCOPES)}, got '{name}'")
    return _SCOPES[name]


def _temporary(kernel: ir.Kernel, name: str) -> ir.Buffer:
    buffer = tree.find_buffer(kernel, name)
    if all(buffer is not b for b in kernel.locals):
        raise ScheduleError(f"'{name}' is a parameter, not a temporary")
    return buffer


@primitive
def set_scope(kernel: ir.Kernel, buffer: str, scope: str) -> ir.Kernel:
    """Move a temporary to another memory.

    rewrite:
        t: f32[8]@device
        ->
        t: f32[8]@workgroup

    Raises: ScheduleError for a parameter.
    """
    old = _temporary(kernel, buffer)
    new = ir.Buffer(old.name, old.dtype, old.shape, _space(scope), old.data)
    body = replace_buffers(kernel.body, {old: new})
    return tree.swap_locals(replace(kernel, body=body), {old: new})


@primitive
def privatize(
    kernel: ir.Kernel, buffer: str, loop: str, scope: str = "register"
) -> ir.Kernel:
    """Keep only the part of a temporary that one iteration of a loop uses.

    rewrite:
        for i: t[i] = 0; for k: t[i] += a[i, k]; y[i] = t[i]
        ->
        for i: t = 0; for k: t += a[i, k]; y[i] = t

    Raises: ScheduleError if the temporary is used outside the loop, or if an iteration reads
    elements that it did not write.
    """
    old = _temporary(kernel, buffer)
    outer = tree.find(kernel, loop)
    if dependence.live_outside(kernel.body, outer, old):
        raise ScheduleError(f"'{buffer}' is used outside '{loop}'")
    space, body = _space(scope), outer.body
    if space is ir.Space.DEVICE or not dependence.reads_its_own(body, old):
        raise ScheduleError(
            f"an iteration of '{loop}' reads elements of '{buffer}' it did not write"
        )
    users = accesses(body, of=old)
    inner = {s.var.name for s in loops(body)}
    kept: list[tuple[int, Dim]] = []
    shape: list[Dim] = []
    for position, size in enumerate(old.shape):
        parts = [split_terms(a.indices[position], inner) for a in users]
        fixed = parts[0][0] if all(p[0] == parts[0][0] for p in parts) else None
        if fixed is not None and all(p[1] == 0 for p in parts):
            continue
        base, extent = _part(fixed, [p[1] for p in parts], size)
        kept.append((position, base))
        shape.append(extent)
    new = ir.Buffer(old.name, old.dtype, tuple(shape), space)
    changed = tree.map_accesses(
        body, old, new, lambda indices: tuple(indices[n] - base for n, base in kept)
    )
    return tree.swap_locals(tree.refill(kernel, outer, changed), {old: new})


def _part(fixed: Dim | None, varying: Sequence[Dim], size: Dim) -> tuple[Dim, Dim]:
    """(what to subtract from an index, the extent left) for one dimension."""
    if fixed is None:
        return 0, size
    highest = 0
    for part in varying:
        low, high = symbolic.bounds(part)
        if low is None or low < 0 or high is None:
            return 0, size
        highest = max(highest, high)
    limit = symbolic.bounds(size)[1]
    if limit is not None and limit <= highest + 1 and isinstance(size, int):
        return 0, size
    return fixed, highest + 1


@primitive
def cache_write(
    kernel: ir.Kernel, buffer: str, loop: str, into: str | None = None
) -> tuple[ir.Kernel, BufferName]:
    """Keep the element that one iteration of a loop updates in a register until its end.

    rewrite:
        for i: y[i] = 0; for k: y[i] += a[i, k]
        ->
        for i: t = 0; for k: t += a[i, k]; y[i] = t

    The element is loaded first when the iteration reads it before it surely wrote it.

    Raises: ScheduleError unless every access inside the loop is to one and the same element, which
    is there whatever the guards around the accesses say.
    """
    old = tree.find_buffer(kernel, buffer)
    outer = tree.find(kernel, loop)
    users = accesses(outer.body, of=old)
    if not any(a.write for a in users):
        raise ScheduleError(f"'{loop}' does not write '{buffer}'")
    inner = {s.var.name for s in loops(outer.body)}
    where = users[0].indices
    changes = any(s.name in inner for index in where for s in dim_symbols(index))
    if changes or any(a.indices != where for a in users):
        raise ScheduleError(
            f"'{loop}' touches more than one element of '{buffer}' per iteration"
        )
    facts = tree.facts_at(kernel, outer)
    if not any(_is_sure(a, outer) for a in users) and not in_bounds(users[0], (), facts):
        raise ScheduleError(f"a guard decides whether '{loop}' touches '{buffer}'")
    new = tree.register(FreshNames.of(kernel), into or f"{buffer}_r", old.dtype)
    body = tree.map_accesses(outer.body, old, new, lambda _: ())
    first: ir.Body = ()
    if not (users[0].write and _is_sure(users[0], outer)):
        first = (ir.Store(new, (), ir.Load(old, where)),)
    last: ir.Body = (ir.Store(old, where, ir.Load(new, ())),)
    kernel = tree.refill(kernel, outer, (*first, *body, *last))
    return tree.add_locals(kernel, (new,)), BufferName(new.name)


def _is_sure(access: Access, outer: ir.For) -> bool:
    """Whether every iteration of `outer` makes the access: no loop and no guard is around it."""
    return any(statement is access.statement for statement in outer.body)


@primitive
def cache_read(
    kernel: ir.Kernel,
    buffer: str,
    loop: str,
    scope: str = "register",
    into: str | None = None,
) -> tuple[ir.Kernel, tuple[BufferName, tuple[LoopName, ...]]]:
    """Copy what a loop reads of a buffer into a cache in front of the loop.

    The cache has one dimension per loop (from `loop` inward) on which the index depends, so it is packed in the order of
    the loops; it holds 0 where a mask keeps a read away.  Makes the cache and the loops of the copy, outermost first.

    rewrite:
        for i: for j: y[i, j] += a[i, k] * b[k, j]
        ->
        for j_2: t[j_2] = b[k, j_2]
        for i: for j: y[i, j] += a[i, k] * t[j]

    Raises: ScheduleError unless the loop reads the buffer at one index, does not write it, and
    the cache has a constant size; where loops on which the index does not depend decide a mask; for a loop of
    workgroups, in front of which a workgroup has no place for a cache.
    """
    old = tree.find_buffer(kernel, buffer)
    outer = tree.find_inside(kernel, loop)
    users = accesses([outer], of=old)
    if not users or any(a.write for a in users):
        raise ScheduleError(f"'{loop}' does not only read '{buffer}'")
    user = users[0]
    if any(a.indices != user.indices for a in users):
        raise ScheduleError(f"'{loop}' reads '{buffer}' at several indices")
    path, mask = _path_of(outer, user), _mask_of(users, old)
    used = {s.name for index in user.indices for s in dim_symbols(index)}
    copied = [s for s in path if isinstance(s, ir.For) and s.var.name in used]
    if not _names(path).isdisjoint(symbolic.names_in(c.extent for c in copied)):
        raise ScheduleError(f"the part of '{buffer}' that '{loop}' reads varies in size")
    shape = tuple(largest(s.extent) for s in copied)
    names = FreshNames.of(kernel)
    new = ir.Buffer(names.fresh(into or f"{buffer}_c"), old.dtype, shape, _space(scope))
    where = tuple(tree.reference(s.var) for s in copied)
    facts = tree.facts_at(kernel, outer)
    around = _around_copy(path, copied, old, user, facts)
    apart = _names(path) - {s.var.name for s in copied}
    if mask is not None and any(s.name in apart for s in expression_symbols(mask)):
        raise ScheduleError(f"a mask decides which part of '{buffer}' exists")
    copy = tree.nested(
        around, (ir.Store(new, where, ir.Load(old, user.indices, mask=mask)),)
    )
    copy = rename_loops(copy, names)
    changed = tree.map_accesses((_unmasked(outer, old),), old, new, lambda _: where)
    made = tuple(LoopName(x.var.name) for x in loops(copy))
    kernel = tree.add_locals(tree.rewrite(kernel, outer, (*copy, *changed)), (new,))
    return kernel, (BufferName(new.name), made)


def _mask_of(users: Sequence[Access], buffer: ir.Buffer) -> ir.Expression | None:
    """The mask of all reads of a buffer, if they have one.  Raises: ScheduleError where it differs, or memory decides it."""
    statements = [a.statement for a in users if a.statement is not None]
    masks = [v.mask for x in statements for v in loads_of(x) if v.buffer is buffer]
    texts = {None if mask is None else expression_text(mask) for mask in masks}
    if len(texts) > 1:
        raise ScheduleError(f"'{buffer.name}' is read with several masks")
    (mask, *_) = masks
    parts = () if mask is None else subexpressions(mask)
    if any(isinstance(part, ir.Load) for part in parts):
        raise ScheduleError(f"memory decides where '{buffer.name}' is read")
    return mask


def _unmasked(outer: ir.For, buffer: ir.Buffer) -> ir.Statement:
    """A loop whose reads of a buffer have no mask."""

    def opened(value: ir.Expression) -> ir.Expression:
        if isinstance(value, ir.Load) and value.buffer is buffer and value.mask is not None:
            return replace(value, mask=None)
        return value

    (changed,) = map_body((outer,), expression=opened)
    return changed


def _path_of(outer: ir.For, user: Access) -> tuple[ir.For | ir.If, ...]:
    assert user.statement is not None
    path = tree.path_to((outer,), user.statement) or ()
    return tuple(s for s in path if isinstance(s, ir.For | ir.If))


def _names(path: Sequence[ir.Statement]) -> set[str]:
    return {s.var.name for s in path if isinstance(s, ir.For)}


def _around_copy(
    path: Sequence[ir.For | ir.If],
    copied: Sequence[ir.For],
    buffer: ir.Buffer,
    user: Access,
    facts: Sequence[Fact],
) -> list[ir.For | ir.If]:
    """The loops of the copy and those guards that only need them.

    `facts` hold outside of the path: a guard on it is no reason to leave that same guard out.
    """
    copied_names = {s.var.name for s in copied}
    dropped = _names(path) - copied_names
    around: list[ir.For | ir.If] = []
    inside = dropped | copied_names
    outside = [f for f in facts if inside.isdisjoint(symbolic.names_in(f))]
    safe = in_bounds(user, copied, outside)
    for statement in path:
        if isinstance(statement, ir.For):
            if any(statement is s for s in copied):
                around += tree.bare([statement])
            elif not safe and (symbolic.bounds(statement.extent)[0] or 0) < 1:
                raise ScheduleError(
                    f"'{statement.var.name}' may run no time, and then that part of "
                    f"'{buffer.name}' may not exist"
                )
        elif safe:
            continue
        elif any(s.name in dropped for s in expression_symbols(statement.condition)):
            raise ScheduleError(f"a guard decides which part of '{buffer.name}' exists")
        else:
            around.append(statement)
    return around


@primitive
def compute_at(
    kernel: ir.Kernel, buffer: str, loop: str, scope: str = "workgroup"
) -> ir.Kernel:
    """Compute the elements of a temporary that a loop needs right in front of it.

    rewrite:
        for j: t[j] = f(j)
        for i: for k in 3: y[i] += t[i + k]
        ->
        for i:
            for k in 3: c[k] = f(i + k)
            for k in 3: y[i] += c[k]

    Raises: what `cache_read` and `inline` raise.
    """
    return inline(cache_read(kernel, buffer, loop, scope), buffer)


@primitive
def keep_line(
    kernel: ir.Kernel, buffer: str, loop: str, most: int, into: str | None = None
) -> tuple[ir.Kernel, BufferName]:
    """Keep the line of a buffer that passes inside an iteration go over in workgroup memory, where it has at most so many elements.

    It is read first unless the first pass writes it, and written at the end if any pass does and anything but this
    iteration may read it.

    rewrite:
        for i: for j in n: y[i, j] = x[i, j]; for k in n: y[i, k] *= 2        (n <= most)
        ->
        for i: for j in n: c[j] = x[i, j]; for k in n: c[k] *= 2; for l in n: y[i, l] = c[l]

    Raises: ScheduleError unless each access is unguarded, in a pass over the same line from its first element to its
    last, and a guard around the loop says that the line has at most so many; for a loop of workgroups.
    """
    old, outer = tree.find_buffer(kernel, buffer), tree.find_inside(kernel, loop)
    users = accesses(outer.body, of=old)
    places = {_place_on_line(a) for a in users}
    found = places.pop() if len(places) == 1 else None
    if found is None:
        raise ScheduleError(f"'{loop}' goes over no line of '{buffer}'")
    position, extent, where = found
    facts = [(extent, extent), *tree.facts_at(kernel, outer)]
    if not any(a == extent and isinstance(b, int) and b <= most for a, b in facts):
        raise ScheduleError(f"nothing says that {extent} is at most {most}")
    names = FreshNames.of(kernel)
    new = ir.Buffer(
        names.fresh(into or f"{buffer}_s"), old.dtype, (most,), ir.Space.WORKGROUP
    )

    def copy(*, outwards: bool) -> ir.Body:
        each = tree.make_loop(names.fresh("line"), extent, ())
        at = tree.reference(each.var)
        far = (*where[:position], at, *where[position:])
        moved = (
            ir.Store(old, far, ir.Load(new, (at,)))
            if outwards
            else ir.Store(new, (at,), ir.Load(old, far))
        )
        return (tree.with_inner(each, (moved,)),)

    body = tree.map_accesses(outer.body, old, new, lambda indices: (indices[position],))
    first = () if users[0].write else copy(outwards=False)
    is_seen = any(a.write for a in users) and not _is_own(kernel, outer, old)
    last = copy(outwards=True) if is_seen else ()
    kernel = tree.refill(kernel, outer, (*first, *body, *last))
    return tree.add_locals(kernel, (new,)), BufferName(new.name)


def _is_own(kernel: ir.Kernel, outer: ir.For, buffer: ir.Buffer) -> bool:
    """Whether nobody misses what an iteration leaves in a temporary: it, and what is around it, read what they wrote themselves."""
    if all(buffer is not b for b in kernel.locals):
        return False
    rest = tree.rewrite(kernel, outer, ()).body
    return dependence.reads_its_own(outer.body, buffer) and (
        buffer not in tree.used_buffers(rest) or dependence.reads_its_own(rest, buffer)
    )


def _place_on_line(access: Access) -> tuple[int, Dim, tuple[Dim, ...]] | None:
    """Which index a pass moves along, how far it goes, and the other indices; None where it is no pass over a line."""
    is_plain = not access.guards and access.lanes == 1 and access.mask is None
    if len(access.inner) != 1 or not is_plain:
        return None
    (along,) = access.inner
    moving = [
        n
        for n, index in enumerate(access.indices)
        if any(s.name == along.var.name for s in dim_symbols(index))
    ]
    if len(moving) != 1 or access.indices[moving[0]] != tree.reference(along.var):
        return None
    if any(True for d in (along.extent, *access.indices) for _ in payloads(d)):
        return None  # what memory decides may change between the passes
    at = moving[0]
    return at, along.extent, (*access.indices[:at], *access.indices[at + 1 :])


@primitive
def expand(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Give every iteration of a loop its own element of the buffers private to an iteration.

    Afterwards iterations share nothing, so that the loop can become lanes around other loops.

    rewrite:
        for i: t = 0; for k: t += a[k, i]; y[i] = t
        ->
        for i: t[i] = 0; for k: t[i] += a[k, i]; y[i] = t[i]

    Raises: ScheduleError if the loop has no constant bound on its extent.
    """
    outer = tree.find(kernel, loop)
    private = dependence.only_inside(
        dependence.private_buffers(outer.body), kernel.body, outer
    )
    count = largest(outer.extent)
    new = {b: ir.Buffer(b.name, b.dtype, (*b.shape, count), b.space) for b in private}
    index = tree.reference(outer.var)
    return _with_axis(kernel, outer, new, lambda indices: (*indices, index))


def _with_axis(
    kernel: ir.Kernel,
    outer: ir.For,
    new: Mapping[ir.Buffer, ir.Buffer],
    place: Callable[[tree.Indices], tree.Indices],
) -> ir.Kernel:
    """The kernel with local buffers that have an axis for a loop, each iteration at its own place."""
    body = outer.body
    for old, made in new.items():
        body = tree.map_accesses(body, old, made, place)
    return tree.swap_locals(tree.refill(kernel, outer, body), new)


@primitive
def separate(kernel: ir.Kernel, loop: str) -> ir.Kernel:
    """Give every iteration of an outermost loop a part of its own of the temporaries in device memory that it alone needs.

    Iterations that met nowhere else share nothing afterwards, so that they can be workgroups.

    rewrite:
        t: f32[m]@device
        for i in n: for k in m: t[k] = a[i, k]; for k in m: y[i, k] = t[k]
        ->
        t: f32[n, m]@device
        for i in n: for k in m: t[i, k] = a[i, k]; for k in m: y[i, k] = t[i, k]

    Raises: ScheduleError if the loop is inside another one, or if no temporary in device memory is written by an iteration
    before that reads it, and read nowhere else.
    """
    outer = tree.find(kernel, loop)
    if all(statement is not outer for statement in kernel.body):
        raise ScheduleError(f"'{loop}' is not outermost")
    new = {
        b: ir.Buffer(b.name, b.dtype, (outer.extent, *b.shape), b.space)
        for b in dependence.lines_of_an_iteration(kernel, outer)
    }
    if not new:
        raise ScheduleError(f"'{loop}' has no temporary in device memory for itself")
    index = tree.reference(outer.var)
    return _with_axis(kernel, outer, new, lambda indices: (index, *indices))
