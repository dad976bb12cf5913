"""A matrix product in tiles of two rows by two columns of eight bytes, scheduled by hand."""

from __future__ import annotations

from tilewright.base.dtypes import DType, i32
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import AccessMode, Kernel


def product_in_tiles(
    left: DType, right: DType, rows: int, depth: int, columns: int
) -> Kernel:
    """`y[m, n] = sum over k of a[m, k] * b[k, n]`, padded with zeros, summed in tiles and taken out of them.

    The loops over a tile are `i`, `j` and `k`.  The parameters after `y` are room for what is packed and for the sums.
    """
    pairs, panels, steps = -(-rows // 2), -(-columns // 2), -(-depth // 8)
    b = KernelBuilder("tiles")
    a, w = b.parameter("a", left, (rows, depth)), b.parameter("b", right, (depth, columns))
    y = b.result("y", i32, (rows, columns))
    x = b.parameter("x", left, (pairs, steps, 16), AccessMode.READ_WRITE)
    panel = b.parameter("panel", right, (panels, steps, 16), AccessMode.READ_WRITE)
    total = b.parameter("total", i32, (pairs, panels, 4), AccessMode.READ_WRITE)
    with b.nest((pairs, steps, 2, 8), ("pm", "pk", "pi", "pl")) as (m, p, i, k):
        row, at = 2 * m + i, 8 * p + k
        inside = b.and_(
            b.lt(b.index(row), b.index(rows)), b.lt(b.index(at), b.index(depth))
        )
        b.store(x, (m, p, 8 * i + k), b.load(a, (row, at), inside))
    with b.nest((panels, steps, 2, 8), ("qn", "qk", "qj", "ql")) as (n, p, j, k):
        column, at = 2 * n + j, 8 * p + k
        inside = b.and_(
            b.lt(b.index(column), b.index(columns)), b.lt(b.index(at), b.index(depth))
        )
        b.store(panel, (n, p, 8 * j + k), b.load(w, (at, column), inside))
    with b.nest((pairs, panels, 4), ("zm", "zn", "zt")) as place:
        b.store(total, place, 0)
    with (
        b.nest((pairs, panels), ("m", "n")) as (m, n),
        b.reduce((steps,), ("p",)) as (p,),
        b.nest((2, 2), ("i", "j")) as (i, j),
        b.reduce((8,), ("k",)) as (k,),
    ):
        one = b.cast(b.load(x, (m, p, 8 * i + k)), i32)
        other = b.cast(b.load(panel, (n, p, 8 * j + k)), i32)
        b.accumulate("add", total, (m, n, 2 * i + j), b.mul(one, other))
    with b.nest((rows, columns), ("ym", "yn")) as (m, n):
        b.store(y, (m, n), b.load(total, (m // 2, n // 2, 2 * (m % 2) + n % 2)))
    return b.build()
