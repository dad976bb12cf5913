"""Threads of a workgroup: barriers order them, races and parted threads are named."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.thread_kernels import (
    LAST,
    OWN,
    SHARED,
    THREADS,
    G,
    T,
    X,
    Y,
    loop,
    rows,
    summed,
    turned,
    workgroups,
)
from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i32, i64
from tilewright.base.errors import InternalError
from tilewright.base.symbolic import Symbol
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Barrier,
    Buffer,
    Compare,
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
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify


def test_a_barrier_lets_threads_read_what_others_stored():
    kernel = turned(Barrier())
    verify(kernel)
    x, y = rows()
    evaluate(kernel, [x, y])
    np.testing.assert_array_equal(y, x[:, ::-1])
    assert "# thread.x" in kernel_text(kernel)
    assert "        barrier" in kernel_text(kernel)


def test_without_it_they_race_by_name():
    kernel = turned()
    verify(kernel)
    with pytest.raises(
        InternalError,
        match=r"race on shared: f32\[8\]@workgroup at element 7: read by thread \(t=0\)|"
        r"at element \d: (read|written) by thread \(t=\d\), (read|written) by \(t=\d\), without a barrier",
    ):
        evaluate(kernel, rows())


def test_two_threads_may_not_store_one_element():
    kernel = workgroups(Store(Y, (G, 0), Load(X, (G, T))))
    with pytest.raises(
        InternalError, match=r"race on y.*written by thread \(t=1\), written by \(t=0\)"
    ):
        evaluate(kernel, rows())


def test_storing_what_several_have_read_is_a_race():
    kernel = workgroups(
        Store(OWN, (0,), Load(SHARED, (0,))),
        If(Compare("eq", Index(T), Index(7, i64)), (Store(SHARED, (0,), Load(X, (G, T))),)),
    )
    with pytest.raises(InternalError, match=r"written by thread \(t=7\), read by others"):
        evaluate(kernel, rows())


def test_registers_are_of_one_thread():
    kernel = workgroups(
        Store(OWN, (0,), Load(X, (G, T))),
        Barrier(),
        Store(Y, (G, T), e.binary("add", Load(OWN, (0,)), 1.0)),
    )
    x, y = rows()
    evaluate(kernel, [x, y])
    np.testing.assert_array_equal(y, x + 1)


def test_a_loop_of_barriers_adds_up_a_tree():
    kernel = summed()
    verify(kernel)
    x, y = rows()
    evaluate(kernel, [x, y])
    np.testing.assert_array_equal(y, np.repeat(x.sum(1, keepdims=True), THREADS, 1))


def test_threads_that_part_at_a_barrier_are_named():
    flags = Buffer("x", i32, (3, THREADS))
    chosen = Compare("gt", Load(flags, (G, T)), e.const(0, i32))
    threads = loop("t", THREADS, If(chosen, (Barrier(),)), kind=LoopKind.THREAD_X)
    kernel = Kernel(
        "parts",
        (Parameter(flags, AccessMode.READ),),
        (),
        (),
        (loop("g", 3, threads, kind=LoopKind.GRID_X),),
    )
    x = np.ones((3, THREADS), np.int32)
    evaluate(kernel, [x])
    x[1, 5] = 0
    with pytest.raises(
        InternalError,
        match=r"divergent control flow: thread \(t=5\) has ended, \(t=0\) waits at one",
    ):
        evaluate(kernel, [x])


@pytest.mark.parametrize(
    ("message", "kernel"),
    [
        ("a barrier outside of a workgroup's threads", Kernel("k", (), (), (), (Barrier(),))),
        (
            "divergent control flow: threads differ in 't'",
            workgroups(If(Compare("lt", Index(T), Index(3, i64)), (Barrier(),))),
        ),
        ("divergent control flow: threads differ in 't'", workgroups(For(Symbol("k"), T, (Barrier(),)))),
        ("lanes cannot wait", workgroups(loop("k", 4, Barrier(), kind=LoopKind.VECTOR))),
        (
            "a loop over threads inside other code",
            workgroups(loop("k", 4, Barrier(), kind=LoopKind.THREAD_Y), Barrier()),
        ),
        ("two loops of kind thread.x", workgroups(loop("k", 4, Barrier(), kind=LoopKind.THREAD_X))),
        (
            "a grid loop inside other code",
            workgroups(loop("k", 4, Barrier(), kind=LoopKind.GRID_Y)),
        ),
        (
            "a constant number of threads",
            Kernel("k", (), (Symbol("n", 1),), (),
                   (For(Symbol("t"), symbolic.symbol("n", 1), (), LoopKind.THREAD_X),)),
        ),
    ],
)  # fmt: skip
def test_barriers_and_threads_have_their_places(message: str, kernel: Kernel) -> None:
    with pytest.raises(InternalError, match=message):
        verify(kernel)


def test_threads_of_two_axes_are_one_workgroup():
    row, column = symbolic.symbol("r", 0, 2), T
    grid = Buffer("tile", f32, (3, THREADS), Space.WORKGROUP)
    inner = loop(
        "t", THREADS,
        Store(grid, (row, column), Load(X, (row, column))),
        Barrier(),
        Store(Y, (row, column), Load(grid, (2 - row, LAST - column))),
        kind=LoopKind.THREAD_X,
    )  # fmt: skip
    outer = loop("r", 3, inner, kind=LoopKind.THREAD_Y)
    parameters = (Parameter(X, AccessMode.READ), Parameter(Y, AccessMode.WRITE))
    kernel = Kernel("tile", parameters, (), (grid,), (outer,))
    verify(kernel)
    x, y = rows()
    evaluate(kernel, [x, y])
    np.testing.assert_array_equal(y, x[::-1, ::-1])
