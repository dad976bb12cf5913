"""What isl, the integer set library, says about the accesses of a kernel: exact, for all sizes at once.

Needs the package `islpy` and indices that are affine, quotients and remainders by numbers included.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import islpy

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Symbol
from tilewright.compiler.analysis.accesses import Access
from tilewright.compiler.kernel.ir import (
    Binary,
    Compare,
    Const,
    Expression,
    For,
    If,
    Index,
    Statement,
)
from tilewright.compiler.schedule.tree import path_to

_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "=", "ne": "!="}

Names = Mapping[str, str]


def may_meet(
    first: Access,
    second: Access,
    loop: For,
    around: Sequence[Statement],
    sizes: Sequence[Symbol],
    relation: str,
) -> bool:
    """Whether the two touch one element in iterations of `loop` that are `=` or `!=` to each other.

    Args:
        first: an access in the body of `loop`.
        second: another, or the same.
        loop: the loop.
        around: the loops and guards around it.
        sizes: the kernel's sizes, with bounds.
        relation: between the iterations of the two; `<=>` for any.
    """
    mine, theirs = _run(first, loop), _run(second, loop)
    primed = {x.var.name: f"{x.var.name}_" for x in theirs if isinstance(x, For)}
    limits = [
        *_limits(around, {}),
        *_limits(mine, {}),
        *_limits(theirs, primed),
        *(
            f"{text(x, {})} = {text(y, primed)}"
            for x, y in zip(first.indices, second.indices, strict=True)
        ),
    ]
    if relation != "<=>":
        limits.append(f"{loop.var.name} {relation} {loop.var.name}_")
    names = [x.var.name for x in (*around, *mine) if isinstance(x, For)]
    return not _is_empty([*names, *primed.values()], limits, sizes)


def stays_within(
    access: Access,
    place: int,
    loop: For,
    around: Sequence[Statement],
    sizes: Sequence[Symbol],
) -> bool:
    """Whether an index never leaves the buffer."""
    path = (*around, *_run(access, loop))
    index, extent = access.indices[place], access.buffer.shape[place]
    names = [x.var.name for x in path if isinstance(x, For)]
    outside = f"({text(index, {})} < 0 or {text(index, {})} >= {text(extent, {})})"
    return _is_empty(names, [*_limits(path, {}), outside], sizes)


def touched_elements(found: Sequence[Access], body: Sequence[Statement]) -> int:
    """How many different elements of a buffer the accesses touch; no symbols may be left."""
    union = islpy.Set("{ [] : 1 = 0 }")
    for number, access in enumerate(found):
        assert access.statement is not None
        path = path_to(body, access.statement) or ()
        names = [x.var.name for x in path if isinstance(x, For)]
        target = ", ".join(text(index, {}) for index in access.indices)
        inside = (
            f"0 <= {text(index, {})} < {text(extent, {})}"
            for index, extent in zip(access.indices, access.buffer.shape, strict=True)
        )
        limits = " and ".join([*_limits(path, {}), *inside])
        touched = islpy.Map(f"{{ [{', '.join(names)}] -> [{target}] : {limits} }}").range()
        union = touched if number == 0 else union.union(touched)
    return union.coalesce().make_disjoint().count_val().to_python()


def _run(access: Access, loop: For) -> tuple[Statement, ...]:
    """`loop` and what stands between it and an access."""
    assert access.statement is not None
    path = path_to((loop,), access.statement)
    assert path is not None
    return path


def _limits(path: Sequence[Statement], names: Names) -> Iterator[str]:
    for statement in path:
        if isinstance(statement, For):
            variable = names.get(statement.var.name, statement.var.name)
            yield f"0 <= {variable} < {text(statement.extent, names)}"
        elif isinstance(statement, If):
            yield _condition(statement.condition, names)


def _condition(value: Expression, names: Names) -> str:
    if isinstance(value, Binary):
        assert value.op == "and"
        return f"{_condition(value.left, names)} and {_condition(value.right, names)}"
    assert isinstance(value, Compare)
    return f"{_side(value.left, names)} {_SIGNS[value.op]} {_side(value.right, names)}"


def _side(value: Expression, names: Names) -> str:
    if isinstance(value, Const):
        return str(int(value.value))
    assert isinstance(value, Index)
    return text(value.dim, names)


def _is_empty(names: Sequence[str], limits: Sequence[str], sizes: Sequence[Symbol]) -> bool:
    bounds = [f"{s.name} >= {s.lower}" for s in sizes if s.lower is not None]
    bounds += [f"{s.name} <= {s.upper}" for s in sizes if s.upper is not None]
    parameters = ", ".join(s.name for s in sizes)
    formula = " and ".join([*bounds, *limits])
    return islpy.Set(f"[{parameters}] -> {{ [{', '.join(names)}] : {formula} }}").is_empty()


def text(value: Dim, names: Names) -> str:
    """A dimension in the notation of isl."""
    if isinstance(value, int):
        return str(value)
    terms = [
        "*".join([str(factor), *(_atom(atom, names) for atom in monomial)])
        for monomial, factor in value.terms
    ]
    return f"({' + '.join([*terms, str(value.constant)])})"


def _atom(atom: symbolic.Atom, names: Names) -> str:
    if isinstance(atom, Symbol):
        return names.get(atom.name, atom.name)
    assert isinstance(atom, symbolic.Operation), f"{atom} is not affine"
    left, right = text(atom.left, names), text(atom.right, names)
    if atom.op == "floordiv":
        return f"floor({left}/{right})"
    return f"({left} mod {right})" if atom.op == "mod" else f"{atom.op}({left}, {right})"
