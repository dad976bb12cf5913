"""Every declared case of every op: the kernel of the node against the op's own oracle."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.builder import make_node
from tilewright.compiler.ops.declaration import OpDecl, type_of

LONG = ("attention", "top_k")
# Relative error allowed between a kernel and the oracle, which computes in f64.  Values of 8-bit
# floats are only stored: both sides round the same number once.
TOLERANCE = {
    "f16": 2e-3, "bf16": 1.6e-2, "f32": 4e-6, "f64": 1e-12,
    **{t.name: 0.0 for t in dtypes.SMALL_FLOATS},
}  # fmt: skip


def agree(actual: np.ndarray, expected: np.ndarray, context: str) -> None:
    """Equal up to rounding; NaN equals NaN, integers are exact."""
    assert actual.shape == expected.shape, context
    dtype = dtypes.from_numpy(expected.dtype)
    if not dtype.is_float:
        np.testing.assert_array_equal(actual, expected, err_msg=context)
        return
    tolerance = TOLERANCE[dtype.name]
    scale = np.abs(expected.astype(np.float64))
    finite = scale[np.isfinite(scale)]
    floor = min(1.0, float(finite.max(initial=0)))
    np.testing.assert_allclose(
        actual.astype(np.float64),
        expected.astype(np.float64),
        rtol=tolerance,
        atol=tolerance * floor,
        err_msg=context,
    )


def node_of(case: cases.Case):
    operands = [None if a is None else Value(type_of(a), "") for a in case.operands]
    return make_node(case.op, operands, case.attributes)


def by_op(rows: Iterable[OpDecl]) -> list[Any]:
    """A parameter per op; the cases of some take Python many seconds."""
    long = pytest.mark.slow
    return [
        pytest.param(row, id=row.name, marks=long if row.name in LONG else ())
        for row in rows
    ]


@pytest.mark.sampled(7)
@pytest.mark.thinned(31)
@pytest.mark.parametrize("row", by_op(r for r in catalogue.all_ops() if r.cases))
def test_the_kernel_of_every_case_agrees_with_the_oracle(row: OpDecl):
    for case in cases.instances(row):
        node = node_of(case)
        expected = row.schema.evaluate(case.operands, case.attributes)
        for array, value in zip(expected, node.results, strict=True):
            assert type_of(array) == value.type, str(case)
        if not can_build(node):
            continue
        kernel = build_kernel(node, row.name)
        verify(kernel)
        outputs = [np.zeros(v.type.shape, v.type.dtype.numpy) for v in node.results]
        arrays = [a for a in case.operands if a is not None]
        evaluate(kernel, [*arrays, *outputs])
        for actual, wanted in zip(outputs, expected, strict=True):
            agree(actual, wanted, str(case))


def test_every_op_with_a_body_has_cases() -> None:
    without = [r.name for r in catalogue.all_ops() if r.body is not None and not r.cases]
    assert set(without) <= {"constant"}


# Ops whose structure needs numbers in some dimension, by the dimension.
NEEDS_NUMBERS = {
    "gather_nd": "length of an index tuple",
    "scatter_nd": "length of an index tuple",
    "contract": "panel",
    "matmul_blocks": "panel and words",
    "matmul_byte_blocks": "panel and words",
    "conv": "filters of a group",
    "conv_transpose": "filters of a group",
    "quantize_linear": "blocks",
    "dequantize_linear": "blocks",
    "group_norm": "channels",
    "mean_of_groups": "channels",
    "resize": "sizes",
}


@pytest.mark.parametrize(
    "row",
    [
        r
        for r in catalogue.all_ops()
        if r.body is not None
        and r.cases
        and r.schema.operands
        and r.name not in NEEDS_NUMBERS
    ],
    ids=lambda r: r.name,
)
@pytest.mark.sampled(3)
def test_the_kernel_with_symbolic_dimensions_agrees_with_the_oracle(row: OpDecl):
    seen: set[str] = set()
    run = 0
    for case in cases.instances(row):
        if case.text in seen:
            continue
        seen.add(case.text)
        sizes = {n for a in case.operands if a is not None for n in a.shape if n > 1}
        dims = {f"D{n}": n for n in sizes}
        operands = [
            None
            if a is None
            else Value(TensorType(type_of(a).dtype, cases.symbolic_shape(a.shape)), "")
            for a in case.operands
        ]
        node = make_node(case.op, operands, case.attributes)
        if not can_build(node):
            continue
        run += 1
        kernel = build_kernel(node, row.name)
        verify(kernel)
        expected = row.schema.evaluate(case.operands, case.attributes)
        outputs = [np.zeros(a.shape, a.dtype) for a in expected]
        evaluate(kernel, [*(a for a in case.operands if a is not None), *outputs], dims)
        for actual, wanted in zip(outputs, expected, strict=True):
            agree(actual, wanted, f"{case} dynamic")
    assert run, f"no case of '{row.name}' has a kernel"


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("conv", {0: (0, 2, 3)}),
        ("conv_transpose", {0: (0, 2)}),
        ("contract", {0: (0,)}),
        ("matmul_blocks", {0: (0,)}),
        ("matmul_byte_blocks", {0: (0,), 1: (0,), 2: (0,)}),
        ("gather_nd", {0: (0,), 1: (0,)}),
        ("scatter_nd", {0: (0,)}),
        ("group_norm", {0: (0, 2)}),
        ("quantize_linear", {0: (0,)}),
        ("dequantize_linear", {0: (0,)}),
    ],
)
def test_dimensions_that_carry_no_structure_may_be_symbolic(
    name: str, axes: dict[int, tuple[int, ...]]
):
    row = catalogue.lookup(name)
    tried = 0
    for case in cases.instances(row):
        types = [None if a is None else type_of(a) for a in case.operands]
        dims: dict[str, int] = {}
        for position, chosen in axes.items():
            array = case.operands[position]
            if array is None:
                continue
            shape = list(array.shape)
            for axis in chosen:
                # NHWC cases have their channels last: leave that axis alone.
                if axis < len(shape) - 1 and shape[axis] > 1:
                    label = f"P{position}A{axis}"
                    dims[label] = shape[axis]
                    shape[axis] = symbolic.symbol(label, 1)
            types[position] = TensorType(type_of(array).dtype, tuple(shape))
        groups = 1 if name == "group_norm" else case.attributes.get("groups", 1)
        structured = groups != 1 or "batch_dims" in case.attributes
        if (
            not dims
            or structured
            or {a.ndim for a in case.operands if a is not None} == {1}
        ):
            continue
        operands = [None if t is None else Value(t, "") for t in types]
        try:
            node = make_node(case.op, operands, case.attributes)
        except ModelError:
            continue
        if not can_build(node):
            continue
        kernel = build_kernel(node, name)
        verify(kernel)
        expected = row.schema.evaluate(case.operands, case.attributes)
        outputs = [np.zeros(a.shape, a.dtype) for a in expected]
        evaluate(kernel, [*(a for a in case.operands if a is not None), *outputs], dims)
        for actual, wanted in zip(outputs, expected, strict=True):
            agree(actual, wanted, f"{case} dynamic")
        tried += 1
    assert tried
