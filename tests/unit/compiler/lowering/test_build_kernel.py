from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from fakes.region_nodes import make_region_node
from tilewright.base import symbolic
from tilewright.base.dtypes import f16, f32, i64
from tilewright.base.errors import InternalError
from tilewright.compiler.graph.evaluator import evaluate as evaluate_graph
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import AccessMode, Space
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build, splat_value
from tilewright.compiler.ops.builder import GraphBuilder, make_node

N = symbolic.symbol("N", 1)


def fuse(region: Graph):
    outer = [Value(v.type, v.name) for v in region.inputs]
    return make_region_node("fused", outer, [region], [v.type for v in region.outputs])


def check(region: Graph, arrays: Sequence[np.ndarray], dims: dict[str, int] | None = None):
    """The kernel of the region gives what the region gives; returns the kernel."""
    kernel = build_kernel(fuse(region), "fused")
    verify(kernel)
    wanted = evaluate_graph(region, list(arrays))
    outputs = [np.zeros(w.shape, w.dtype) for w in wanted]
    evaluate(kernel, [*arrays, *outputs], dims)
    for actual, expected in zip(outputs, wanted, strict=True):
        np.testing.assert_allclose(
            actual.astype(np.float64), expected.astype(np.float64), rtol=1e-3, atol=1e-5
        )
    return kernel


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_a_single_op_has_a_parameter_per_operand_and_result():
    x, w = Value(TensorType(f32, (N, 3)), "x.1"), Value(TensorType(f32, (3, 4)), "0")
    kernel = build_kernel(make_node("matmul", [x, w], names=["y/out"]), "mm")
    assert [p.buffer.name for p in kernel.parameters] == ["in0", "in1", "out0"]
    assert [p.access for p in kernel.parameters] == [
        AccessMode.READ,
        AccessMode.READ,
        AccessMode.WRITE,
    ]
    assert [s.name for s in kernel.dims] == ["N"]


def test_absent_operands_have_no_parameter():
    x = Value(TensorType(f32, (2, 3)), "x")
    bias = Value(TensorType(f32, (3,)), "bias")
    kernel = build_kernel(make_node("layer_norm", [x, None, bias]), "norm")
    assert [p.buffer.name for p in kernel.parameters] == ["in0", "in2", "out0"]


def test_an_epilogue_follows_its_contraction_through_temporaries():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (N, 5)))
    w = b.input("w", TensorType(f32, (5, 7)))
    bias = b.input("bias", TensorType(f32, (7,)))
    b.output("y", b.relu(b.add(b.matmul(x, w), bias)))
    kernel = check(b.graph, [rand(3, 5), rand(5, 7), rand(7)], {"N": 3})
    assert [t.name for t in kernel.locals] == ["matmul", "acc", "add"]
    assert len(kernel.body) == 4
    assert all(t.space is Space.DEVICE for t in kernel.locals)


def test_splat_constants_become_immediates_and_others_tables():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (2, 3)))
    scaled = b.mul(x, b.constant(np.full((2, 3), 1.5, np.float32)))
    b.output("y", b.add(scaled, b.constant(np.float32([1, 2, 3]), "shift")))
    kernel = check(b.graph, [rand(2, 3)])
    assert "* 1.5" in kernel_text(kernel)
    assert [(t.name, t.space) for t in kernel.locals if t.data is not None] == [
        ("table", Space.CONSTANT)
    ]
    assert len(kernel.parameters) == 2


def test_large_tables_are_refused():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (5000,)))
    b.output("y", b.add(x, b.constant(np.arange(5000, dtype=np.float32))))
    with pytest.raises(InternalError, match="too large for a table"):
        build_kernel(fuse(b.graph), "big")


def test_several_outputs_and_outputs_that_are_also_read():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (4, 3)))
    e = b.exp(x)
    b.output("e", e)
    b.output("s", b.reduce_sum(e, axes=(1,)))
    kernel = check(b.graph, [rand(4, 3)])
    assert [p.access for p in kernel.parameters] == [
        AccessMode.READ,
        AccessMode.READ_WRITE,
        AccessMode.READ_WRITE,
    ]


def test_an_output_that_is_an_input_or_a_repeat_is_copied():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (3,)))
    y = b.neg(x)
    for name, value in (("a", y), ("b", y), ("c", x)):
        b.output(name, value)
    check(b.graph, [rand(3)])


