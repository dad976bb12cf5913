from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from conformance.ops.test_cases import agree
from fakes.graphs import ops, run
from tilewright.base import symbolic
from tilewright.base.dtypes import FLOATS, bf16, f16, f32, i64
from tilewright.base.errors import InternalError, ModelError
from tilewright.compiler.graph.schema import Role, TensorType, Trait
from tilewright.compiler.graph.text import to_text
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.bodies import pointwise
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.ops.declaration import attr, declare, operand, optional, type_of
from tilewright.compiler.ops.formulas import log1p
from tilewright.compiler.ops.shapes import like_first
from tilewright.compiler.transforms import ConvertLayout, FoldConstants

N = symbolic.symbol("N", 1)


# All that a new elementwise op needs to say.
SOFT_HINGE = declare(
    name="soft_hinge",
    summary="Smooth rectifier log(1 + exp(x)) without overflow",
    operands=(operand("x", FLOATS),),
    evaluate=lambda x: np.logaddexp(x, 0),
    body=pointwise(lambda b, x: b.add(b.max(x, 0), log1p(b, b.exp(b.neg(b.abs(x)))))),
    cases=("[0]", "[3,5]", "f16[]"),
    source="ONNX Softplus, opset 22",
)


@pytest.fixture
def soft_hinge(monkeypatch):
    monkeypatch.setitem(catalogue._TABLE, SOFT_HINGE.name, SOFT_HINGE)
    return SOFT_HINGE


def test_a_short_row_has_types_traits_and_an_exact_oracle():
    schema = SOFT_HINGE.schema
    assert schema.traits == Trait.PURE | Trait.ELEMENTWISE
    assert schema.role is Role.POINTWISE
    assert schema.infer([TensorType(bf16, (N, 3))], {}) == (TensorType(bf16, (N, 3)),)
    x = np.array([-80, 0.3, 80]).astype(bf16.numpy)
    (y,) = schema.evaluate([x], {})
    assert y.dtype == bf16.numpy
    exact = np.logaddexp(x.astype(np.float64), 0).astype(bf16.numpy)
    np.testing.assert_array_equal(y, exact)


def test_a_short_row_is_written_read_folded_and_checked(soft_hinge):
    text = (
        "graph @g(%x: f32[3]) { %c: f32[3] = constant() {value = f32[3] [-1.0, 0.0, 1.0]}"
        " %d: f32[3] = soft_hinge(%c) %e: f32[3] = soft_hinge(%x) %y: f32[3] = add(%d, %e)"
        " return %y }"
    )
    graph = run([FoldConstants()], text)
    assert ops(graph) == ["soft_hinge", "add"]
    assert "soft_hinge(%x)" in to_text(graph)
    with pytest.raises(ModelError, match="expected one of f16 bf16 f32 f64"):
        soft_hinge.schema.infer([TensorType(i64, (3,))], {})


@pytest.mark.slow
def test_a_short_row_runs_in_the_kernel_of_its_neighbours(soft_hinge):
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (N, 8)))
    product = b.matmul(x, b.constant(np.full((8, 4), 0.25, np.float32)))
    b.output("y", b.add(b.soft_hinge(product), b.constant(np.ones(4, np.float32))))
    model = tw.compile(b.graph)
    assert len(model.kernels) == 1
    given = np.linspace(-9, 9, 24, dtype=np.float32).reshape(3, 8)
    expected = np.logaddexp(given @ np.full((8, 4), 0.25), 0) + 1
    np.testing.assert_allclose(model(given), expected, rtol=1e-5)


def test_a_short_row_runs_channels_last_between_convolutions(soft_hinge):
    graph = run(
        [ConvertLayout(), FoldConstants()],
        "graph @g(%x: f32[1, 4, 6, 5]) {"
        " %w: f32[4, 4, 1, 1] = constant() {value = f32[4, 4, 1, 1] splat 0.125}"
        " %a: f32[1, 4, 6, 5] = conv(%x, %w) %b: f32[1, 4, 6, 5] = soft_hinge(%a)"
        " %y: f32[1, 4, 6, 5] = conv(%b, %w) return %y }",
    )
    assert ops(graph) == [
        "transpose", "conv", "soft_hinge", "conv", "transpose",
    ]  # fmt: skip


def test_a_short_row_passes_its_own_cases():
    ran = 0
    for case in cases.instances(SOFT_HINGE):
        (expected,) = SOFT_HINGE.schema.evaluate(case.operands, case.attributes)
        b, type_ = KernelBuilder("soft_hinge"), type_of(expected)
        x = b.parameter("x", type_.dtype, type_.shape)
        y = b.result("y", type_.dtype, type_.shape)
        SOFT_HINGE.body.emit(b, {}, [x], [y])
        actual = np.zeros_like(expected)
        evaluate(b.build(), [case.operands[0], actual])
        agree(actual, expected, str(case))
        ran += 1
    assert ran == len(FLOATS) * 2 + 1


