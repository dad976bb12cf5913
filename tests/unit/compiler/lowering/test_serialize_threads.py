"""Threads as loops compute what threads do."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.native_kernel import NativeKernel, needs_x86
from fakes.thread_kernels import (
    OWN,
    SHARED,
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
from tilewright.base.dtypes import f32, i32
from tilewright.base.errors import InternalError
from tilewright.base.target import Target
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.grid import THREAD_KINDS
from tilewright.compiler.kernel.ir import (
    Barrier,
    Buffer,
    Compare,
    If,
    Kernel,
    Load,
    Space,
    Store,
    walk,
)
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.serialize_threads import serialize_threads


def kept_across() -> Kernel:
    """A register that is stored before a barrier and read after it, in a loop."""
    return workgroups(
        Store(OWN, (0,), e.const(0.0, f32)),
        loop(
            "k",
            3,
            Store(SHARED, (T,), e.binary("add", Load(OWN, (0,)), Load(X, (G, T)))),
            Barrier(),
            Store(OWN, (0,), Load(SHARED, (7 - T,))),
            Barrier(),
        ),
        Store(Y, (G, T), Load(OWN, (0,))),
    )


KERNELS = {"turned": turned(Barrier()), "summed": summed(), "kept across": kept_across()}


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_loops_compute_what_threads_do(kernel: Kernel) -> None:
    verify(kernel)
    lowered = serialize_threads(kernel)
    verify(lowered)
    assert not any(isinstance(s, Barrier) for s in walk(lowered.body))
    assert not any(s.kind in THREAD_KINDS for s in loops(lowered.body))
    (x, wanted), (_, found) = rows(), rows()
    evaluate(kernel, [x, wanted])
    evaluate(lowered, [x, found])
    np.testing.assert_array_equal(found, wanted)


@needs_x86
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_machine_code_computes_what_threads_do(kernel: Kernel) -> None:
    (x, wanted), (_, found) = rows(), rows()
    evaluate(kernel, [x, wanted])
    NativeKernel(kernel, Target.host())([x, found])
    np.testing.assert_array_equal(found, wanted)


def test_only_registers_that_live_across_a_barrier_get_an_element_for_each_thread():
    lowered = serialize_threads(kept_across())
    own = next(b for b in lowered.locals if b.name == "own")
    assert (own.space, own.shape) == (Space.WORKGROUP, (8, 1))
    alone = workgroups(
        Store(SHARED, (T,), Load(X, (G, T))),
        Barrier(),
        Store(OWN, (0,), Load(SHARED, (7 - T,))),
        Store(Y, (G, T), Load(OWN, (0,))),
    )
    own = next(b for b in serialize_threads(alone).locals if b.name == "own")
    assert own.space is Space.REGISTER


def test_kernels_without_threads_are_left_alone():
    kernel = Kernel("k", (), (), (), ())
    assert serialize_threads(kernel) is kernel


@pytest.mark.parametrize("compared", ["a number", "what all threads read"])
def test_a_barrier_where_threads_differ_is_refused(compared):
    flag, common = Buffer("flag", i32, (1,), Space.REGISTER), Buffer("common", i32, (1,))
    other = e.const(0, i32) if compared == "a number" else Load(common, (0,))
    chosen = Compare("gt", Load(flag, (0,)), other)
    kernel = workgroups(Store(Y, (G, T), Load(X, (G, T))), If(chosen, (Barrier(),)))
    with pytest.raises(InternalError, match="threads differ in the conditional around it"):
        serialize_threads(kernel)
