"""What a kernel touches, found by walking through all of its iterations.

Independent of the analysis it is compared with: extents, indices and conditions become Python expressions.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tilewright.base import symbolic
from tilewright.base.symbolic import Dim, Opaque
from tilewright.compiler.analysis.accesses import Access, accesses
from tilewright.compiler.kernel.ir import (
    Binary,
    Buffer,
    Compare,
    Const,
    Expression,
    For,
    If,
    Index,
    Load,
    Statement,
)

_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

Values = Mapping[str, int]


class Touch(NamedTuple):
    """One element touched by one access in one iteration."""

    access: int  # its place in `accesses(body)`
    at: tuple[int, ...]  # the values of the loops asked about
    buffer: Buffer
    element: tuple[int, ...]
    write: bool


def touches(
    body: Sequence[Statement], values: Values, names: Sequence[str] = ()
) -> Iterator[Touch]:
    """Everything `body` touches, in the order of the serial program.

    Args:
        body: statements of a kernel.
        values: numbers for sizes and for the variables of loops around.
        names: the loops whose values are told with each touch.
    """
    yield from _touches(body, dict(values), names, [0])


def _touches(
    body: Sequence[Statement],
    values: dict[str, int],
    names: Sequence[str],
    counter: list[int],
) -> Iterator[Touch]:
    for statement in body:
        first = counter[0]
        own = accesses((_without_body(statement),))
        total = len(accesses((statement,)))
        at = tuple(values.get(name, 0) for name in names)
        for place, access in enumerate(own):
            for element in elements(access, values):
                yield Touch(first + place, at, access.buffer, element, access.write)
        counter[0] = first + len(own)
        if isinstance(statement, For):
            for value in range(number(statement.extent, values)):
                counter[0] = first + len(own)
                inner = {**values, statement.var.name: value}
                yield from _touches(statement.body, inner, names, counter)
        elif isinstance(statement, If) and holds(statement.condition, values):
            yield from _touches(statement.body, values, names, counter)
        counter[0] = first + total


def _without_body(statement: Statement) -> Statement:
    if isinstance(statement, For):
        return For(statement.var, statement.extent, (), statement.kind, statement.reduction)
    return If(statement.condition, ()) if isinstance(statement, If) else statement


def elements(access: Access, values: Values) -> Iterator[tuple[int, ...]]:
    """The elements of one execution of an access, one for each lane."""
    *outer, last = (number(index, values) for index in access.indices)
    for lane in range(access.lanes):
        yield (*outer, last + lane * access.stride)


def number(value: Dim, values: Values) -> int:
    """The number that `value` stands for."""
    return (
        value if isinstance(value, int) else eval(_code(value), {"v": values, "t": table})
    )


def holds(condition: Expression, values: Values) -> bool:
    """Whether a condition on indices holds."""
    if isinstance(condition, Binary):
        return holds(condition.left, values) and holds(condition.right, values)
    assert isinstance(condition, Compare)
    left, right = (_side(side, values) for side in (condition.left, condition.right))
    return eval(f"{left} {_SIGNS[condition.op]} {right}")


def _side(value: Expression, values: Values) -> int:
    if isinstance(value, Const):
        return int(value.value)
    assert isinstance(value, Index)
    return number(value.dim, values)


def table(place: int) -> int:
    """What tables of indices hold: an arbitrary function with collisions."""
    return (place * 37 + 16) % 48 if place % 3 else 48 - 16 * place


@functools.cache
def _code_of(text: str) -> object:
    return compile(text, "<index>", "eval")


_CODES: dict[int, tuple[Dim, object]] = {}


def _code(value: Dim) -> object:
    known = _CODES.get(id(value))
    if known is None:
        known = _CODES[id(value)] = (value, _code_of(python(value)))
    return known[1]


def python(value: Dim) -> str:
    """A dimension as an expression of Python over `v`."""
    if isinstance(value, int):
        return str(value)
    terms = [
        "*".join([str(factor), *(_atom(atom) for atom in monomial)])
        for monomial, factor in value.terms
    ]
    return "(" + " + ".join([*terms, str(value.constant)]) + ")"


def _atom(atom: symbolic.Atom) -> str:
    if isinstance(atom, symbolic.Operation):
        left, right = python(atom.left), python(atom.right)
        sign = {"floordiv": "//", "mod": "%"}.get(atom.op)
        return f"({left} {sign} {right})" if sign else f"{atom.op}({left}, {right})"
    if isinstance(atom, Opaque):
        assert isinstance(atom.payload, Load)
        return f"t({python(atom.payload.indices[0])})"
    return f"v[{atom.key!r}]"
