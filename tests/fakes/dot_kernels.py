"""Kernels that apply an instruction to operands in memory, and data for them."""

from __future__ import annotations

import numpy as np

from tilewright.base.dtypes import DType
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
    """`total[i] = row(total[i], one word of a, word i of b)`, in vectors of so many lanes; some rows have no a."""
    total, *fixed, last = row.parameters
    each = elements(row)
    result = Buffer("total", total.dtype, (count,))
    sides = [Buffer("a", x.dtype, (each,)) for x in fixed]
    moving = Buffer("b", last.dtype, (count * each,))
    place = symbol("i") * lanes + symbol("v")
    words: list[Expression] = [
        e.bitcast(Load(x, (at * each,), each), dtype)
        for (x, at), dtype in zip(
            (*((x, 0) for x in sides), (moving, place)), row.operands[1:], strict=True
        )
    ]
    value = Intrinsic(row, (Load(result, (place,)), *words))
    vector = For(Symbol("v"), lanes, (Store(result, (place,), value),), LoopKind.VECTOR)
    body = (For(Symbol("i"), count // lanes, (vector,)),)
    parameters = (
        Parameter(result, Access.READ_WRITE),
        *(Parameter(x, Access.READ) for x in (*sides, moving)),
    )
    return Kernel(row.name, parameters, (), (), body)


def operands(row: Instruction, count: int) -> list[np.ndarray]:
    """Arrays for the parameters of `applied`."""
    total, *fixed, last = row.parameters
    each = elements(row)
    return [
        samples(total.dtype, count, 0),
        *(samples(x.dtype, each, 1) for x in fixed),
        samples(last.dtype, count * each, 2),
    ]