def test_views_and_movement_inside_a_region():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (2, N, 12)))
    heads = b.reshape(x, shape=(2, N, 3, 4))
    moved = b.transpose(heads, perm=(0, 2, 1, 3))
    merged = b.reshape(b.transpose(b.neg(moved), perm=(0, 2, 1, 3)), shape=(2, N, 12))
    b.output("y", b.add(merged, x))
    kernel = check(b.graph, [rand(2, 5, 12)], {"N": 5})
    text = kernel_text(kernel)
    # Splitting a dimension is affine, merging divides by the (constant) inner size only.
    assert re.search(r"in0\[i0, i1, (4\*i2 \+ i3|i3 \+ 4\*i2)\]", text)
    assert "// N" not in text
    assert "% N" not in text


def test_a_16_bit_chain_rounds_between_ops():
    b = GraphBuilder()
    x = b.input("x", TensorType(f16, (33,)))
    b.output("y", b.exp(b.add(x, b.constant(np.float16(0.1)))))
    check(b.graph, [rand(33).astype(np.float16)])


def test_a_normalisation_with_its_residual():
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (N, 9)))
    r = b.input("r", TensorType(f32, (N, 9)))
    g = b.input("g", TensorType(f32, (9,)))
    b.output("y", b.layer_norm(b.add(x, r), g, None))
    check(b.graph, [rand(4, 9), rand(4, 9), rand(9)], {"N": 4})


def test_symbols_that_stand_only_in_attributes_become_dims():
    node = make_node("shape_tensor", [], {"values": (N, N * 2 + 1)})
    kernel = build_kernel(node, "shape")
    assert [s.name for s in kernel.dims] == ["N"]
    out = np.zeros(2, np.int64)
    evaluate(kernel, [out], {"N": 5})
    assert out.tolist() == [5, 11]


@pytest.mark.parametrize("place", range(4))
def test_borders_of_which_data_decides_one_are_filled(place: int):
    x = Value(TensorType(f32, (3, 4)), "x")
    pads = [0, 0, 0, 0]
    pads[place] = symbolic.symbol("border", 0)
    kernel = build_kernel(make_node("pad", [x], {"pads": tuple(pads)}), "pad")
    verify(kernel)
    array = rand(3, 4)
    widths = np.where(np.arange(4) == place, 2, 0).reshape(2, 2).T
    wanted = np.pad(array, widths)
    output = np.ones_like(wanted)
    evaluate(kernel, [array, output], {"border": 2})
    np.testing.assert_array_equal(output, wanted)


def test_an_index_from_data_survives_fusion():
    b = GraphBuilder()
    table = b.input("table", TensorType(f32, (11, 4)))
    ids = b.input("ids", TensorType(i64, (2, N)))
    b.output("y", b.mul(b.gather(table, b.add(ids, b.constant(np.int64(1)))), b.constant(
        np.float32(2))))  # fmt: skip
    check(b.graph, [rand(11, 4), np.asarray([[0, 3, 9], [-2, 1, 5]])], {"N": 3})


def test_ops_without_a_body_cannot_be_built():
    x = Value(TensorType(f32, (5, 5)), "x")
    node = make_node("det", [x], {})
    assert not can_build(node)
    with pytest.raises(InternalError, match="op 'det' has no kernel body"):
        build_kernel(node, "t")
    b = GraphBuilder()
    y = b.input("y", TensorType(f32, (5, 5)))
    b.output("z", b.det(b.neg(y)))
    assert not can_build(fuse(b.graph))


def test_building_twice_gives_the_same_text():
    x = Value(TensorType(f32, (2, 7)), "x")
    node = make_node("softmax", [x])
    assert kernel_text(build_kernel(node, "s")) == kernel_text(build_kernel(node, "s"))


def test_kernels_with_other_tables_print_other_text():
    def text(values: Sequence[float]) -> str:
        b = GraphBuilder()
        x = b.input("x", TensorType(f32, (len(values),)))
        b.output("y", b.add(x, b.constant(np.float32(values))))
        return kernel_text(build_kernel(fuse(b.graph), "k"))

    assert text([1, 2, 3]) == text([1, 2, 3])
    assert text([1, 2, 3]) != text([1, 2, 4])
    long = [float(i) for i in range(500)]
    assert text(long) != text([*long[:-1], 7.0])
    assert len(text(long)) < 3000  # as bytes, not as numbers


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.full((3, 2), 2.5, np.float32), 2.5),
        (np.asarray(7), 7),
        (np.asarray([True, True]), True),
        (np.float32([0.0, -0.0]), None),
        (np.float32([1, 2]), None),
        (np.zeros((0,), np.float32), None),
        (np.full(3, np.inf, np.float16), np.inf),
    ],
)
def test_a_splat_is_recognised_by_its_bits(array, expected):
    assert splat_value(array) == expected
