"""Kernels that apply an instruction to operands in memory, and data for them."""

from __future__ import annotations

import numpy as np

from tilewright.base.dtypes import DType, i32
from tilewright.base.symbolic import Symbol, symbol
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.ir import (
    Access,
    Buffer,
    Expression,
    For,
    Instruction,
    Intrinsic,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Store,
)


def samples(dtype: DType, count: int, seed: int) -> np.ndarray:
    """Values with the edges of the type among them, denormal floats too."""
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        values = rng.normal(0, 8, count).astype(np.float32)
        edges = [0.0, -0.0, 1e-39, -1e-40, 1e-20, -1e-19, 3e19]
        values[::7] = rng.choice(edges, len(values[::7]))
        return values.astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    values = rng.integers(info.min, info.max, count, dtype.numpy, endpoint=True)
    values[:4], values[4:8] = info.min, info.max
    return values


def elements(row: Instruction) -> int:
    """How many elements one word of the packed operands holds."""
    (extent,) = row.parameters[1].shape
    assert isinstance(extent, int)
    return extent


def applied(row: Instruction, count: int, lanes: int) -> Kernel:
    """`total[i] = row(total[i], one word of a, word i of b)`, in vectors of so many lanes."""
    total, left, right = row.parameters
    each = elements(row)
    result = Buffer("total", total.dtype, (count,))
    a, b = Buffer("a", left.dtype, (each,)), Buffer("b", right.dtype, (count * each,))
    place = symbol("i") * lanes + symbol("v")
    words: list[Expression] = [
        e.bitcast(Load(x, (at * each,), each), i32) for x, at in ((a, 0), (b, place))
    ]
    value = Intrinsic(row, (Load(result, (place,)), *words))
    vector = For(Symbol("v"), lanes, (Store(result, (place,), value),), LoopKind.VECTOR)
    body = (For(Symbol("i"), count // lanes, (vector,)),)
    parameters = (
        Parameter(result, Access.READ_WRITE),
        Parameter(a, Access.READ),
        Parameter(b, Access.READ),
    )
    return Kernel(row.name, parameters, (), (), body)


def operands(row: Instruction, count: int) -> list[np.ndarray]:
    """Arrays for the parameters of `applied`."""
    total, left, right = row.parameters
    each = elements(row)
    return [
        samples(total.dtype, count, 0),
        samples(left.dtype, each, 1),
        samples(right.dtype, count * each, 2),
    ]
