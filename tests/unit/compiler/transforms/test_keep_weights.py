"""Weights that a model stores in 8 bits or fewer stay so, in its artifact and where products read them."""

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

import tilewright as tw
from tilewright.base import dtypes

RNG = np.random.default_rng(11)
CODES = {
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
    "f8e4m3fn": TensorProto.FLOAT8E4M3FN,
    "f8e5m2": TensorProto.FLOAT8E5M2,
}


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def numbers(name: str, *shape: int) -> np.ndarray:
    """Any finite numbers of a type of 8 bits, subnormal ones among them."""
    stored = RNG.integers(0, 256, shape).astype(np.uint8)
    values = stored.view(getattr(dtypes, name).numpy)
    return np.where(np.isfinite(values.astype(np.float32)), stored, 1).astype(np.uint8)


def product(
    stored: np.ndarray, name: str, nodes: list[NodeProto], rank: int = 2, **others: object
) -> ModelProto:
    """x @ w, where `nodes` make w of the bytes q and of other constants."""
    graph = helper.make_graph(
        [*nodes, helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * rank)],
        [helper.make_empty_tensor_value_info("y")],
        [
            helper.make_tensor("q", CODES[name], stored.shape, stored.tobytes(), raw=True),
            *(numpy_helper.from_array(np.asarray(v), k) for k, v in others.items()),
        ],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def array(result: object) -> np.ndarray:
    assert isinstance(result, np.ndarray)
    return result


def keeps_bytes(program: tw.Model) -> bool:
    return any("matmul_blocks" in kernel.name for kernel in program.kernels)


def check(program: tw.Model, x: np.ndarray, weights: np.ndarray) -> None:
    wide, exact = x.astype(np.float64), weights.astype(np.float64)
    bound = np.abs(wide) @ np.abs(exact)
    assert keeps_bytes(program)
    assert (np.abs(array(program(x)) - wide @ exact) <= 1e-6 * bound).all()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", ["f8e4m3fn", "f8e5m2"])
def test_every_finite_float_of_8_bits_is_read_exactly(name: str) -> None:
    every = np.arange(256, dtype=np.uint8)
    values = every.view(getattr(dtypes, name).numpy).astype(np.float32)
    every, values = every[np.isfinite(values)], values[np.isfinite(values)]
    node = helper.make_node("Cast", ["q"], ["w"], to=TensorProto.FLOAT)
    program = tw.compile(product(np.stack([every, every[::-1]], 1), name, [node]))
    assert keeps_bytes(program)
    found = array(program(np.eye(len(every), dtype=np.float32)))
    np.testing.assert_array_equal(found, np.stack([values, values[::-1]], 1))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "name", ["i8", *(pytest.param(n, marks=pytest.mark.slow) for n in CODES if n != "i8")]
)
@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [
        ((1,), 50, 33),
        pytest.param((3,), 129, 5, marks=pytest.mark.slow),
        pytest.param((2, 3), 7, 2, marks=pytest.mark.slow),
        pytest.param((0,), 12, 8, marks=pytest.mark.slow),
        pytest.param((2,), 1, 65, marks=pytest.mark.slow),
    ],
)
def test_a_scale_per_column(
    name: str, rows: tuple[int, ...], depth: int, columns: int
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    stored, scale = numbers(name, depth, columns), np.abs(floats(columns)) + 0.1
    zero = RNG.integers(0, 99, columns).astype(np.uint8)
    is_float = getattr(dtypes, name).is_float
    others = {} if is_float else {"z": zero.view(getattr(dtypes, name).numpy)}
    node = helper.make_node("DequantizeLinear", ["q", "s", *others], ["w"], axis=1)
    model = product(stored, name, [node], len(rows) + 1, s=scale, **others)
    program, x = tw.compile(model), floats(*rows, depth)
    values = stored.view(getattr(dtypes, name).numpy).astype(np.float64)
    check(program, x, (values - (0 if is_float else zero)) * scale)
    options = runtime.SessionOptions()  # optimized, x would be rounded to 8 bits
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(model.SerializeToString(), options)
    (expected,) = session.run(None, {"x": x})
    largest = np.abs(expected).max(initial=0.0)
    np.testing.assert_allclose(array(program(x)), expected, rtol=1e-4, atol=1e-5 * largest)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("target", ["host", "x86_64-v2", "x86_64-v3", "c"])
@pytest.mark.parametrize("name", ["f8e4m3fn", "f8e5m2"])
def test_a_factor_behind_a_conversion(name: str, target: str) -> None:
    stored, scale = numbers(name, 21, 7), floats(1, 7)
    nodes = [
        helper.make_node("Cast", ["q"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "c"], ["w"]),
    ]
    program = tw.compile(product(stored, name, nodes, s=scale), target=target)
    values = stored.view(getattr(dtypes, name).numpy).astype(np.float64)
    check(program, floats(2, 21), values * scale)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [np.float32(0.25), np.abs(floats(600)) + np.float32(0.1)])
