from __future__ import annotations

import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import FLOATS, f16, f32, i64
from tilewright.base.errors import InternalError, ModelError
from tilewright.compiler.graph.schema import TensorType, Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.declaration import attr, declare, operand, optional
from tilewright.compiler.ops.shapes import like_first

N = symbolic.symbol("N", 1)


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


def test_an_op_without_a_kernel_says_why():
    for row in catalogue.all_ops():
        has_none = row.body is None and not row.schema.region_count
        assert bool(row.on_host) == (has_none and row.name != "constant"), row.name


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


def test_a_result_of_the_last_address_is_taken():
    infer = catalogue.lookup("broadcast_to").schema.infer
    (found,) = infer((TensorType(f32, (1,)),), {"shape": ((1 << 61) - 1,)})
    assert found.shape == ((1 << 61) - 1,)
