"""Weights of f32 that 16 bits hold exactly are stored so, and no bit of a result changes by it."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.base.dtypes import DType, bf16, f16
from tilewright.compiler.graph.editor import Editor
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import Emitter
from tilewright.compiler.transforms.matching import constant_of
from tilewright.compiler.transforms.short_weights import short_weights

RNG = np.random.default_rng(3)
LONG = 5000
"""Elements of a weight of which only the first ones are looked at before all are."""


def shortened(array: np.ndarray, dtypes: Sequence[DType] = (f16, bf16)) -> np.ndarray:
    graph = Graph("g")
    with Editor(graph) as edit:
        emit = Emitter(edit, catalogue.schema, None)
        value = short_weights(emit.constant(array), dtypes, emit)
    held = constant_of(value if value.node.op == "constant" else value.node.operands[0])
    assert held is not None
    return held.astype(value.type.dtype.numpy)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rows", [1, "n"])
def test_products_that_share_a_weight_share_its_short_form(rows, tmp_path):
    weight = RNG.standard_normal((256, 256)).astype(np.float16).astype(np.float32)
    names = ["x", "a", "b", "y"]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [i, "w"], [o]) for i, o in itertools.pairwise(names)],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 256])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        initializer=[numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    weights = tmp_path / "w.irpa"  # by themselves: code may be as long
    # where many rows are worth a conversion, too
    artifact = tw.compile(model, threads=1, jobs=1, target="x86_64-v4")
    artifact.save(tmp_path / "m.vmfb", weights=weights)
    assert weights.stat().st_size < weight.nbytes


def with_last(value: float) -> np.ndarray:
    return np.append(np.ones(LONG - 1), value).astype(np.float32).reshape(-1, 2)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1.5, "float16"),
        (-0.0, "float16"),
        (float("inf"), "float16"),
        (2.0**-24, "float16"),  # the least subnormal
        (65504.0, "float16"),
        (65536.0, "bfloat16"),  # too large for f16
        (2.0**-100, "bfloat16"),
        (0.1, "float32"),
        (1 + 2.0**-11, "float32"),
        (2.0**-25, "bfloat16"),
        (float("nan"), "float32"),
    ],
)
def test_an_array_is_short_if_every_value_is(value: float, dtype: str) -> None:
    array = with_last(value)
    found = shortened(array)
    assert found.dtype.name == dtype
    np.testing.assert_array_equal(
        found.astype(np.float32).view(np.uint32), array.view(np.uint32)
    )


def test_machines_that_do_not_widen_read_f32_and_other_types_stay() -> None:
    assert shortened(with_last(1.5), frozenset()).dtype == np.float32
    assert shortened(with_last(65536.0), (f16,)).dtype == np.float32
    assert shortened(np.ones((2, 3))).dtype == np.float64
    assert shortened(np.ones((0, 3), np.float32)).shape == (0, 3)


def product(weights: np.ndarray, rows: int | str) -> tw.Model:
    depth, columns = weights.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["a", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, [rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(weights, "w")],
    )
    return tw.compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rows", [1, 3, "N"])
def test_products_have_the_bits_of_those_with_wide_weights(rows: int | str) -> None:
    """One weight that needs f32 keeps all of them wide; it meets zeros, so results may be compared."""
    short = RNG.standard_normal((37, 83)).astype(np.float16).astype(np.float32)
    short[1, :4] = [np.inf, -np.inf, 2.0**-24, -0.0]
    wide = short.copy()
    wide[0, 0] = 0.1
    models = [product(weights, rows) for weights in (short, wide)]
    for count in (1, 2, 17, 40) if rows == "N" else (rows,):
        a = RNG.standard_normal((count, 37)).astype(np.float32)
        a[:, 0] = 0
        a[-1, 2] = np.nan
        got, wanted = (np.asarray(model(a)) for model in models)
        np.testing.assert_array_equal(got, wanted)
        np.testing.assert_allclose(got, a @ short, rtol=2e-5, atol=1e-5)
