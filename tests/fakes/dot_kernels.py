"""Kernels that apply an instruction to operands in memory, and data for them."""

from __future__ import annotations

import math

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Symbol, symbol
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.ir import (
    AccessMode,
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
    """How many elements one word of the packed operands holds, or the words of one tile."""
    return math.prod(int(str(extent)) for extent in row.parameters[1].shape)


def applied(row: Instruction, count: int, lanes: int) -> Kernel:
    """`total[i] = row(total[i], one word of a, word i of b)`, in vectors of so many lanes; some rows have no a."""
    if row.tile_lanes > 1:
        return _tiles(row, count, max(lanes, row.tile_lanes))
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
        Parameter(result, AccessMode.READ_WRITE),
        *(Parameter(x, AccessMode.READ) for x in (*sides, moving)),
    )
    return Kernel(row.name, parameters, (), (), body)


def _tiles(row: Instruction, count: int, lanes: int) -> Kernel:
    """The same of an instruction of tiles, which is in vectors from the start: all tiles have words of their own."""
    tiles = lanes // row.tile_lanes
    size = tiles * elements(row)
    buffers = [
        Buffer(name, x.dtype, (count // lanes * each,))
        for name, x, each in zip("tab", row.parameters, (lanes, size, size), strict=True)
    ]
    at = symbol("i")
    given: list[Expression] = [
        e.bitcast(Load(x, (at * each,), each), dtype)
        for x, each, dtype in zip(buffers, (lanes, size, size), row.operands, strict=True)
    ]
    store = Store(buffers[0], (at * lanes,), Intrinsic(row, tuple(given), lanes))
    result, *sides = buffers
    parameters = (
        Parameter(result, AccessMode.READ_WRITE),
        *(Parameter(x, AccessMode.READ) for x in sides),
    )
    return Kernel(
        row.name, parameters, (), (), (For(Symbol("i"), count // lanes, (store,)),)
    )


def operands(row: Instruction, count: int) -> list[np.ndarray]:
    """Arrays for the parameters of `applied`."""
    total, *fixed, last = row.parameters
    each, tiles = elements(row), count // row.tile_lanes
    return [
        samples(total.dtype, count, 0),
        *(samples(x.dtype, tiles * each if row.tile_lanes > 1 else each, 1) for x in fixed),
        samples(last.dtype, tiles * each, 2),
    ]
