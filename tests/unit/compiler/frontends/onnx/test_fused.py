"""What onnxruntime fuses, beside its CPU kernels, and where it has none beside the formulas of its documentation."""

import math

import numpy as np
import pytest

from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(23)
ERF = np.vectorize(math.erf, otypes=[np.float64])


def floats(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x.astype(np.float64)))


def gelu(x: np.ndarray) -> np.ndarray:
    return x * (1 + ERF(x.astype(np.float64) / np.sqrt(2))) / 2


def close(actual: np.ndarray, expected: np.ndarray, atol: float = 1e-5) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual, expected, atol=atol, rtol=1e-5)


# --- biases and gates


def test_a_bias_and_a_skip_are_added() -> None:
    x, bias, skip = floats(2, 5, 7), floats(7), floats(2, 5, 7)
    close(ours("BiasAdd", [x, bias, skip])[0], x + bias + skip)


def test_the_left_half_is_gated_by_the_gelu_of_the_right() -> None:
    x, bias = floats(2, 3, 10), floats(10)
    left, right = np.split(x + bias, 2, -1)
    close(ours("BiasSplitGelu", [x, bias])[0], left * gelu(right))


@pytest.mark.parametrize(
    ("axis", "inner", "shape"),
    [(3, 1, (2, 1, 1, 7)), (3, 1, (2, 7)), (3, 0, (5, 7)), (2, 0, (5, 7)), (-1, 1, (7,))],
)
def test_a_bias_is_added_before_a_softmax(
    axis: int, inner: int, shape: tuple[int, ...]
) -> None:
    x, bias = floats(2, 3, 5, 7), floats(*shape)
    spread = bias.reshape(2, 1, 1, 7) if shape == (2, 7) else bias
    flat = (x + spread).reshape(*x.shape[: axis % 4], -1)
    powers = np.exp(flat - flat.max(-1, keepdims=True))
    expected = (powers / powers.sum(-1, keepdims=True)).reshape(x.shape)
    (found,) = ours("BiasSoftmax", [x, bias], axis=axis, is_inner_broadcast=inner)
    close(found, expected)


def test_dropout_between_a_bias_and_a_residual_keeps_its_ratio() -> None:
    x, bias, residual = floats(40, 50), floats(50), floats(40, 50)
    found, mask = ours("BiasDropout", [x, bias, residual], outputs=2)
    close(found, x + bias + residual)
    assert mask.all()
    arrays = [x, bias, residual, np.array(0.5, np.float32), np.array(True)]
    found, mask = ours("BiasDropout", arrays, outputs=2, seed=3)
    assert abs(mask.mean() - 0.5) < 0.05
    close(found, np.where(mask, (x + bias) * 2, 0) + residual)


def test_rows_are_added_behind_a_gate() -> None:
    x, y = floats(3, 2, 5), floats(3, 2, 5)
    agrees("GatedAdd", [x, y, floats(3, 2, 1)])
    gate, weight = floats(3, 2, 9), floats(9, 1)
    (found,) = ours("GatedAdd", [x, y, gate, weight])
    close(found, x + y * sigmoid(gate @ weight))


@pytest.mark.parametrize("activation", ["silu", "swish", "sigmoid"])
def test_groups_of_columns_are_normalized_and_gated(activation: str) -> None:
    arrays = [floats(2, 3, 15), floats(5), floats(2, 3, 15)]
    agrees("GatedRMSNorm", arrays, activation=activation, epsilon=1e-3)


@pytest.mark.parametrize("scale", [None, (12,), (3, 4), (4,)])
def test_branches_are_normalized_alone(scale: tuple[int, ...] | None) -> None:
    factor = [] if scale is None else [floats(*scale)]
    agrees("BranchwiseRMSNorm", [floats(2, 12), *factor], num_branches=3, epsilon=1e-4)
    agrees("BranchwiseRMSNorm", [floats(2, 3, 4), *factor], epsilon=1e-4)


def test_silu_is_scaled_by_an_attribute_or_an_operand() -> None:
    x = floats(3, 7)
    agrees("ScaledSiLU", [x], alpha=1.7)
    agrees("ScaledSiLU", [x, np.array(0.6, np.float32)])


@pytest.mark.parametrize("limit", [0.0, 0.5])
@pytest.mark.parametrize("rounded", [0, 1])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_swiglu_limits_and_rounds(limit: float, rounded: int, dtype: type) -> None:
    gate, up = floats(3, 7, dtype=dtype), floats(3, 7, dtype=dtype)
    options = {"activation_alpha": 1.702, "activation_beta": 1.0, "limit": limit}
    g, u = (x.astype(np.float64) for x in (gate, up))
    if limit:
        g, u = np.minimum(g, limit), np.clip(u, -limit, limit)
    value = g * sigmoid(1.702 * g)
    value = value.astype(dtype).astype(np.float64) if rounded else value
    atol = 2e-3 if dtype is np.float16 else 1e-5
    for arrays in ([gate, up], [np.concatenate([gate, up], -1)]):
        (found,) = ours("SwiGLU", arrays, round_activation=rounded, **options)
        assert found.dtype == dtype
        close(found.astype(np.float64), value * (u + 1), atol)


# --- normalization of groups


