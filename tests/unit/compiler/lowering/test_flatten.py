"""Linear indices and bounds of loop variables."""

from __future__ import annotations

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Symbol, symbol
from tilewright.compiler.analysis.strides import linear_index
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import For, Load, Store, walk
from tilewright.compiler.kernel.rewrite import loads, loops, stores
from tilewright.compiler.lowering.flatten import bounded_variables, flatten
from tilewright.compiler.readers.kernel_text import parse_kernel

f32 = dtypes.f32


def transposed(m, n):
    b = KernelBuilder("transpose")
    x, y = b.parameter("x", f32, (m, n)), b.result("y", f32, (n, m))
    with b.nest((n, m)) as (i, j):
        b.store(y, (i, j), b.load(x, (j, i)))
    return b.build()


def test_every_access_has_one_index_afterwards():
    flat = flatten(transposed(3, 5))
    assert [len(s.indices) for s in stores(flat.body)] == [1]
    assert [len(s.indices) for s in loads(flat.body)] == [1]


def test_positions_are_row_major():
    b = KernelBuilder("k")
    x = b.parameter("x", f32, (2, symbol("n", 1), 7))
    i, j, k = symbol("i"), symbol("j"), symbol("k")
    assert linear_index(x, (i, j, k)) == i * symbol("n") * 7 + j * 7 + k


def test_results_do_not_change():
    for m, n in ((1, 1), (3, 5), (0, 4)):
        kernel = transposed(m, n)
        x = np.random.default_rng(0).normal(size=(m, n)).astype(np.float32)
        y = np.zeros((n, m), np.float32)
        evaluate(flatten(kernel), [x, y])
        np.testing.assert_array_equal(y, x.T)


def test_scalars_get_the_index_zero():
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, ()), b.result("y", f32, ())
    b.store(y, (), b.load(x, ()))
    flat = flatten(b.build())
    (store,) = stores(flat.body)
    assert store.indices == (0,)
    out = np.zeros((), np.float32)
    evaluate(flat, [np.float32(3).reshape(()), out])
    assert out == 3


def test_loop_variables_know_their_interval():
    kernel = transposed(3, 5)
    for loop in loops(flatten(kernel).body):
        assert (loop.var.lower, loop.var.upper) == (0, loop.extent - 1)


def test_bounds_of_inner_extents_follow_from_outer_variables():
    b = KernelBuilder("k")
    y = b.result("y", f32, (100,))
    outer, inner = Symbol("a"), Symbol("b")
    from tilewright.compiler.kernel.rewrite import with_body

    a = symbolic.Expr.of_atom(outer)
    store = Store(y, (symbolic.Expr.of_atom(inner),), b.const(1.0, f32))
    body = (For(outer, 10, (For(inner, a + 1, (store,)),)),)
    kernel = with_body(b.build(), body)
    env = bounded_variables(kernel)
    assert symbolic.bounds(env["b"]) == (0, 9)


def test_divisions_that_bounds_decide_disappear():
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (64,)), b.result("y", f32, (64,))
    i, j = Symbol("i"), Symbol("j")  # no bounds: a schedule made these loops
    at = symbolic.Expr.of_atom(i) * 16 + symbolic.Expr.of_atom(j)
    from tilewright.compiler.kernel.rewrite import with_body

    index = symbolic.floordiv(at, 16) * 16 + symbolic.mod(at, 16)
    body = (For(i, 4, (For(j, 16, (Store(y, (at,), Load(x, (index,))),)),)),)
    flat = flatten(with_body(b.build(), body))
    (load,) = loads(flat.body)
    assert load.indices == (at,)
    assert len(walk(flat.body)) == 3


def test_code_for_one_number_of_a_size_has_the_number_in_its_distances():
    kernel = parse_kernel("""kernel k(read x: f32[n, c], write y: f32[c, n], *, c: 1.., n: 1..):
    if (index<i64>(c) == 3):
        for i in range(3):
            for j in range(n):
                y[i, j] = x[j, i]
    if (index<i64>(c) != 3):
        for i_2 in range(c):
            for j_2 in range(n):
                y[i_2, j_2] = x[j_2, i_2]
""")
    flat = flatten(kernel)
    known, other = (loads((part,))[0].indices[0] for part in flat.body)
    assert str(known) == "(i + 3*j)"
    assert "c" in other.names
    for c in (1, 3, 4):
        x = np.arange(5 * c, dtype=np.float32).reshape(5, c)
        y = np.zeros((c, 5), np.float32)
        evaluate(flat, [x, y], dims={"c": c, "n": 5})
        np.testing.assert_array_equal(y, x.T)


def test_code_for_a_number_at_which_a_divisor_is_nothing_keeps_the_size():
    kernel = parse_kernel("""kernel k(read x: f32[n], write y: f32[n], *, n: 1..):
    if (index<i64>(n) == 2):
        for i in range(n):
            if (index<i64>(n) > 7):
                y[i] = x[i % (n // 8)]
    if (index<i64>(n) != 2):
        for j in range(n):
            y[j] = x[j]
""")
    known, _ = (loads((part,))[0].indices[0] for part in flatten(kernel).body)
    assert str(known) == "(i % (n // 8))"
