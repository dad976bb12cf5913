"""Fused multiply-adds appear in reductions and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.lowered import lower
from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.dot_products import (
    dot_of_bytes,
    dot_of_long_words,
    dot_of_pairs,
)
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import Call, Fma, Intrinsic, Kernel
from tilewright.compiler.kernel.rewrite import expressions
from tilewright.compiler.lowering.fuse_multiply_add import fuse_multiply_add

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
    kernel = fuse_multiply_add(dot(reduction=True, product_first=product_first))
    assert fused(kernel) == 1
    x, y = np.arange(9, dtype=np.float32), np.ones(9, np.float32)
    out = np.array([100], np.float32)
    evaluate(kernel, [x, y, out])
    assert out[0] == 136


def test_outside_reductions_products_are_rounded():
    assert fused(fuse_multiply_add(dot(reduction=False))) == 0


def test_integers_are_left_alone():
    assert fused(fuse_multiply_add(dot(reduction=True, dtype=dtypes.i32))) == 0


def test_floats_are_left_where_the_machine_does_not_fuse_them():
    assert fused(fuse_multiply_add(dot(reduction=True), floats=False)) == 0


@pytest.mark.parametrize("reduction", [False, True])
@pytest.mark.parametrize(
    ("function", "word", "total", "wanted"),
    [
        (dot_of_bytes, dtypes.i32, dtypes.i32, ["vpdpbusd"]),
        (dot_of_long_words, dtypes.i64, dtypes.i32, ["vpdpbusd", "vpdpbusd"]),
        (dot_of_pairs, dtypes.i32, f32, ["vdpbf16ps"]),
    ],
)
def test_sums_of_products_of_words_add_to_their_total(
    function, word, total, wanted, reduction
):
    """Those of floats in reductions only, where sums may be rounded otherwise."""
    b = KernelBuilder("dot")
    x, y = (b.parameter(name, word, (9,)) for name in "xy")
    out = b.result("out", total, (1,))
    with b.loop(9, "k", reduction=reduction) as k:
        product = Call(function(), (b.load(x, (k,)), b.load(y, (k,))))
        b.store(out, (0,), b.add(b.load(out, (0,)), product))
    kernel = fuse_multiply_add(b.build())
    found = list(expressions(kernel.body))
    fused_words = reduction or total.is_integer
    assert any(isinstance(v, Call) for v in found) is not fused_words
    names = [v.instruction.name for v in found if isinstance(v, Intrinsic)]
    assert names == (wanted if fused_words else [])


def test_sums_of_bytes_inside_of_a_value_add_up_in_turn():
    """What is scaled afterwards: four products in a chain of one instruction each, and no other multiplication."""
    b = KernelBuilder("scaled")
    x, y = (b.parameter(name, dtypes.i32, (4,)) for name in "xy")
    out = b.result("out", f32, (1,))
    value = None
    for k in range(4):
        product = Call(dot_of_bytes(), (b.load(x, (k,)), b.load(y, (k,))))
        value = product if value is None else b.add(value, product)
    with b.loop(1, "i", reduction=True) as i:
        scaled = b.mul(b.cast(b.add(value, 7), f32), 0.5)
        b.store(out, (i,), b.add(b.load(out, (i,)), scaled))
    plain = b.build()
    kernel = fuse_multiply_add(plain)
    found = list(expressions(kernel.body))
    assert not any(isinstance(v, Call) for v in found)
    assert sum(isinstance(v, Intrinsic) for v in found) == 4
    arrays = [np.array([0x01FF0302, -5, 77, -(1 << 31)], np.int32)] * 2
    results = [np.zeros(1, np.float32) for _ in range(2)]
    for each, result in zip((plain, kernel), results, strict=True):
        evaluate(each, [*arrays, result])
    assert results[0][0] == results[1][0] != 0


def test_targets_without_the_instruction_keep_two_operations():
    kernel = dot(reduction=True)
    assert fused(lower(kernel, Target.level("v2"))) == 0
    assert fused(lower(kernel, Target.level("v3"))) == 1
