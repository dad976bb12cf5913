"""Which registers have a value where paths meet, against the kernel evaluator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fakes.lowered import lower
from fakes.native_kernel import assert_same, needs_x86, targets_here
from tilewright.base.dtypes import f32
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, Space
from tilewright.compiler.kernel.rewrite import replace_buffers, with_body
from tilewright.compiler.printers.llvm_text.function import emit_kernel

pytestmark = needs_x86


def in_registers(kernel: Kernel) -> Kernel:
    """The kernel with its temporaries in registers."""
    own = {b: replace(b, space=Space.REGISTER) for b in kernel.locals}
    return with_body(kernel, replace_buffers(kernel.body, own), locals_=own.values())


def code_of(kernel: Kernel) -> str:
    target = targets_here()[0]
    return emit_kernel(lower(kernel, target), target).text


def test_registers_that_nothing_reads_any_more_are_not_joined() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (3,)), b.result("y", f32, (2,))
    own, late = b.temporary(f32, ()), b.temporary(f32, ())
    b.store(y, (0,), 0)
    b.store(late, (), 0)
    negative = b.compare("lt", b.load(x, (0,)), b.const(0.0, f32))
    with b.when(negative):
        b.store(own, (), b.load(x, (1,)))
        b.store(y, (0,), b.load(own, ()))
    with b.when(negative):
        b.store(late, (), b.load(x, (2,)))
    b.store(y, (1,), b.load(late, ()))
    kernel = in_registers(b.build())
    for first in (-1, 1):
        assert_same(kernel, [np.array([first, 2, 3], np.float32), np.zeros(2, np.float32)])
    assert code_of(kernel).count("phi float") == 1


def test_registers_that_a_further_iteration_reads_are_joined() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (40,)), b.result("y", f32, (40,))
    last = b.temporary(f32, ())
    b.store(last, (), 0)
    with b.nest((40,), ("i",)) as (i,):
        b.store(y, (i,), 0)
        with b.when(b.compare("lt", b.load(x, (i,)), b.const(0.0, f32))):
            b.store(y, (i,), b.load(last, ()))
        with b.when(b.compare("ge", b.load(x, (i,)), b.const(0.0, f32))):
            b.store(last, (), b.load(x, (i,)))
    data = np.random.default_rng(0).integers(-9, 9, 40).astype(np.float32)
    assert_same(in_registers(b.build()), [data, np.zeros(40, np.float32)])