def normalized(x: np.ndarray, groups: int, axis: int, epsilon: float) -> np.ndarray:
    first = np.moveaxis(x.astype(np.float64), axis, 1)
    flat = first.reshape(x.shape[0], groups, -1)
    centred = flat - flat.mean(2, keepdims=True)
    flat = centred / np.sqrt(centred.var(2, keepdims=True) + epsilon)
    return np.moveaxis(flat.reshape(first.shape), 1, axis)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_groups_of_channels_are_normalized_and_activated(
    last: int, activation: int
) -> None:
    shape, axis = ((2, 5, 3, 6), 3) if last else ((2, 6, 5, 3), 1)
    x, gamma, beta = floats(*shape), floats(6), floats(6)
    line = [1, 1, 1, 1]
    line[axis] = 6
    expected = normalized(x, 3, axis, 1e-4) * gamma.reshape(line) + beta.reshape(line)
    expected = expected * sigmoid(expected) if activation else expected
    options = {
        "groups": 3,
        "activation": activation,
        "channels_last": last,
        "epsilon": 1e-4,
    }
    close(ours("GroupNorm", [x, gamma, beta], **options)[0], expected, 1e-4)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("kind", ["pixels", "channels", "channels of images"])
def test_a_skip_is_added_before_groups_are_normalized(kind: str, last: int) -> None:
    shape, axis = ((2, 5, 3, 6), 3) if last else ((2, 6, 5, 3), 1)
    x, gamma, beta, bias = floats(*shape), floats(6), floats(6), floats(6)
    line = [1, 1, 1, 1]
    line[axis] = 6
    skip = {"pixels": floats(*shape), "channels": floats(2, 6),
            "channels of images": floats(2, *line[1:])}[kind]  # fmt: skip
    total = (
        x + (skip.reshape(2, *line[1:]) if skip.ndim == 2 else skip) + bias.reshape(line)
    )
    expected = normalized(total, 2, axis, 1e-5) * gamma.reshape(line) + beta.reshape(line)
    options = {"groups": 2, "activation": 0, "channels_last": last}
    arrays = [x, gamma, beta, skip, bias]
    found, summed = ours("SkipGroupNorm", arrays, outputs=2, **options)
    close(summed, total)
    close(found, expected, 1e-4)


def test_an_activation_that_is_not_known_is_refused() -> None:
    with pytest.raises(ModelError, match="'activation' is 2"):
        ours(
            "GroupNorm", [floats(1, 2, 2, 4), floats(4), floats(4)], groups=2, activation=2
        )


# --- the rest


@pytest.mark.parametrize("options", [{}, {"isnan_only": 1}, {"isinf_only": 1}])
def test_all_elements_of_all_tensors_may_have_to_be_finite(options: dict[str, int]) -> None:
    plain, nan, inf = floats(3, 2), floats(5), floats(1)
    nan[2], inf[0] = np.nan, -np.inf
    for arrays, bad in (([plain], False), ([plain, nan], "nan"), ([inf, plain], "inf")):
        only = {"isnan_only": "nan", "isinf_only": "inf"}.get(next(iter(options), ""))
        expected = not bad if only is None else bad != only
        assert ours("IsAllFinite", arrays, **options)[0] == expected


def test_rows_of_a_table_are_looked_up() -> None:
    table, indices = floats(9, 4), np.array([[3, 8], [0, 3]])
    close(ours("TorchEmbedding", [table, indices])[0], table[indices])


# --- products


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("Relu", ()), ("Tanh", ()), ("Sigmoid", ()), ("Softplus", ()), ("Softsign", ()),
        ("LeakyRelu", (0.2,)), ("ThresholdedRelu", (0.5,)), ("Elu", (0.5,)),
        ("HardSigmoid", (0.3, 0.4)), ("ScaledTanh", (0.7, 1.3)), ("ParametricSoftplus", (0.7, 1.3)),
    ],
)  # fmt: skip
def test_a_product_is_activated(name: str, numbers: tuple[float, ...]) -> None:
    keys = ("activation_alpha", "activation_beta")
    options = dict(zip(keys, numbers, strict=False))
    arrays = [floats(3, 5), floats(7, 5), floats(7)]
    agrees("FusedGemm", arrays, activation=name, transB=1, alpha=0.5, beta=2.0, **options)


def test_products_of_turned_operands() -> None:
    agrees("TransposeMatMul", [floats(2, 5, 3), floats(2, 5, 4)], transA=1, alpha=0.5)
    a, b = floats(5, 2, 3), floats(2, 3, 4)
    agrees("FusedMatMul", [a, b], transBatchA=1)
    agrees("FusedMatMul", [b, floats(4, 2, 6)], transBatchB=1)
    (found,) = ours(
        "FusedMatMulActivation", [b, floats(2, 4, 5)], activation="Relu", alpha=2.0
    )
    assert found.min() == 0
    x, w, bias = floats(2, 3), floats(3, 5), floats(5)
    h = (x @ w + bias).astype(np.float64)
    tanh = np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3))
    close(ours("GemmFastGelu", [x, w, bias])[0], h / 2 * (1 + tanh))


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances_between_rows(metric: str) -> None:
    agrees("CDist", [floats(3, 5), floats(4, 5)], metric=metric)
