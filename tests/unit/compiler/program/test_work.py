"""How much arithmetic and traffic nodes stand for, and which nodes of the model they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright as tw
from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, symbol
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.program.work import arithmetic_work, bytes_moved, nodes_of

n = symbol("n", 1)
I64 = TensorType(dtypes.i64, (3,))


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


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (build("add", f32(4, 5), f32(5)), 4 * (20 + 5 + 20)),
        (build("matmul", f32(4, 5), f32(5, n)), 4 * (20 + 5 * n + 4 * n)),
        (build("transpose", f32(4, 5), perm=(1, 0)), 4 * 40),
        (build("gather", f32(1000, 8), I64, axis=0), 3 * 8 + 2 * 4 * 24),
        (build("gather", f32(2, 8), I64, axis=0), 3 * 8 + 4 * (16 + 24)),
        (build("slice", f32(100, 8), axes=(0,), starts=(3,), sizes=(2,)), 2 * 4 * 16),
    ],
)  # fmt: skip
def test_traffic_is_what_is_read_and_written_at_least(value: Value, count: Dim) -> None:
    assert value.node is not None
    assert bytes_moved(value.node) == count


def test_an_operand_that_is_read_twice_counts_once() -> None:
    b = GraphBuilder()
    x = b.input("x", f32(4, 5))
    node = b.add(x, x).node
    assert node is not None
    assert bytes_moved(node) == 4 * 40


def test_a_fused_lookup_reads_rows_and_names_its_nodes() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["": 21]>
    g (float[1000, 8] table, int64[3] ids) => (float[3, 8] y) {
        [lookup] rows = Gather(table, ids)
        [scaled] y = Mul(rows, rows)
    }""")
    compiled = tw.compile(model, threads=1, jobs=1).compiled
    step = compiled.parts[0].plan.steps[-1]
    assert step.nodes == ("lookup", "scaled")
    assert step.bytes_moved == 3 * 8 + 2 * 4 * 24
    node = [node for node in compiled.graph if node.regions][-1]
    assert nodes_of(node) == step.nodes
