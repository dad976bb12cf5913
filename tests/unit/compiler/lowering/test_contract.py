"""Fused multiply-adds appear in reductions and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import Fma, Kernel
from tilewright.compiler.kernel.rewrite import expressions
from tilewright.compiler.lowering import machine
from tilewright.compiler.lowering.contract import contract

f32 = dtypes.f32


def dot(*, reduction: bool, dtype=f32, product_first: bool = False) -> Kernel:
    b = KernelBuilder("dot")
    x, y = b.parameter("x", dtype, (9,)), b.parameter("y", dtype, (9,))
    out = b.result("out", dtype, (1,))
    with b.loop(9, "k", reduction=reduction) as k:
        product = b.mul(b.load(x, (k,)), b.load(y, (k,)))
        total = b.load(out, (0,))
        pair = (product, total) if product_first else (total, product)
        b.store(out, (0,), b.add(*pair))
    return b.build()


def fused(kernel: Kernel) -> int:
    return sum(isinstance(value, Fma) for value in expressions(kernel.body))


@pytest.mark.parametrize("product_first", [False, True])
def test_a_sum_of_products_in_a_reduction_is_fused(product_first):
    kernel = contract(dot(reduction=True, product_first=product_first))
    assert fused(kernel) == 1
    x, y = np.arange(9, dtype=np.float32), np.ones(9, np.float32)
    out = np.array([100], np.float32)
    evaluate(kernel, [x, y, out])
    assert out[0] == 136


def test_outside_reductions_products_are_rounded():
    assert fused(contract(dot(reduction=False))) == 0


def test_integers_are_left_alone():
    assert fused(contract(dot(reduction=True, dtype=dtypes.i32))) == 0


def test_targets_without_the_instruction_keep_two_operations():
    kernel = dot(reduction=True)
    assert fused(machine.lower(kernel, Target.level("v2"))) == 0
    assert fused(machine.lower(kernel, Target.level("v3"))) == 1
