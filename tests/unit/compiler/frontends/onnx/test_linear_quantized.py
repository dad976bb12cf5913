"""Operators on quantized tensors, against onnxruntime: a byte may be off by one, where its kernel rounds elsewhere."""

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes import contributed, onnx_models
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(7)
SCALE, ZERO = np.float32(0.03), np.uint8(117)


def some_bytes(*shape: int, dtype: type = np.uint8) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max + 1, shape, dtype=dtype)


def agrees(
    op: str,
    arrays: list[np.ndarray | None],
    *,
    attribute: int | None = None,
    **options: object,
) -> None:
    """`attribute` is that called `opset`, which has another meaning for `one_node`."""
    runtime = pytest.importorskip("onnxruntime")
    held = [None if a is None else np.asarray(a) for a in arrays]
    # onnxruntime asks that scales and zero points are constants.
    constants = tuple(i for i, a in enumerate(held) if a is not None and a.size == 1)
    model = onnx_models.one_node(
        op, held, domain="com.microsoft", constants=constants, **options
    )
    if attribute is not None:
        model.graph.node[0].attribute.append(onnx.helper.make_attribute("opset", attribute))
    session = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {f"x{i}": a for i, a in enumerate(held) if a is not None and i not in constants}
    results = session.run(None, feeds)
    for actual, expected in zip(
        evaluate(load(model), [*feeds.values()]), results, strict=True
    ):
        assert actual.dtype == expected.dtype
        close = 1e-4 if actual.dtype == np.float32 else 1
        np.testing.assert_allclose(
            actual.astype(np.float64), expected.astype(np.float64), atol=close
        )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize(
    "shapes", [((3, 17), (3, 17)), ((2, 3, 9), (9,)), ((5, 1), (1, 33))]
)
def test_two_tensors(op: str, shapes: tuple[tuple[int, ...], ...], dtype: type) -> None:
    left, right = (some_bytes(*shape, dtype=dtype) for shape in shapes)
    zeros = (dtype(5), dtype(3), dtype(7))
    agrees(op, [
        left, SCALE, zeros[0], right, np.float32(0.02), zeros[1], np.float32(0.07), zeros[2],
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.2})],
)
def test_one_tensor(op: str, attributes: dict[str, float]) -> None:
    scale = np.float32(0.008)
    agrees(op, [some_bytes(3, 37), SCALE, ZERO, scale, np.uint8(9)], **attributes)


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("opset", [12, 13])
def test_softmax(opset: int, axis: int) -> None:
    arrays = [some_bytes(2, 5, 33), SCALE, ZERO, np.float32(1 / 256), np.uint8(0)]
    agrees("QLinearSoftmax", arrays, axis=axis, attribute=opset)


@pytest.mark.parametrize("channels_last", [0, 1])
def test_means_of_images(channels_last: int) -> None:
    arrays = [some_bytes(2, 5, 7, 6), SCALE, ZERO, np.float32(0.02), np.uint8(100)]
    agrees("QLinearGlobalAveragePool", arrays, channels_last=channels_last)


def test_parts_of_different_scales() -> None:
    parts = [some_bytes(2, 3), SCALE, ZERO, some_bytes(2, 4), np.float32(0.05), np.uint8(3)]
    agrees("QLinearConcat", [np.float32(0.04), np.uint8(90), *parts], axis=1)


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("per_column", [True, False])
def test_gemm(narrow: bool, turned: int, per_column: bool) -> None:
    # Without VNNI onnxruntime adds pairs of products in 16 bits, which saturate unless weights have seven bits.
    a, b = some_bytes(5, 19), some_bytes(19, 7, dtype=np.int8) >> 1
    scale = (
        RNG.uniform(0.01, 0.02, 7).astype(np.float32) if per_column else np.float32(0.013)
    )
    zero = np.zeros(7, np.int8) if per_column else np.int8(4)
    bias = RNG.integers(-3000, 3000, 7, dtype=np.int32)
    result = [np.float32(0.9), np.uint8(128)] if narrow else []
    b = b.T.copy() if turned else b
    agrees(
        "QGemm", [a, SCALE, ZERO, b, scale, zero, bias, *result], transB=turned, alpha=0.5
    )


@pytest.mark.parametrize("channels_last", [0, 1])
@pytest.mark.parametrize("include", [0, 1])
def test_means_of_windows(channels_last: int, include: int) -> None:
    arrays = [some_bytes(2, 4, 7, 6), SCALE, ZERO, np.float32(0.02), np.uint8(100)]
    agrees(
        "QLinearAveragePool", arrays, channels_last=channels_last, count_include_pad=include,
        kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1],
    )  # fmt: skip


@pytest.mark.parametrize("channels_last", [0, 1])
def test_convolutions(channels_last: int) -> None:
    x, w = some_bytes(2, 4, 7, 6), some_bytes(6, 2, 3, 3, dtype=np.int8) >> 1
    x = np.moveaxis(x, 1, 3).copy() if channels_last else x
    scales = RNG.uniform(0.01, 0.02, 6).astype(np.float32)
    arrays = [
        x, SCALE, ZERO, w, scales, np.zeros(6, np.int8), np.float32(0.3), np.uint8(120),
        RNG.integers(-500, 500, 6, dtype=np.int32),
    ]  # fmt: skip
    options = {"channels_last": channels_last} if channels_last else {}
    agrees("QLinearConv", arrays, group=2, pads=[1, 0, 1, 2], strides=[2, 1], **options)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("form", ["one scale", "by column", "no zero point", "biased"])
