"""Operators on quantized tensors, against onnxruntime: a byte may be off by one, where its kernel rounds elsewhere."""

import numpy as np
import onnx
import pytest

from fakes import onnx_models
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
    (expected,) = session.run(None, feeds)
    (actual,) = evaluate(load(model), [*feeds.values()])
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
