"""Temporaries in device memory become parameters; everything else stays."""

from __future__ import annotations

import numpy as np

from tilewright.base.dtypes import f32
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import AccessMode, Kernel, Space
from tilewright.compiler.lowering.promote_scratch import promote_scratch


def kernel(temporaries: int) -> Kernel:
    """y = 2 * 2 * … * x through `temporaries` buffers, and a table of ones."""
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (5,)), b.result("y", f32, (5,))
    ones = b.table((1.0,) * 5, f32, (5,))
    source = x
    for target in [*(b.temporary(f32, (5,)) for _ in range(temporaries)), y]:
        with b.nest((5,)) as i:
            b.store(target, i, b.mul(b.mul(b.load(source, i), 2), b.load(ones, i)))
        source = target
    return b.build()


def test_a_kernel_without_scratch_is_returned_as_it_is() -> None:
    plain = kernel(0)
    assert promote_scratch(plain) is plain


def test_scratch_follows_the_results_in_order_and_may_be_read_and_written() -> None:
    before = kernel(2)
    after = promote_scratch(before)
    scratch = [b for b in before.locals if b.space is Space.DEVICE]
    assert [p.buffer for p in after.parameters[2:]] == scratch
    assert {p.access for p in after.parameters[2:]} == {AccessMode.READ_WRITE}
    assert [b.space for b in after.locals] == [Space.CONSTANT]
    assert after.parameters[:2] == before.parameters
    assert promote_scratch(after) is after


def test_the_kernel_computes_the_same() -> None:
    x = np.arange(5, dtype=np.float32)
    results = []
    for made in (kernel(2), promote_scratch(kernel(2))):
        arrays = [x, *(np.full(5, np.nan, np.float32) for _ in made.parameters[1:])]
        evaluate(made, arrays)
        results.append(arrays[1])
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[1], 8 * x)