def test_an_op_that_is_not_pointwise_says_what_its_results_are():
    with pytest.raises(InternalError, match="'sorted' does not say what types"):
        declare(name="sorted", summary="", operands=(operand("x"),), evaluate=np.sort)


def test_lookup_suggests_close_names():
    with pytest.raises(ModelError, match="there is no op 'sofmax'") as raised:
        catalogue.lookup("sofmax")
    assert "'softmax'" in str(raised.value)


def test_every_name_is_unique_lower_case_and_summarised():
    rows = catalogue.all_ops()
    assert len({r.name for r in rows}) == len(rows)
    for row in rows:
        assert row.name == row.name.lower()
        assert row.schema.summary
        assert not row.schema.summary.endswith(".")


def test_elementwise_ops_are_pure_and_have_bodies():
    for row in catalogue.all_ops():
        if Trait.ELEMENTWISE in row.schema.traits:
            assert Trait.PURE in row.schema.traits
            assert row.body is not None, row.name


def test_sizes_that_a_row_takes_to_be_equal_are_so_in_its_cases():
    rows = [r for r in catalogue.all_ops() if r.schema.equal_sizes is not None]
    for row in rows:
        for case in cases.instances(row):
            types = [type_of(a) for a in case.operands if a is not None]
            full = row.complete(case.attributes)
            (result,) = map(type_of, row.schema.evaluate(case.operands, case.attributes))
            pairs = row.schema.equal_sizes(types, result, full)
            assert all(left == right for left, right in pairs), str(case)
    assert {"add", "matmul", "broadcast_to", "layer_norm"} <= {r.name for r in rows}


def test_an_op_without_a_kernel_says_why():
    for row in catalogue.all_ops():
        has_none = row.body is None and not row.schema.region_count
        assert bool(row.on_host) == (
            has_none
            and row.name not in ("constant", "bind_sizes", "expect_sizes", "pick_row")
        ), row.name


@pytest.mark.parametrize(
    ("name", "types", "attributes", "message"),
    [
        ("add", ["f32[2]"], {}, "needs operand 2"),
        ("add", ["f32[2]", "f32[2]", "f32[2]"], {}, "takes 2 operands, got 3"),
        ("add", ["f32[2]", "f16[2]"], {}, "expected f32 like the operand before"),
        ("exp", ["i64[2]"], {}, "expected one of f16 bf16 f32 f64"),
        ("add", ["f32[2]", "f32[3]"], {}, r"shapes \[2\] and \[3\] do not broadcast"),
        ("softmax", ["f32[2]"], {"axis": 1}, "axis 1 is out of range for rank 1"),
        ("softmax", ["f32[2]"], {"axes": 1}, "has no attribute 'axes' \\(known: axis\\)"),
        ("softmax", ["f32[2]"], {"axis": "x"}, "expected kind 'int'"),
        ("transpose", ["f32[2,3]"], {}, "needs attribute 'perm'"),
        ("transpose", ["f32[2,3]"], {"perm": (0, 0)}, "is no permutation"),
        ("reduce_sum", ["f32[2,3]"], {"axes": (1, -1)}, "repeat an axis"),
        ("matmul", ["f32[2,3]", "f32[4,5]"], {}, "3 and 4 differ"),
        ("matmul", ["f32[3]", "f32[3,5]"], {}, "needs matrices"),
        ("concat", ["f32[2,3]", "f32[3,3]"], {"axis": 1}, "2 and 3 differ"),
        ("reshape", ["f32[2,3]"], {"shape": (5,)}, "6 and 5 differ"),
        ("slice", ["f32[5]"], {"axes": (0,), "starts": (3,), "sizes": (3,)}, "slice of"),
        ("pad", ["f32[5]"], {"pads": (1,)}, "1 pads for"),
        ("pad", ["f32[5]"], {"pads": (1, 1), "mode": "magic"}, "'magic' is unknown"),
        ("conv", ["f32[1,3,5,5]", "f32[4,2,3,3]"], {}, "3 and 2 differ"),
        ("conv", ["f32[1,3,5]", "f32[4,3,3,3]"], {}, "ranks do not fit"),
        ("layer_norm", ["f32[2,3]", "f32[4]"], {}, "do not broadcast|does not broadcast"),
    ],
)
def test_what_is_wrong_with_a_call_is_said(name, types, attributes, message):
    def parse(text: str) -> TensorType:
        dtype, _, shape = text.rstrip("]").partition("[")
        named = {"f32": f32, "f16": f16, "i64": i64}[dtype]
        return TensorType(named, tuple(int(n) for n in shape.split(",") if n))

    with pytest.raises(ModelError, match=message):
        catalogue.lookup(name).schema.infer([parse(t) for t in types], attributes)


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ((N, 3), (3,), (N, 3)),
        ((N, 1), (1, 5), (N, 5)),
        ((N,), (4,), (4,)),
        ((N,), (1,), (N,)),
        ((), (N,), (N,)),
        ((N, 2), (symbolic.symbol("longer", 1), 2), (N, 2)),
        ((0, 1), (1, 3), (0, 3)),
    ],
)
def test_symbolic_shapes_broadcast(left, right, result):
    types = [TensorType(f32, left), TensorType(f32, right)]
    assert catalogue.lookup("add").schema.infer(types, {}) == (TensorType(f32, result),)