def test_weights_that_lie_as_columns(tmp_path: Path, scale: np.ndarray) -> None:
    stored = numbers("i8", 600, 400)
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["r"], axis=0),
        helper.make_node("Transpose", ["r"], ["w"], perm=[1, 0]),
    ]
    program = tw.compile(product(stored, "i8", nodes, s=scale))
    check(program, floats(3, 400), stored.view(np.int8).T * scale.astype(np.float64))
    program.save(tmp_path / "m.vmfb")
    assert (tmp_path / "m.vmfb").stat().st_size < 2 * stored.size


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", ["INT4", "UINT4"])
@pytest.mark.parametrize(
    ("rows", "depth", "columns"),
    [
        (3, 129, 5),
        pytest.param(1, 64, 12, marks=pytest.mark.slow),
        pytest.param(2, 1, 9, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("has_zero", [True, False])
def test_four_bits_with_a_scale_per_column(
    name: str, rows: int, depth: int, columns: int, has_zero: bool
) -> None:
    low, code = -8 if name == "INT4" else 0, getattr(TensorProto, name)
    values, zero = (RNG.integers(low, low + 16, n) for n in ((depth, columns), columns))
    scale, x = np.abs(floats(columns)) + np.float32(0.1), floats(rows, depth)
    operands = ["q", "s", "z"] if has_zero else ["q", "s"]
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", operands, ["w"], axis=1),
            helper.make_node("MatMul", ["x", "w"], ["y"]),
        ], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, None])],
        [helper.make_empty_tensor_value_info("y")],
        [
            helper.make_tensor("q", code, values.shape, values.ravel().tolist()),
            helper.make_tensor("z", code, zero.shape, zero.tolist()),
            numpy_helper.from_array(scale, "s"),
        ],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21)]
    program = tw.compile(helper.make_model(graph, opset_imports=imports, ir_version=10))
    check(program, x, (values - (zero if has_zero else 0)) * scale.astype(np.float64))


def test_what_is_not_finite_or_not_per_column_is_a_matrix_of_f32() -> None:
    stored = np.array([[0x7E, 0x7F], [0x01, 0x80]], np.uint8)  # one is NaN
    cast = helper.make_node("Cast", ["q"], ["w"], to=TensorProto.FLOAT)
    program = tw.compile(product(stored, "f8e4m3fn", [cast]))
    assert not keeps_bytes(program)
    first, second = array(program(np.ones((1, 2), np.float32)))[0]
    assert (first, np.isnan(second)) == (448 + 2**-9, True)
    rows = helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0)
    by_row = tw.compile(product(stored, "i8", [rows], s=np.array([1, 2], np.float32)))
    assert not keeps_bytes(by_row)
    np.testing.assert_array_equal(array(by_row(np.ones((1, 2), np.float32))), [[128, -129]])


def test_a_filter_with_a_scale_per_channel_is_known() -> None:
    stored, scale = numbers("i8", 3, 2, 1, 1), np.array([0.5, 1.0, 2.0], np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["q", "s"], ["w"], axis=0),
            helper.make_node("Conv", ["x", "w"], ["y"]),
        ],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2, 5, 1))],
        [helper.make_empty_tensor_value_info("y")],
        [
            helper.make_tensor("q", CODES["i8"], stored.shape, stored.tobytes(), raw=True),
            numpy_helper.from_array(scale, "s"),
        ],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21)]
    x = floats(1, 2, 5, 1)
    found = tw.compile(helper.make_model(graph, opset_imports=imports, ir_version=10))(x)
    weights = stored.view(np.int8)[:, :, 0, 0] * scale[:, None]
    expected = np.einsum("oc,bchw->bohw", weights.astype(np.float64), x)
    np.testing.assert_allclose(array(found), expected, rtol=1e-5, atol=1e-4)