@pytest.mark.parametrize("shape", [(33, 17), (2, 3, 17), (1, 17), (0, 17)])
def test_products_of_what_the_call_quantizes(
    shape: tuple[int, ...], form: str, dtype: type
) -> None:
    # Weights of 6 bits: onnxruntime's sums of pairs saturate at 16 on some processors.
    weights = RNG.integers(0, 50, (17, 9)).astype(dtype)
    x = RNG.standard_normal(shape).astype(np.float32)
    scale = RNG.random(9).astype(np.float32) if form == "by column" else SCALE
    zeros = RNG.integers(0, 9, 9).astype(dtype) if form == "by column" else dtype(3)
    bias = RNG.standard_normal(9).astype(np.float32) if form == "biased" else None
    zero = None if form == "no zero point" else zeros
    agrees("DynamicQuantizeMatMul", [x, weights, scale, zero, bias])


@pytest.mark.parametrize("x", [np.zeros((3, 4)), np.ones((3, 4)), -np.ones((3, 4))])
def test_products_of_one_number(x: np.ndarray) -> None:
    weights = RNG.integers(0, 50, (4, 5)).astype(np.uint8)
    agrees("DynamicQuantizeMatMul", [x.astype(np.float32), weights, SCALE, np.uint8(3)])


def test_one_of_two_tensors() -> None:
    condition = RNG.integers(0, 2, (3, 1)).astype(np.bool_)
    agrees("QLinearWhere", [
        condition, some_bytes(3, 5), SCALE, ZERO, some_bytes(5), np.float32(0.02), np.uint8(9),
        np.float32(0.04), np.uint8(100),
    ])  # fmt: skip


@pytest.mark.parametrize("has_segments", [True, False])
@pytest.mark.parametrize("has_mask", [True, False])
def test_embeddings_of_bytes(has_segments: bool, has_mask: bool) -> None:
    ids = RNG.integers(0, 9, (2, 5)).astype(np.int32)
    tables = [
        some_bytes(9, 8),
        some_bytes(7, 8),
        some_bytes(2, 8),
        some_bytes(8),
        some_bytes(8),
    ]
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32) if has_mask else None
    scales: list[np.ndarray | None] = [
        np.float32(s) for s in (0.03, 0.02, 0.01, 0.02, 0.04)
    ]
    zeros: list[np.ndarray | None] = [np.uint8(z) for z in (117, 3, 200, 9, 128)]
    segments: np.ndarray | None = RNG.integers(0, 2, (2, 5)).astype(np.int32)
    if not has_segments:
        segments = tables[2] = scales[2] = zeros[2] = None
    arrays = [ids, segments, *tables, mask, *scales, *zeros]
    agrees("QEmbedLayerNormalization", arrays, outputs=2, epsilon=1e-6)


def test_what_onnxruntime_has_no_kernel_for_is_the_formula() -> None:
    a, b = some_bytes(3, 4), some_bytes(4, dtype=np.int8)
    (found,) = contributed.ours("MulInteger", [a, ZERO, b, np.array(-3, np.int8)])
    np.testing.assert_array_equal(found, (a.astype(int) - 117) * (b.astype(int) + 3))
    for x in (a, b):
        (found,) = contributed.ours("ReduceSumInteger", [x], axes=[-1], keepdims=0)
        np.testing.assert_array_equal(found, x.astype(int).sum(-1))
    y_scale, y_zero = np.float32(0.02), np.array(100, np.uint8)
    arrays = [a, np.array(SCALE), np.array(ZERO), np.array(y_scale), y_zero]
    (found,) = contributed.ours("QLinearReduceMean", arrays, axes=[0])
    mean = ((a.astype(np.float32) - 117) * SCALE).mean(0, keepdims=True)
    expected = np.clip(np.rint(mean / y_scale) + 100, 0, 255)
    np.testing.assert_allclose(found, expected, atol=1)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("opset", [21, 23])
def test_quotients_of_16_bits_are_rounded_where_the_opset_says_so(
    opset: int, *, by_column: bool
) -> None:
    """From opset 23 on the quotient has the type of the scale, and what was near a half is one."""
    runtime = pytest.importorskip("onnxruntime")
    x = np.linspace(-5, 5, 3000).reshape(1000, 3).astype(np.float16)
    scale = np.array([0.0419, 0.0613, 0.0377] if by_column else 0.0419, np.float16)
    arrays = [x, scale, np.full(scale.shape, 120, np.uint8)]
    options = {"opset": opset, "axis": 1, "constants": (1, 2)}
    model = onnx_models.one_node("QuantizeLinear", arrays, **options)
    model.graph.output[0].ClearField("type")
    (wanted,) = runtime.InferenceSession(model.SerializeToString()).run(None, {"x0": x})
    (found,) = onnx_models.run_node("QuantizeLinear", arrays, **options)
    np.testing.assert_array_equal(found, wanted)
    compiled = tw.compile(onnx_models.one_node("QuantizeLinear", arrays, **options), jobs=1)
    np.testing.assert_array_equal(compiled(x0=x), wanted)
