"""The whole way from a scheduled kernel to one that prints, property-based."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.lowered import lower
from fakes.native_kernel import assert_same, needs_x86
from tilewright.base import dtypes
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Compare,
    Const,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Space,
    Store,
)
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.verifier import verify

f32 = dtypes.f32
KINDS = (LoopKind.SERIAL, LoopKind.UNROLL, LoopKind.VECTOR)


@st.composite
def tiles(draw):
    """A blocked matrix product with masked edges and loops of random kinds."""
    m, n, k = (draw(st.integers(1, 9)) for _ in range(3))
    rows, columns = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 4, 8]))
    kinds = [draw(st.sampled_from(KINDS)) for _ in range(3)]
    return m, n, k, rows, columns, kinds, draw(st.booleans())


def product(case) -> tuple[Kernel, dict[str, int]]:
    m, n, k, rows, columns, kinds, dynamic = case
    dims = {"M": m, "N": n, "K": k} if dynamic else {}
    extents = [symbol(d, 1) for d in "MNK"] if dynamic else [m, n, k]
    big_m, big_n, big_k = extents
    a, b = Buffer("a", f32, (big_m, big_k)), Buffer("b", f32, (big_k, big_n))
    c = Buffer("c", f32, (big_m, big_n))
    tile = Buffer("t", f32, (rows, columns), Space.REGISTER)
    names = iter("rstuvw")

    def over(make, reduction=()):
        i, j = next(names), next(names)
        body = make(symbol(i), symbol(j))
        inner = For(Symbol(j), columns, body, kinds[1])
        return For(Symbol(i), rows, (inner,), kinds[0])

    x, y, z = symbol("x"), symbol("y"), symbol("z")

    def inside(i, j):
        left = Compare("lt", Index(x * rows + i), Index(big_m))
        right = Compare("lt", Index(y * columns + j), Index(big_n))
        return Binary("and", left, right, dtypes.bool_)

    def step(i, j):
        left = Load(
            a, (x * rows + i, z), mask=Compare("lt", Index(x * rows + i), Index(big_m))
        )
        right = Load(
            b,
            (z, y * columns + j),
            mask=Compare("lt", Index(y * columns + j), Index(big_n)),
        )
        total = Binary("add", Load(tile, (i, j)), Binary("mul", left, right, f32), f32)
        return (Store(tile, (i, j), total),)

    body = (
        over(lambda i, j: (Store(tile, (i, j), Const(0.0, f32)),)),
        For(Symbol("z"), big_k, (over(step),), reduction=True),
        over(lambda i, j: (If(inside(i, j), (Store(c, (x * rows + i, y * columns + j), Load(tile, (i, j))),)),)),
    )  # fmt: skip
    grid_x = (big_m + rows - 1) // rows
    grid_y = (big_n + columns - 1) // columns
    nest = For(Symbol("y"), grid_y, body, LoopKind.GRID_Y)
    parameters = (
        Parameter(a, AccessMode.READ),
        Parameter(b, AccessMode.READ),
        Parameter(c, AccessMode.WRITE),
    )
    symbols = tuple(Symbol(d, 1) for d in "MNK") if dynamic else ()
    return (
        Kernel(
            "k",
            parameters,
            symbols,
            (tile,),
            (For(Symbol("x"), grid_x, (nest,), LoopKind.GRID_X),),
        ),
        dims,
    )


def arrays_of(case) -> list[np.ndarray]:
    m, n, k = case[:3]
    rng = np.random.default_rng(m * 100 + n * 10 + k)
    integers = [rng.integers(-5, 5, shape) for shape in ((m, k), (k, n), (m, n))]
    return [a.astype(np.float32) for a in integers]


@given(tiles())
def test_lowering_keeps_what_the_evaluator_computes(case):
    kernel, dims = product(case)
    lowered = lower(kernel, Target.level("v3"))
    verify(lowered)
    kinds = {loop.kind for loop in loops(lowered.body)}
    assert not kinds & {LoopKind.UNROLL, LoopKind.VECTOR}
    want, got = arrays_of(case), arrays_of(case)
    evaluate(kernel, want, dims)
    evaluate(lowered, got, dims)
    np.testing.assert_array_equal(got[2], want[2])
    np.testing.assert_array_equal(want[2], want[0] @ want[1])


@needs_x86
@settings(max_examples=12)
@given(tiles())
def test_machine_code_computes_what_the_evaluator_computes(case):
    kernel, dims = product(case)
    assert_same(kernel, arrays_of(case), dims)
