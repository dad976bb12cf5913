"""Rows for control flow, tuples, tokens, and what is trivial in one process.

The graph runs straight on: a loop is written out, as its trips are known once its condition is a
constant; of branches both sides are computed, which have no effects, and one is chosen.

Source: StableHLO specification, "while", "if", "case", "tuple", collectives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.held import Complex, Held, Token, Tuple
from tilewright.compiler.frontends.stablehlo.row import Row, row

MAX_TRIPS: Final = 1024


def _while(call: Call) -> list[Held]:
    state = list(call.operands)
    for _ in range(MAX_TRIPS):
        (going,) = call.inline(call.region(0), state)
        known = real(going).array
        if known is None:
            raise UnsupportedError("a loop whose trips depend on data is not supported")
        if not bool(known.reshape(())):
            return state
        state = call.inline(call.region(1), state)
    raise UnsupportedError(f"a loop of more than {MAX_TRIPS} trips is not supported")


def _if(call: Call) -> list[Held]:
    condition = call.tensor(0)
    if condition.array is not None:
        return call.inline(call.region(0 if condition.array.reshape(()) else 1), ())
    return _chosen(
        call, condition, *(call.inline(call.region(index), ()) for index in (0, 1))
    )


def _case(call: Call) -> list[Held]:
    """An index out of range is the last branch."""
    e, index, count = call.maker, call.tensor(0), len(call.operation.regions)
    if not count:
        raise ModelError("has no branches")
    if index.array is not None:
        number = int(index.array.reshape(()))
        inside = 0 <= number < count
        return call.inline(call.region(number if inside else count - 1), ())
    found = call.inline(call.region(count - 1), ())
    for number in reversed(range(count - 1)):
        is_it = e.op("equal", index, e.scalar(number, index.dtype))
        found = _chosen(call, is_it, call.inline(call.region(number), ()), found)
    return found


def _chosen(
    call: Call, condition: Tensor, first: Sequence[Held], second: Sequence[Held]
) -> list[Held]:
    if len(first) != len(second):
        raise ModelError("branches give different numbers of results")
    pairs = zip(first, second, strict=True)
    return [_either(call, condition, x, y) for x, y in pairs]


def _either(call: Call, condition: Tensor, x: Held, y: Held) -> Held:
    if isinstance(x, Complex) and isinstance(y, Complex):
        pairs = ((x.real, y.real), (x.imaginary, y.imaginary))
        return Complex(*(call.maker.op("where", condition, *pair) for pair in pairs))
    if isinstance(x, Token):
        return x
    return call.maker.op("where", condition, real(x), real(y))


def _tuple(call: Call) -> Tuple:
    return Tuple(tuple(call.operands))


def _element(call: Call) -> Held:
    held, index = call.held(0), call.integer("index")
    if not isinstance(held, Tuple) or not 0 <= index < len(held.items):
        raise ModelError(f"there is no element {index} of a tuple")
    return held.items[index]


def _barrier(call: Call) -> list[Held]:
    return list(call.operands)


def _token(call: Call) -> Token:
    del call
    return Token()


ROWS: Final[tuple[Row, ...]] = (
    row("after_all", _token, keeps=True),
    row("case", _case, keeps=True),
    row("create_token", _token, keeps=True),
    row("get_tuple_element", _element, keeps=True),
    row("if", _if, keeps=True),
    row("optimization_barrier", _barrier, keeps=True),
    row("tuple", _tuple, keeps=True),
    row("while", _while, keeps=True),
)