@pytest.mark.parametrize(
    ("name", "shapes", "attributes", "result"),
    [
        ("matmul", [(N, 4), (4, 5)], {}, (N, 5)),
        ("concat", [(N, 2), (3, 2)], {"axis": 0}, (N + 3, 2)),
        ("pad", [(N, 2)], {"pads": (1, 0, 2, 0)}, (N + 3, 2)),
        ("tile", [(N, 2)], {"repeats": (2, 3)}, (N * 2, 6)),
        ("slice", [(N, 4)], {"axes": (0,), "starts": (1,), "sizes": (N - 1,)}, (N - 1, 4)),
        ("reduce_max", [(N, 4)], {"axes": (1,), "keepdims": False}, (N,)),
        ("max_pool", [(N, 2, 9, 9)], {"kernel": (3, 3), "strides": (2, 2)}, (N, 2, 4, 4)),
        ("reshape", [(N, 2, 3)], {"shape": (N, 6)}, (N, 6)),
        ("pack_panels", [(N, 7)], {"panel": 4}, (2, N, 4)),
    ],
)
def test_inference_keeps_symbols(name, shapes, attributes, result):
    types = [TensorType(f32, s) for s in shapes]
    (found,) = catalogue.lookup(name).schema.infer(types, attributes)
    assert found.shape == result


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads", "expected"),
    [
        (5, 2, 2, (0, 0), 3),
        (6, 3, 2, (1, 1), 4),
        (4, 1, 2, (0, 0), 2),
        (3, 2, 2, (0, 1), 2),
    ],
)
def test_ceil_mode_counts_windows_that_start_inside(size, kernel, stride, pads, expected):
    attributes = {
        "kernel": (kernel,), "strides": (stride,), "pads": pads, "ceil_mode": True,
    }  # fmt: skip
    (found,) = catalogue.lookup("max_pool").schema.infer(
        [TensorType(f32, (1, 1, size))], attributes
    )
    assert found.shape[-1] == expected


def test_results_are_converted_to_the_inferred_dtype_and_shape_is_kept():
    row = declare(
        name="twice",
        summary="Twice x",
        operands=(operand("x", FLOATS), optional("y", FLOATS, like="x")),
        attributes=(attr("factor", "float", 2.0),),
        infer=like_first,
        evaluate=lambda x, y, *, factor: x.astype(np.float64) * factor,
    )
    (value,) = row.schema.evaluate([np.float16([1, 2])], {"factor": 3})
    assert value.dtype == np.float16
    assert value.tolist() == [3, 6]
    assert not row.supports([TensorType(f16, (2,))], {})


def test_an_unknown_attribute_kind_is_our_own_mistake():
    with pytest.raises(InternalError, match="kind 'number'"):
        attr("x", "number")


@pytest.mark.parametrize(
    ("op", "attributes", "shape"),
    [
        ("broadcast_to", {"shape": (1 << 33, 1 << 33, 4)}, (4,)),
        ("broadcast_to", {"shape": (1 << 61, 4)}, (4,)),
        ("broadcast_to", {"shape": (0, 1 << 62, 4)}, (4,)),
        ("broadcast_to", {"shape": (N, 1 << 62, 4)}, (4,)),
        ("concat", {"axis": 0}, (N * (1 << 61),)),
    ],
)
def test_a_result_beyond_every_address_is_refused(op, attributes, shape):
    infer = catalogue.lookup(op).schema.infer
    types = (TensorType(f32, shape),) * (2 if op == "concat" else 1)
    with pytest.raises(ModelError, match=r"expected at most 9223372036854775807 bytes"):
        infer(types, attributes)


def test_a_result_whose_sizes_are_nested_without_end_is_refused():
    size = N
    for _ in range(1000):
        size = (3 * size + N) // 2
    infer = catalogue.lookup("broadcast_to").schema.infer
    with pytest.raises(ModelError, match="a size of which is nested too deeply") as refused:
        infer((TensorType(f32, (1,)),), {"shape": (size,)})
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("rank", [64, 65])
def test_a_result_has_no_more_axes_than_an_array(rank):
    infer = catalogue.lookup("reshape").schema.infer
    types, attributes = (TensorType(f32, (6,)),), {"shape": (6,) + (1,) * (rank - 1)}
    if rank == 64:
        assert infer(types, attributes)[0].rank == rank
        return
    with pytest.raises(
        ModelError, match="the result would have 65 axes, expected at most 64"
    ):
        infer(types, attributes)


def test_a_result_of_the_last_address_is_taken():
    infer = catalogue.lookup("broadcast_to").schema.infer
    (found,) = infer((TensorType(f32, (1,)),), {"shape": ((1 << 61) - 1,)})
    assert found.shape == ((1 << 61) - 1,)
