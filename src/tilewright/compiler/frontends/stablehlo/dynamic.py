"""Rows for operations whose sizes are operands, where these are known when the module is compiled.

Where the result's type states the sizes, they need not be known.

Source: StableHLO specification, "Dynamism", and per operation in the row.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call
from tilewright.compiler.frontends.stablehlo.held import Held
from tilewright.compiler.frontends.stablehlo.indexing import gather
from tilewright.compiler.frontends.stablehlo.movement import (
    broadcast_in,
    iota,
    pad,
    sizes_of,
    sliced,
)
from tilewright.compiler.frontends.stablehlo.row import Row, row
from tilewright.compiler.frontends.stablehlo.windows import convolution

_EXPANDING: Final = ("known_expanding_dimensions", "known_nonexpanding_dimensions")


def _checked(call: Call, index: int) -> tuple[int, ...]:
    """The shape of the result.  Raises: ModelError if an operand is known to say another."""
    shape = call.shape()
    if call.tensor(index).array is not None and call.numbers(index) != shape:
        raise ModelError(
            f"asks for {list(call.numbers(index))}, its type says {list(shape)}"
        )
    return shape


def _dynamic_broadcast_in_dim(call: Call) -> Tensor:
    axes = call.integers("broadcast_dimensions")
    return broadcast_in(call.maker, call.tensor(0), axes, _checked(call, 1))


def _dynamic_reshape(call: Call) -> Tensor:
    return call.maker.reshape(call.tensor(0), _checked(call, 1))


def _dynamic_iota(call: Call) -> Held:
    _checked(call, 0)
    return iota(call)


def _dynamic_pad(call: Call) -> Tensor:
    low, high, interior = (call.numbers(i) for i in (2, 3, 4))
    x = call.tensor(0)
    if not len(low) == len(high) == len(interior) == x.rank:
        raise ModelError(f"the padding does not fit {x.type}")
    edges = list(zip(low, high, strict=True))
    return pad(call.maker, x, call.tensor(1), edges, interior)


def _dynamic_gather(call: Call) -> Held:
    return gather(call, call.numbers(2))


def _dynamic_conv(call: Call) -> Held:
    numbers = call.numbers(2)
    if len(numbers) % 2:
        raise ModelError("the padding is no list of pairs")
    return convolution(call, list(zip(numbers[::2], numbers[1::2], strict=True)))


def _real_dynamic_slice(call: Call) -> Tensor:
    starts, limits, steps = (call.numbers(i) for i in (1, 2, 3))
    return sliced(call.maker, call.tensor(0), starts, limits, steps)


def _set_dimension_size(call: Call) -> Tensor:
    x, axis, (size,) = call.tensor(0), call.integer("dimension"), call.numbers(1)
    if not 0 <= axis < x.rank:
        raise ModelError(f"dimension {axis} does not fit {x.type}")
    if size != sizes_of(x)[axis]:
        raise UnsupportedError("a size below the bound of its dimension is not supported")
    return x


ROWS: Final[tuple[Row, ...]] = (
    row("dynamic_broadcast_in_dim", _dynamic_broadcast_in_dim, by_parts=True, keeps=True,
        ignores=_EXPANDING),
    row("dynamic_conv", _dynamic_conv, ignores=("precision_config",)),
    row("dynamic_gather", _dynamic_gather, keeps=True),
    row("dynamic_iota", _dynamic_iota),
    row("dynamic_pad", _dynamic_pad, by_parts=True, keeps=True),
    row("dynamic_reshape", _dynamic_reshape, by_parts=True, keeps=True),
    row("real_dynamic_slice", _real_dynamic_slice, by_parts=True, keeps=True),
    row("set_dimension_size", _set_dimension_size, by_parts=True, keeps=True),
)  # fmt: skip
