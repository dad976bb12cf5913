"""Rows for operations whose sizes are operands.

Sizes that follow from those of other tensors are followed; what the type of the result states need not be known;
others are read from the data while the model runs.

Source: StableHLO specification, "Dynamism", and per operation in the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.computed import whole
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.assumed_sizes import (
    assumed_equal,
    assumed_inside,
)
from tilewright.compiler.frontends.stablehlo.attribute_demands import (
    hints_fit,
    precision,
    window,
)
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.demands import (
    ANY,
    elements,
    gives,
    keeps,
    rank,
    takes,
)
from tilewright.compiler.frontends.stablehlo.held import Held
from tilewright.compiler.frontends.stablehlo.index_demands import (
    GATHERED,
)
from tilewright.compiler.frontends.stablehlo.indexing import gather
from tilewright.compiler.frontends.stablehlo.movement import (
    broadcast_in,
    checked_pad,
    iota,
    sliced,
)
from tilewright.compiler.frontends.stablehlo.quantized_demands import (
    axis_is_broadcast,
    kernel_fits,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.windows import convolution

_EXPANDING: Final = ("known_expanding_dimensions", "known_nonexpanding_dimensions")


def _sizes(call: Call, index: int) -> tuple[Dim, ...]:
    """The shape of the result, which an operand holds.

    Raises: ModelError if the type says another.
    """
    stated = call.stated()
    if None not in stated and call.maker.contents(call.tensor(index)) is None:
        return call.shape()
    shape = call.dims(index)
    pairs = list(zip(stated, shape, strict=len(stated) == len(shape)))
    if len(stated) != len(shape) or not all(
        own is None or assumed_equal(call.maker, own, size) for own, size in pairs
    ):
        listed = ", ".join(map(str, shape))
        raise ModelError(f"asks for [{listed}], its type says {list(stated)}")
    return tuple(size if own is None else own for own, size in pairs)


def _dynamic_broadcast_in_dim(call: Call) -> Tensor:
    axes = call.integers("broadcast_dimensions")
    x, grown = call.tensor(0), call.integers("known_expanding_dimensions", ())
    # What is known to be repeated has one element, whatever its type says.
    sizes = [1 if axis in grown else size for axis, size in enumerate(x.shape)]
    return broadcast_in(call.maker, call.maker.reshape(x, sizes), axes, _sizes(call, 1))


def _dynamic_reshape(call: Call) -> Tensor:
    return call.maker.reshape(call.tensor(0), _sizes(call, 1))


def _dynamic_iota(call: Call) -> Held:
    return iota(call, _sizes(call, 0))


def _dynamic_pad(call: Call) -> Tensor:
    low, high, interior = call.amounts(2), call.amounts(3), call.dims(4)
    x = call.tensor(0)
    if not len(low) == len(high) == len(interior) == x.rank:
        raise ModelError(f"the padding does not fit {x.type}")
    edges = list(zip(low, high, strict=True))
    return checked_pad(call.maker, x, call.tensor(1), edges, interior)


def _dynamic_gather(call: Call) -> Held:
    return gather(call, call.dims(2))


def _dynamic_conv(call: Call) -> Held:
    numbers = call.amounts(2)
    if len(numbers) % 2:
        raise ModelError("the padding is no list of pairs")
    return convolution(call, list(zip(numbers[::2], numbers[1::2], strict=True)))


def _real_dynamic_slice(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    bounds = [call.tensor(i) for i in (1, 2, 3)]
    if all(e.contents(each) is not None for each in bounds):
        starts, limits, steps = (call.dims(i) for i in (1, 2, 3))
        fixed = [step for step in steps if isinstance(step, int)]
        if len(fixed) == len(steps):
            return sliced(e, x, starts, limits, fixed)
    return _cut(call, x, *(e.cast(each, dtypes.i64) for each in bounds))


def _cut(call: Call, x: Tensor, starts: Tensor, limits: Tensor, steps: Tensor) -> Tensor:
    """A slice whose range is data; how much it is stands in the type of the result, or is read."""
    e, stated = call.maker, call.stated()
    sizes: Sequence[Dim]
    if None in stated:
        beyond = e.op("sub", e.op("add", e.op("sub", limits, starts), steps), whole(e, 1))
        sizes = control.read_sizes(e, e.op("div", beyond, steps), "length")
    else:
        sizes = call.shape()
    for axis, size in enumerate(sizes):
        start, step = (
            e.squeeze(e.slice(each, 0, axis, 1), (0,)) for each in (starts, steps)
        )
        places = e.op("add", start, e.op("mul", step, e.iota((size,), 0)))
        x = e.op("gather", x, places, axis=axis)
    return x


def _set_dimension_size(call: Call) -> Tensor:
    """What lies before a size; a size of data is read, and one beyond what is there fails the call."""
    e, x, axis = call.maker, call.tensor(0), call.integer("dimension")
    if not 0 <= axis < x.rank:
        raise ModelError(f"dimension {axis} does not fit {x.type}")
    given, bound = call.tensor(1), x.shape[axis]
    if given.rank:
        raise ModelError(f"the size is {given.type}, expected one number")
    if e.contents(given) is None and call.stated()[axis] is None:
        high = bound if isinstance(bound, int) else None
        values = e.reshape(given, (1,))
        (size,) = control.read_sizes(e, values, "length", high)
    else:
        (size,) = call.dims(1)
    if call.stated()[axis] is not None:
        if isinstance(size, int) and isinstance(bound, int) and size != bound:
            raise UnsupportedError(
                "a size below the bound of its dimension needs a type that says so"
            )
        control.agree(e, size, bound)
        return x
    if not assumed_inside(e, size, bound):
        raise ModelError(f"a dimension of {bound} elements cannot have {size}")
    return e.slice(x, axis, 0, size)


ROWS: Final[tuple[Row, ...]] = (
    row("dynamic_broadcast_in_dim", _dynamic_broadcast_in_dim, by_parts=True, keeps=True,
        ignores=_EXPANDING, demands=(takes(2), keeps(0, turns=True), elements("su", 1), rank(1, 1), axis_is_broadcast, hints_fit)),
    row("dynamic_conv", _dynamic_conv, demands=(takes(3), elements("su", 2), rank(2, 2), kernel_fits, window, precision)),
    row("dynamic_gather", _dynamic_gather, keeps=True, demands=(takes(3), elements(ANY, 0), elements("su", 1, 2), keeps(0), *GATHERED)),
    row("dynamic_iota", _dynamic_iota, demands=(takes(1), elements("su"), gives("sufcq"), rank(1, 0))),
    row("dynamic_pad", _dynamic_pad, by_parts=True, keeps=True, demands=(takes(5), elements(ANY, 0, 1), keeps(0, 1), rank(0, 1), elements("su", 2, 3, 4), rank(1, 2, 3, 4))),
    row("dynamic_reshape", _dynamic_reshape, by_parts=True, keeps=True, demands=(takes(2), keeps(0, turns=True), elements("su", 1), rank(1, 1))),
    row("real_dynamic_slice", _real_dynamic_slice, by_parts=True, keeps=True, demands=(takes(4), elements(ANY, 0), keeps(0), elements("su", 1, 2, 3), rank(1, 1, 2, 3))),
    row("set_dimension_size", _set_dimension_size, by_parts=True, keeps=True, demands=(takes(2), keeps(0), elements("s", 1))),
)  # fmt: skip
