"""How much arithmetic nodes stand for."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, symbol
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.program.work import arithmetic_work

n = symbol("n", 1)


def f32(*shape: Dim) -> TensorType:
    return TensorType(dtypes.f32, shape)


def build(op: str, *types: TensorType, **attributes: object) -> Value:
    b = GraphBuilder()
    operands = [b.input(f"x{i}", t) for i, t in enumerate(types)]
    result = b.op(op, operands, attributes)
    return result[0] if isinstance(result, tuple) else result


@pytest.mark.parametrize(
    ("value", "flops"),
    [
        (build("matmul", f32(4, 5), f32(5, 6)), 2 * 4 * 5 * 6),
        (build("matmul", f32(3, n, 5), f32(5, 6)), 2 * 3 * 5 * 6 * n),
        (
            build(
                "conv", f32(1, 8, 10, 10), f32(16, 4, 3, 3),
                strides=(1, 1), pads=(1, 1, 1, 1), dilations=(1, 1), groups=2, layout="NCHW",
            ),
            2 * 16 * 100 * 4 * 9,
        ),
        (build("add", f32(4, 5), f32(5)), 20),
        (build("exp", f32(n, 5)), 5 * n),
        (build("reduce_sum", f32(4, 5), axes=(0,), keepdims=False), 20),
        (build("softmax", f32(4, 5), axis=-1), 20),
        (build("transpose", f32(4, 5), perm=(1, 0)), 0),
        (build("reshape", f32(4, 5), shape=(20,)), 0),
    ],
)  # fmt: skip
def test_work_is_what_the_model_asks_for(value: Value, flops: Dim) -> None:
    assert value.node is not None
    assert arithmetic_work(value.node) == flops


def test_constants_are_free() -> None:
    b = GraphBuilder()
    node = b.constant(np.ones(100, np.float32)).node
    assert node is not None
    assert arithmetic_work(node) == 0
