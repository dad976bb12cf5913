"""What numbers that are none become among whole numbers: the same on every way."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.base import dtypes
from tilewright.base.dtypes import DType, f32
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder

SPECIAL = np.array([np.nan, -np.nan, np.inf, -np.inf, 0, 1, -1, 1e9, -1e9, 3.5], np.float32)


def fake_quantization(dtype: DType, zero: int | None, scale: float) -> GraphBuilder:
    """Numbers as they are stored, and what is read of that."""
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (SPECIAL.size,)))
    operands = [x, b.constant(np.array(scale, np.float32))]
    if zero is not None:
        operands.append(b.constant(np.array(zero).astype(dtype.numpy)))
    stored = b.op("quantize_linear", operands, {"axis": 0, "dtype": dtype})
    read = b.op("dequantize_linear", [stored, *operands[1:]], {"axis": 0})
    b.output("stored", stored)
    b.output("read", read)
    return b


@pytest.mark.thinned(4)
@pytest.mark.parametrize("zero", [None, 3, -7])
@pytest.mark.parametrize(
    "dtype", [dtypes.i4, dtypes.u4, dtypes.i8, dtypes.u8, dtypes.i16], ids=str
)
def test_no_number_becomes_the_least(dtype: DType, zero: int | None) -> None:
    if zero is not None and zero < 0 and not dtype.is_signed:
        zero = 15
    for scale in (0.5, -0.25):
        graph = fake_quantization(dtype, zero, scale).graph
        stored, read = evaluate(graph, [SPECIAL])
        least = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        assert stored[:2].astype(np.int64).tolist() == [least, least]
        assert (read[:2] == np.float32((least - (zero or 0)) * scale)).all()
        for level in (0, 2):
            found = tw.compile(
                fake_quantization(dtype, zero, scale).graph, opt_level=level, threads=1
            )(SPECIAL)
            np.testing.assert_array_equal(found[0].astype(int), stored.astype(int))
            np.testing.assert_array_equal(found[1], read)
