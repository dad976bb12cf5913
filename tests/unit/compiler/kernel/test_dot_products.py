"""The functions of words mean what the instructions of machines do."""

import numpy as np

from tilewright.base import dtypes
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.dot_products import ADDING, dot_of_bytes
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import Call, Intrinsic

RNG = np.random.default_rng(0)


def words(count):
    return RNG.integers(-(1 << 31), 1 << 31, count).astype(np.int32)


def run(apply, *arrays):
    """What is applied to every element, by the evaluator."""
    b = KernelBuilder("apply")
    buffers = [b.parameter(f"x{i}", dtypes.i32, a.shape) for i, a in enumerate(arrays)]
    out = b.result("out", dtypes.i32, arrays[0].shape)
    with b.nest(arrays[0].shape) as place:
        b.store(out, place, apply(tuple(b.load(x, place) for x in buffers)))
    result = np.zeros(arrays[0].shape, np.int32)
    evaluate(b.build(), [*arrays, result])
    return result


def dot(operands):
    return Call(dot_of_bytes(), operands)


def product(left, right):
    unsigned = left.view(np.uint8).reshape(-1, 4).astype(np.int64)
    signed = right.view(np.int8).reshape(-1, 4).astype(np.int64)
    return (unsigned * signed).sum(-1)


def test_bytes_of_words_are_multiplied_unsigned_by_signed():
    left, right = words(500), words(500)
    np.testing.assert_array_equal(run(dot, left, right), product(left, right))


def test_no_sum_of_four_products_saturates():
    left = np.full(1, -1, np.int32)
    right = np.full(1, 0x7F7F7F7F, np.int32)
    assert run(dot, left, right)[0] == 4 * 255 * 127


def test_what_adds_to_a_total_wraps():
    left, right, total = words(500), words(500), words(500)
    row = ADDING[dot_of_bytes().name]
    found = run(lambda operands: Intrinsic(row, operands), total, left, right)
    np.testing.assert_array_equal(found, (product(left, right) + total).astype(np.int32))
