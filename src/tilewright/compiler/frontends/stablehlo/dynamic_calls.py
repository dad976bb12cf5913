"""Custom calls for what has sizes that a call decides, and conditions on such sizes.

JAX writes operations whose sizes are operands as custom calls where StableHLO has no such operation.

Source: StableHLO, the custom calls that its pass to canonicalize dynamism knows; JAX, `jax.export`, "shape
polymorphism", `jax.lax.approx_max_k`; LLVM, `llvm/Support/FormatVariadic.h`, for places in the text of an assertion.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, Expr, maximum, minimum
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.bits import total_order
from tilewright.compiler.frontends.stablehlo.call import Call, config_of, integer_of
from tilewright.compiler.frontends.stablehlo.comparators import keys
from tilewright.compiler.frontends.stablehlo.held import Held
from tilewright.compiler.frontends.stablehlo.random_bits import random_bits
from tilewright.compiler.frontends.stablehlo.sorting import top_k
from tilewright.compiler.frontends.stablehlo.tree import Region, Symbol
from tilewright.compiler.frontends.stablehlo.windows import Window, reduced_windows

Build = Callable[[Call], Held | Sequence[Held]]
# `{{` for a brace, `{0}`, `{1,+4:x}` for an operand, whatever its layout.
_PLACE: Final = re.compile(r"\{\{|\{\s*(\d+)\s*(?:,[^{}:]*)?(?::[^{}]*)?\}")


def _assertion(call: Call) -> list[Held]:
    """A condition on sizes: what it says is taken to hold, and a call with other sizes is refused."""
    condition = call.tensor(0)
    message = _PLACE.sub(partial(_told, call), call.text("error_message"))
    if condition.array is not None:
        if not condition.array.all():
            raise ModelError(f"its condition on sizes does not hold: {message}")
        return []
    e, noted = call.maker, call.services.comparison(condition)
    if noted is not None:
        left, right = noted.left, noted.right
        pair = {
            "EQ": (left, right),
            "GE": (maximum(left, right), left),
            "GT": (maximum(left, right + 1), left),
            "LE": (minimum(left, right), left),
            "LT": (minimum(left, right - 1), left),
        }.get(noted.direction)
        if pair is not None:
            e.assume(*pair)
            return []
    control.expect(e, condition, message)
    return []


def _told(call: Call, place: re.Match[str]) -> str:
    """What stands at a place of an assertion's text: an operand behind the condition, as a number or by sizes of inputs."""
    if place[1] is None:
        return "{"
    index = int(place[1]) + 1
    if index >= len(call.operands):
        return place[0]
    held = call.maker.contents(call.tensor(index))
    found = [None] if held is None else [*held.elements.flat]
    if not all(isinstance(size, int | Expr) for size in found):
        return "(what the data gives)"
    return ", ".join(str(size) for size in found)


def _called(call: Call) -> Region:
    """The function that a custom call is about, as a region."""
    named = call.attribute("called_computations")
    names = [
        each.name if isinstance(each, Symbol) else each
        for each in (named if isinstance(named, tuple) else ())
    ]
    if len(names) != 1 or not isinstance(names[0], str):
        raise ModelError("calls no function, or several")
    return Region((call.services.body(names[0]),))


def _reduce_window(call: Call) -> list[Held]:
    """Operands and starts, then sizes, strides, dilations of the operand and of windows, padding."""
    *given, sizes, strides, spread, dilations, padding = range(len(call.operands))
    edges = call.amounts(padding)
    window = Window(
        call.dims(sizes),
        call.numbers(strides),
        call.numbers(dilations),
        tuple(n - 1 for n in call.numbers(spread)),
        tuple(zip(edges[::2], edges[1::2], strict=True)),
    )
    inner = Call(
        call.operation, [call.operands[i] for i in given], call.maker, call.services
    )
    return reduced_windows(inner, window, _called(call))


def _top_k(call: Call) -> list[Tensor]:
    return top_k(call, _only(call.dims(1)))


def _only(sizes: Sequence[Dim]) -> Dim:
    if len(sizes) != 1:
        raise ModelError(f"holds {len(sizes)} sizes, expected 1")
    return sizes[0]


def _rng_bit_generator(call: Call) -> list[Tensor]:
    return random_bits(call, call.dims(1))


def _approximate_top_k(call: Call) -> list[Tensor]:
    """The best entries and what stands beside them; exact ones, of which an approximation may consist."""
    e, x, beside = call.maker, call.tensor(0), call.tensor(1)
    config = config_of(call)
    axis = integer_of("reduction_dim", config.get("reduction_dim"))
    by = keys(_called(call))
    if by is None or len(by) != 1 or not x.dtype.is_float:
        raise UnsupportedError("a comparator like this is not supported")
    if not 0 <= axis < x.rank:
        raise ModelError(f"dimension {axis} does not fit {x.type}")
    size = call.stated()[axis]
    count = size if size is not None else (
        _only(call.dims(4)) if len(call.operands) > 4
        else integer_of("top_k", config.get("top_k")))  # fmt: skip
    _, places = e.ops(
        "top_k", total_order(e, x), k=(count,), axis=axis, largest=by[0].largest
    )
    return [e.op("gather_elements", each, places, axis=axis) for each in (x, beside)]


CALLS: Final[dict[str, Build]] = {
    "ApproxTopK": _approximate_top_k,
    "shape_assertion": _assertion,
    "stablehlo.dynamic_approx_top_k": _approximate_top_k,
    "stablehlo.dynamic_reduce_window": _reduce_window,
    "stablehlo.dynamic_rng_bit_generator": _rng_bit_generator,
    "stablehlo.dynamic_top_k": _top_k,
}
