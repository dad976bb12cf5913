"""Rows for what a program expects of the sizes of a call: a call that breaks it fails.

Torch writes down as assertions what it decided while tracing, where it cannot prove it for all sizes.  Of data only what
a module itself expects is checked here (`_assert_async`): for what an operator expects, whatever needs it checks it.

Source: `torch.ops.aten._assert_scalar`, `_assert_async`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from tilewright.base import symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import keep_filled
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.program import Formula, Part, Relation
from tilewright.compiler.frontends.torch.relation_text import text_of
from tilewright.compiler.frontends.torch.row import Row, row
from tilewright.compiler.frontends.torch.sizes import folded
from tilewright.formats.plan.size_relations import Pair, at_most, unlike


def _asserted(call: Call) -> Sequence[Tensor | None]:
    expected = call.argument("self")
    if not isinstance(expected, Relation):
        raise ModelError("expects something that is no condition")
    if _is_of_reals(expected):
        _refuse_known(expected)
        for divisor in _divisors(expected):
            keep_filled(call.maker, divisor)
        is_told = "(" in call.operation.name
        words = "" if is_told else text_of(expected, {})
        control.expect(call.maker, call.condition(expected), words)
    else:
        _hold(call.maker, expected)
    return []


def _refuse_known(expected: Relation) -> None:
    """Raise UnsupportedError where a real number of sizes was made the one of the example: few other sizes give it."""
    kinds = {type(part) for part in expected.parts}
    if expected.op == "equal" and kinds == {Formula, float}:
        raise UnsupportedError(
            "torch made a number of it, which only the sizes of the example give",
            hint="leave this size out of dynamic_shapes, or compute with it in operators",
        )


def _divisors(part: Part) -> Iterator[Dim]:
    """The sizes by which Python divides, which fails for 0."""
    if isinstance(part, Relation | Formula):
        for each in part.parts:
            yield from _divisors(each)
    if isinstance(part, Formula) and part.op == "div" and isinstance(part.parts[1], Expr):
        yield part.parts[1]


def _is_of_reals(part: Part) -> bool:
    """Whether real numbers are compared, which are computed as Python computes them: sizes have no word for them."""
    if isinstance(part, Relation):
        return any(map(_is_of_reals, part.parts))
    return not isinstance(part, int | Expr)


def _hold(e: NodeMaker, expected: Relation) -> None:
    """Have a call fail for which it does not hold."""
    if expected.op == "logical_and":
        for part in expected.parts:
            _hold_part(e, part)
        return
    sizes = [part for part in expected.parts if isinstance(part, int | Expr)]
    build = _PAIRS.get(expected.op)
    if build is not None and len(sizes) == len(expected.parts):
        _agree(e, *build(*sizes))
    elif expected.op == "equal":
        left, right = map(truth_of, expected.parts)
        _agree(e, left, right)
    else:
        _agree(e, truth_of(expected), 1)


def _hold_part(e: NodeMaker, part: Part) -> None:
    if isinstance(part, Relation):
        _hold(e, part)
    else:
        _agree(e, truth_of(part), 1)


def _agree(e: NodeMaker, left: Dim, right: Dim) -> None:
    if isinstance(left, int) and isinstance(right, int) and left != right:
        raise UnsupportedError("expects of sizes what never holds")
    if not symbolic.proves_equal(left, right):
        e.assume(left, right)


def truth_of(part: Part) -> Dim:
    """1 where a relation holds, else 0; a size as it is.  Raises: UnsupportedError for real numbers."""
    if isinstance(part, int | Expr):
        return part
    if not isinstance(part, Relation):
        raise UnsupportedError("expects something of real numbers that sizes decide")
    return _TRUTHS[part.op](*map(truth_of, part.parts))


def _below(left: Dim, right: Dim) -> Dim:
    return symbolic.minimum(1, symbolic.maximum(0, right - left))


def _apart(left: Dim, right: Dim) -> Dim:
    return symbolic.minimum(1, symbolic.maximum(left - right, right - left))


_TRUTHS: Final[dict[str, Callable[..., Dim]]] = {
    "equal": lambda left, right: 1 - _apart(left, right),
    "greater": lambda left, right: _below(right, left),
    "greater_equal": lambda left, right: _below(right, left + 1),
    "less": _below,
    "less_equal": lambda left, right: _below(left, right + 1),
    "logical_and": folded(symbolic.minimum),
    "logical_not": lambda part: 1 - part,
    "logical_or": folded(symbolic.maximum),
    "not_equal": _apart,
}


_PAIRS: Final[dict[str, Callable[[Dim, Dim], Pair]]] = {
    "equal": lambda left, right: (left, right),
    "greater": lambda left, right: at_most(right + 1, left),
    "greater_equal": lambda left, right: at_most(right, left),
    "less": lambda left, right: at_most(left + 1, right),
    "less_equal": at_most,
    "not_equal": unlike,
}
"""Sizes that agree where a relation holds, in the form that errors read bounds from."""


def _asserted_of_data(call: Call) -> Sequence[Tensor | None]:
    e = call.maker
    call.argument("assert_msg")
    holds = e.op("not_equal", call.tensor("self"), e.scalar(0, call.tensor("self").dtype))
    control.expect(e, holds)
    return [None]


ROWS: Final[tuple[Row, ...]] = (
    row("_assert_scalar", _asserted),
    row("_assert_async _assert_async.msg", _asserted_of_data),
)
