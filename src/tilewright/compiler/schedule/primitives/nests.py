"""Primitives that move statements between loops: fuse_nests and fission.

They work before flattening, on multi-dimensional indices; a store moves only when it is proven
that no element is read before it is written.  Buffers keep their shape (see `memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from tilewright.base import symbolic
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis import dependence
from tilewright.compiler.analysis.accesses import accesses
from tilewright.compiler.kernel import ir
from tilewright.compiler.kernel.expressions import Expressions
from tilewright.compiler.kernel.rewrite import (
    FreshNames,
    buffers_of,
    only_statement,
    rename_loops,
    substitute,
)
from tilewright.compiler.schedule import tree
from tilewright.compiler.schedule.handles import WHOLE, Piece, copy_piece
from tilewright.compiler.schedule.trace import primitive

E: Final = Expressions


def siblings(kernel: ir.Kernel, statement: ir.Statement) -> ir.Body:
    """The body in which `statement` stands."""
    path = tree.path_to(kernel.body, statement)
    assert path is not None
    if not path:
        return kernel.body
    parent = path[-1]
    assert isinstance(parent, ir.For | ir.If)
    return parent.body


@primitive
def fuse_nests(kernel: ir.Kernel, first: str, second: str) -> ir.Kernel:
    """Run the bodies of two loops with equal extents, standing side by side, in one loop.

    rewrite:
        for i in n: A(i)
        for j in n: B(j)
        ->
        for i in n: A(i); B(i)

    Raises: ScheduleError if the extents differ, if an iteration of the second loop needs an
    element that a later iteration of the first one touches, or if code between them is in the way.
    """
    a, b = tree.find(kernel, first), tree.find(kernel, second)
    level = siblings(kernel, a)
    if a is b or b not in level:
        raise ScheduleError(f"'{first}' and '{second}' do not stand side by side")
    if a.extent != b.extent:
        raise ScheduleError(f"'{first}' runs {a.extent} times, '{second}' {b.extent}")
    low, high = level.index(a), level.index(b)
    if low > high:
        raise ScheduleError(f"'{second}' stands before '{first}'")
    between = accesses(level[low + 1 : high])
    up, down = (dependence.overlap(between, accesses([x])) for x in (b, a))
    if up is not None and down is not None:
        raise ScheduleError(f"'{second}' cannot pass code that touches '{up.name}'")
    dependence.check_fixed((b,), a.body)
    body = substitute(b.body, {second: tree.reference(a.var)})
    needed = dependence.conflict(accesses(a.body), accesses(body), (a.var,))
    if needed is not None:
        raise ScheduleError(
            f"an iteration of '{second}' needs '{needed.name}' of another iteration of '{first}'"
        )
    fused = ir.For(a.var, a.extent, (*a.body, *body), a.kind, a.reduction or b.reduction)
    kept, gone = (a, b) if up is None else (b, a)
    without = tree.swap(kernel.body, gone, ())
    return replace(kernel, body=tree.swap(without, kept, (fused,)))


@primitive
def fission(
    kernel: ir.Kernel,
    loop: str,
    depth: int = 1,
    scope: str = "register",
    together: str = "iterations",
) -> tuple[ir.Kernel, tuple[Piece, ...]]:
    """Give each statement in a nest of `depth` loops its own copy of the loops.

    Local buffers that carry a value between the statements of one iteration get one element per
    iteration, in `scope` ("register" or "workgroup").  `together` says what lies side by side then: the innermost
    loop's "iterations", which may become lanes, or the "elements" of one iteration.

    rewrite:
        for i in n: t = A(i); B(i, t)
        ->
        for i in n: t[i] = A(i)
        for i_2 in n: B(i_2, t[i_2])

    Raises: ScheduleError if a later statement of one iteration must run before an earlier
    statement of another.
    """
    if together not in ("iterations", "elements"):
        raise ScheduleError(f"iterations or elements lie together, got '{together}'")
    outer = tree.find(kernel, loop)
    nest, body = _nest_of_depth(outer, depth)
    parts = _guarded_parts(body)
    if len(parts) < 2:
        return kernel, (WHOLE,)
    dependence.check_fixed(nest, body)
    variables = tuple(s.var for s in nest)
    private = dependence.only_inside(dependence.private_buffers(body), kernel.body, outer)
    expanded = [b for b in private if _crosses(parts, b)]
    for access in accesses(body):
        if access.lanes != 1 and any(access.buffer is b for b in expanded):
            raise ScheduleError(f"'{access.buffer.name}' is read in lanes already")
    _check_fission(parts, variables, frozenset(private))
    place = _around if together == "iterations" else _before
    new_buffers = {b: _expand(b, nest, ir.Space(scope), place) for b in expanded}
    names, index = FreshNames.of(kernel), tuple(map(tree.reference, variables))
    result: list[ir.Statement] = []
    made: list[Piece] = []
    for position, part in enumerate(parts):
        code = part
        for old, new in new_buffers.items():
            code = tree.map_accesses(code, old, new, lambda own: place(index, own))
        code = tree.nested(nest, code)
        named = code if position == 0 else rename_loops(code, names)
        result.extend(named)
        made.append(copy_piece(code, named))
    return tree.swap_locals(tree.rewrite(kernel, outer, result), new_buffers), tuple(made)


def _nest_of_depth(outer: ir.For, depth: int) -> tuple[tuple[ir.For, ...], ir.Body]:
    nest = tree.chain(outer)
    if not 1 <= depth <= len(nest):
        raise ScheduleError(
            f"'{outer.var.name}' has {len(nest)} perfectly nested loops, not {depth}"
        )
    return nest[:depth], nest[depth - 1].body


def _guarded_parts(body: ir.Body) -> list[ir.Body]:
    """The statements of `body` one by one; a guard around all is repeated for each."""
    guard = only_statement(body)
    if isinstance(guard, ir.If):
        parts = _guarded_parts(guard.body)
        for part in parts[:-1]:
            dependence.check_guard_fixed(guard, part)
        return [(ir.If(guard.condition, part),) for part in parts]
    return [(s,) for s in body]


def _crosses(parts: Sequence[ir.Body], buffer: ir.Buffer) -> bool:
    users = [n for n, part in enumerate(parts) if touches(part, buffer)]
    return len(users) > 1


def touches(body: ir.Body, buffer: ir.Buffer) -> bool:
    """Whether `body` loads or stores a buffer."""
    return any(buffer in buffers_of(statement) for statement in body)


def _check_fission(
    parts: Sequence[ir.Body], variables: Sequence[Symbol], private: frozenset[ir.Buffer]
) -> None:
    found = [accesses(part) for part in parts]
    for position, first in enumerate(found):
        for second in found[position + 1 :]:
            through = dependence.conflict(first, second, variables, private)
            if through is not None:
                raise ScheduleError(
                    f"iterations of {[v.name for v in variables]} depend on each other through "
                    f"'{through.name}'"
                )


_Placing = Callable[[tuple[Dim, ...], tuple[Dim, ...]], tuple[Dim, ...]]
"""Axes of the loops and a buffer's own -> its axes when it is expanded."""


def _expand(
    buffer: ir.Buffer, nest: Sequence[ir.For], space: ir.Space, place: _Placing
) -> ir.Buffer:
    extents = tuple(largest(s.extent) for s in nest)
    return ir.Buffer(buffer.name, buffer.dtype, place(extents, buffer.shape), space)


def _around(outer: tuple[Dim, ...], own: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Dimensions of an expanded buffer: the innermost loop last, as it may become lanes."""
    return (*outer[:-1], *own, outer[-1])


def _before(outer: tuple[Dim, ...], own: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Dimensions of an expanded buffer: its own last, as they may become lanes."""
    return (*outer, *own)


def largest(extent: Dim) -> int:
    """The most that `extent` can be.  Raises: ScheduleError when it has no upper bound."""
    upper = symbolic.bounds(extent)[1]
    if upper is None:
        raise ScheduleError(f"an extent of '{extent}' has no upper bound")
    return upper
