"""Rows for tensors that are made, not computed: constants, ranges, identities.

Source: the operators of ATen by name.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.symbolic import Expr
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.row import Build, Row, row

_SHAPED: Final = ("self", "size", "dtype", "names", "n", "m")


def _note(call: Call) -> None:
    """What is asked for stands in the type of the result."""
    for name in _SHAPED:
        call.argument(name)


def _repeated(number: int) -> Build:
    def build(call: Call) -> Tensor:
        _note(call)
        return call.maker.full(number, call.dtype(), call.shape())

    return build


def _full(call: Call) -> Tensor:
    _note(call)
    value = call.operand("fill_value", call.dtype())
    return call.maker.broadcast_to(value, call.shape())


def _fill(call: Call) -> Tensor:
    call.argument("self")
    return call.maker.broadcast_to(call.operand("value", call.dtype()), call.shape())


def _scalar(call: Call) -> Tensor:
    _note(call)
    return call.operand("s", call.dtype())


def _arange(call: Call) -> Tensor:
    _note(call)
    e, dtype, shape = call.maker, call.dtype(), call.shape()
    given = [call.argument(name) for name in ("start", "end", "step")]
    start = 0 if given[0] is None else given[0]
    step = 1 if given[2] is None else given[2]
    if not isinstance(step, int | float | Expr):
        raise UnsupportedError("a step that data or a quotient decides is not supported")
    if dtype.is_integer:
        # Torch converts both before it counts; what a call decides is a size, which is whole.
        step = step if isinstance(step, Expr) else int(step)
        start = int(start) if isinstance(start, int | float) else start
    is_whole = not any(isinstance(number, float) for number in (start, step))
    wide = dtypes.i64 if is_whole else dtypes.f64
    places = e.cast(e.iota(shape, 0), wide)
    if isinstance(step, Expr):
        places = e.op("mul", places, call.operand("step", wide))
    elif step != 1:
        places = e.op("mul", places, e.scalar(step, wide))
    if start != 0:
        whole = isinstance(start, int | float)
        first = e.scalar(start, wide) if whole else call.operand("start", wide)
        places = e.op("add", places, first)
    return e.cast(places, dtype)


def _iota(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    call.argument("length")
    call.element_type()
    step = call.integer("step", 1)
    places = e.op("mul", e.iota(call.shape(), 0), e.scalar(step, dtypes.i64))
    return e.cast(e.op("add", places, call.operand("start", dtypes.i64)), dtype)


def identity(call: Call) -> Tensor:
    """Ones on the diagonal."""
    _note(call)
    return call.op("eye", shape=call.shape(), dtype=call.dtype())


def _linspace(call: Call) -> Tensor:
    _note(call)
    e, dtype = call.maker, call.dtype()
    count = call.integer("steps")
    start, end = (float(call.number(name)) for name in ("start", "end"))
    wide = np.float64 if dtype == dtypes.f64 else np.float32
    if not dtype.is_float:
        wide = np.float64
    # From the nearer end, as torch has it.
    step = wide((end - start) / (count - 1)) if count > 1 else wide(0)
    places = np.arange(count)
    low = wide(start) + step * places.astype(wide)
    high = wide(end) - step * (count - 1 - places).astype(wide)
    values = np.where(places < count // 2 if count > 1 else places < 1, low, high)
    return e.cast(e.constant(np.asarray(values, wide)), dtype)


ROWS: Final[tuple[Row, ...]] = (
    row("zeros zeros_like new_zeros", _repeated(0)),
    row("ones ones_like new_ones", _repeated(1)),
    # What is in them nobody may rely on; zeros are as good as anything.
    row(
        "empty.memory_format empty_like new_empty empty_strided new_empty_strided "
        "empty_permuted",
        _repeated(0),
        ignores=("stride", "physical_layout"),
    ),
    row("full full_like new_full", _full),
    row("fill.Scalar fill.Tensor", _fill),
    row("scalar_tensor", _scalar),
    row("arange arange.start arange.start_step", _arange),
    row("prims::iota", _iota),
    row("eye eye.m", identity),
    row("linspace", _linspace),
)
