"""UNROLL loops become copies; results stay."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fakes.growth import grows_in_proportion
from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Symbol, symbol
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Body,
    Buffer,
    Compare,
    Const,
    Expression,
    Fma,
    For,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Space,
    Store,
    walk,
)
from tilewright.compiler.kernel.rewrite import as_index, loops, stores
from tilewright.compiler.lowering import unroll as unroll_file
from tilewright.compiler.lowering.flatten import flatten
from tilewright.compiler.lowering.unroll import unroll
from tilewright.compiler.lowering.vectorize import vectorize

f32, i32 = dtypes.f32, dtypes.i32
X, OUT = Buffer("x", f32, (64,)), Buffer("out", f32, (64,))
i, j, k = symbol("i"), symbol("j"), symbol("k")
UNROLL, SERIAL = LoopKind.UNROLL, LoopKind.SERIAL


def loop(name, extent, *body, kind=UNROLL):
    return For(Symbol(name), extent, tuple(body), kind)


def kernel_of(body, locals_=()) -> Kernel:
    parameters = (Parameter(X, AccessMode.READ), Parameter(OUT, AccessMode.READ_WRITE))
    return Kernel("k", parameters, (), tuple(locals_), tuple(body))


def expanded(*body, locals_=()) -> Kernel:
    kernel = flatten(kernel_of(body, locals_))
    result = unroll(kernel)
    x = np.random.default_rng(0).normal(size=64).astype(np.float32)
    want, got = np.zeros(64, np.float32), np.zeros(64, np.float32)
    evaluate(kernel, [x, want])
    evaluate(result, [x, got])
    np.testing.assert_array_equal(got, want)
    return result


def test_a_loop_becomes_one_copy_per_step():
    result = expanded(loop("i", 5, Store(OUT, (i * 3,), Load(X, (i + 2,)))))
    assert [s.indices for s in stores(result.body)] == [(0,), (3,), (6,), (9,), (12,)]
    assert loops(result.body) == []


def test_nested_loops_expand_in_order():
    result = expanded(loop("i", 2, loop("j", 3, Store(OUT, (i * 8 + j,), Load(X, (j,))))))
    assert [s.indices[0] for s in stores(result.body)] == [0, 1, 2, 8, 9, 10]


def test_serial_loops_inside_are_copied_and_renamed():
    result = expanded(
        loop("i", 2, loop("j", 4, Store(OUT, (i * 4 + j,), Load(X, (j,))), kind=SERIAL))
    )
    assert [s.kind for s in loops(result.body)] == [SERIAL, SERIAL]
    assert [str(s.indices[0]) for s in stores(result.body)] == ["j", "(j_2 + 4)"]


def test_an_extent_may_depend_on_an_expanded_variable():
    result = expanded(
        loop(
            "i", 3, loop("j", i * 2, Store(OUT, (i * 10 + j,), Load(X, (j,))), kind=SERIAL)
        )
    )
    assert [s.extent for s in loops(result.body)] == [2, 4]


def test_quotients_of_expanded_variables_are_computed():
    at = symbolic.floordiv(i, 2) * 8 + symbolic.mod(i, 2)
    result = expanded(loop("i", 6, Store(OUT, (i,), Load(X, (at,)))))
    assert [s.value.indices[0] for s in stores(result.body)] == [0, 1, 8, 9, 16, 17]


def test_conditions_on_expanded_variables_are_decided():
    condition = Compare("lt", Index(i), Index(2))
    result = expanded(loop("i", 5, If(condition, (Store(OUT, (i,), Load(X, (i,))),))))
    assert [type(s) for s in result.body] == [Store, Store]


def test_indices_loaded_from_memory_follow_the_variable():
    table = Buffer("t", i32, (4,), Space.CONSTANT, (7, 3, 9, 1))
    at = as_index(Load(table, (i,)))
    result = expanded(loop("i", 4, Store(OUT, (i,), Load(X, (at,)))), locals_=(table,))
    assert len(stores(result.body)) == 4
    assert "t[2]" in str(stores(result.body)[2].value.indices[0])


def test_what_does_not_change_is_shared():
    value = Binary("add", Load(X, (0,)), Load(X, (i,)), f32)
    result = expanded(loop("i", 2, loop("j", 3, Store(OUT, (i * 3 + j,), value))))
    first, second, third, fourth, *_ = stores(result.body)
    assert first.value is second.value is third.value
    assert fourth.value is not first.value
    assert fourth.value.left is first.value.left


def test_a_loop_of_unknown_extent_becomes_serial():
    n = symbol("n", 1)
    kernel = Kernel(
        "k", (Parameter(X, AccessMode.READ), Parameter(OUT, AccessMode.WRITE)), (Symbol("n", 1),), (),
        (loop("i", n, Store(OUT, (i,), Load(X, (i,)))),),
    )  # fmt: skip
    result = unroll(flatten(kernel))
    assert [s.kind for s in loops(result.body)] == [SERIAL]


def test_a_loop_that_would_explode_becomes_serial(monkeypatch):
    monkeypatch.setattr(unroll_file, "MAX_STATEMENTS", 10)
    result = expanded(loop("i", 8, loop("j", 8, Store(OUT, (i * 8 + j,), Load(X, (j,))))))
    assert [(s.kind, s.extent) for s in loops(result.body)] == [(SERIAL, 8)]
    assert len(stores(result.body)) == 8


def micro_kernel(rows: int, vectors: int, steps: int) -> Kernel:
    a, b = Buffer("a", f32, (rows, 64)), Buffer("b", f32, (64, vectors * 16))
    tile = Buffer("t", f32, (rows, vectors, 16), Space.REGISTER)
    v = symbol("v")

    def tiled(value: Expression) -> Body:
        store = Store(tile, (i, j, v), value)
        lanes = For(Symbol("v"), 16, (store,), LoopKind.VECTOR)
        return (loop("i", rows, loop("j", vectors, lanes)),)

    step = symbol("o") * steps + k
    product = Fma(
        Load(a, (i, step)), Load(b, (step, j * 16 + v)), Load(tile, (i, j, v)), f32
    )
    body = (
        *tiled(Const(0.0, f32)),
        For(Symbol("o"), 64 // steps, (loop("k", steps, *tiled(product)),), reduction=True),
    )
    parameters = (Parameter(a, AccessMode.READ), Parameter(b, AccessMode.READ))
    return Kernel("mm", parameters, (), (tile,), body)


def test_register_tiles_end_with_constant_indices():
    result = unroll(vectorize(flatten(micro_kernel(3, 2, 2))))
    (tile,) = result.locals
    touched = [s for s in stores(result.body) if s.buffer is tile]
    assert len(touched) == 6 + 12
    assert all(isinstance(s.indices[0], int) for s in touched)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["rows", "vectors", "steps"])
def test_a_large_tile_takes_time_in_proportion_to_each_side(side: str):
    def work(size: int) -> None:
        sides = {"rows": 2, "vectors": 2, "steps": 4, side: size}
        lowered = unroll(vectorize(flatten(micro_kernel(**sides))))
        assert len(walk(lowered.body)) > math.prod(sides.values())

    assert grows_in_proportion(work, 2, 64)
