"""Mixtures of experts beside onnxruntime, and where it has no kernel beside the formula."""

import numpy as np
import pytest

import tilewright.onnx_backend as backend
from fakes import onnx_models
from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(17)


def floats(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / 2).astype(np.float32)


def operands(
    rows: tuple[int, ...], experts: int, *, width: int = 1, hidden: int = 6, inner: int = 10
) -> list[np.ndarray]:
    return [
        floats(*rows, hidden), floats(int(np.prod(rows)), experts),
        floats(experts, width * inner, hidden), floats(experts, width * inner),
        floats(experts, hidden, inner), floats(experts, hidden),
    ]  # fmt: skip


@pytest.mark.thinned(5)
@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "identity"])
@pytest.mark.parametrize("normalized", [0, 1])
def test_rows_go_through_the_experts_of_their_router(
    activation: str, normalized: int
) -> None:
    for rows, experts, k in (((7,), 5, 2), ((2, 3), 4, 4), ((1,), 3, 1)):
        agrees(
            "MoE", operands(rows, experts), k=k, activation_type=activation,
            normalize_routing_weights=normalized, atol=1e-4,
        )  # fmt: skip


def test_biases_may_be_left_out() -> None:
    arrays: list[np.ndarray | None] = [*operands((4,), 3)]
    arrays[3] = arrays[5] = None
    agrees("MoE", arrays[:5], k=2, atol=1e-4)


@pytest.mark.parametrize("limit", [{}, {"swiglu_limit": 0.4}])
def test_halves_that_alternate_gate_each_other(limit: dict[str, float]) -> None:
    agrees(
        "MoE", operands((5,), 4, width=2), k=2, activation_type="swiglu", swiglu_fusion=1,
        activation_alpha=1.702, activation_beta=1.0, atol=1e-4, **limit,
    )  # fmt: skip


def formula(
    arrays: list[np.ndarray], k: int, first: str, gate: list[np.ndarray] | None
) -> np.ndarray:
    x, logits, w1, b1, w2, b2 = (a.astype(np.float64) for a in arrays)
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    total = np.zeros_like(x)
    for row, expert in np.ndindex(p.shape):
        if expert not in np.argsort(-p[row], kind="stable")[:k]:
            continue
        h = w1[expert] @ x[row] + b1[expert]
        if first == "halves":
            h, other = np.split(h, 2)
        elif gate is not None:
            other = gate[0][expert] @ x[row] + gate[1][expert]
        h = h / (1 + np.exp(-h)) * other
        total[row] += p[row, expert] * (w2[expert] @ h + b2[expert])
    return total


def test_halves_side_by_side_and_a_third_layer_gate_by_the_formula() -> None:
    arrays = operands((5,), 4, width=2)
    (found,) = ours("MoE", arrays, k=2, activation_type="swiglu", swiglu_fusion=2)
    np.testing.assert_allclose(found, formula(arrays, 2, "halves", None), atol=1e-5)
    arrays, gate = operands((5,), 4), [floats(4, 10, 6), floats(4, 10)]
    for activation in ("silu", "swiglu"):
        (found,) = ours("MoE", [*arrays, *gate], k=3, activation_type=activation)
        np.testing.assert_allclose(found, formula(arrays, 3, "", gate), atol=1e-5)


def packed(values: np.ndarray, bits: int) -> np.ndarray:
    if bits == 8:
        return values
    if values.shape[-1] % 2:
        values = np.concatenate([values, values[..., :1] * 0], -1)
    return values[..., ::2] | values[..., 1::2] << 4


@pytest.mark.thinned(3)
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("has_zero", [False, True])
def test_weights_of_few_bits_mean_what_onnxruntime_makes_of_them(
    bits: int, block: int, has_zero: bool
) -> None:
    experts, hidden, inner = 3, 32, 48
    arrays: list[np.ndarray | None] = [floats(7, hidden), floats(7, experts)]
    zeros: list[np.ndarray | None] = []
    for out, depth in ((inner, hidden), (hidden, inner)):
        shape = (experts, out, depth // block) if block else (experts, out)
        arrays += [
            packed(RNG.integers(0, 1 << bits, (experts, out, depth), dtype=np.uint8), bits),
            (RNG.uniform(0.16, 0.32, shape) / (1 << bits)).astype(np.float32),
            floats(experts, out),
        ]
        zeros.append(
            packed(RNG.integers(0, 1 << bits, shape, dtype=np.uint8), bits)
            if has_zero
            else None
        )
    arrays += [None, None, None, *zeros]
    # onnxruntime rounds what 8 bits in blocks multiply to bytes.
    loose = 0.05 if bits == 8 and block else 2e-3
    options = {"block_size": block} if block else {}
    constants = [2, 3, 5, 6, *([11, 12] if has_zero else [])]
    agrees(
        "QMoE", arrays if has_zero else arrays[:8], k=2, activation_type="silu", atol=loose, rtol=loose,
        expert_weight_bits=bits, constants=constants, **options,
    )  # fmt: skip


@pytest.mark.parametrize("normalized", [0, 1])
def test_weights_of_results_may_be_other_than_those_that_choose(normalized: int) -> None:
    experts, hidden, inner = 4, 32, 16
    arrays: list[np.ndarray | None] = [floats(5, hidden), floats(5, experts)]
    for out, depth in ((inner, hidden), (hidden, inner)):
        values = RNG.integers(0, 16, (experts, out, depth), dtype=np.uint8)
        scale = RNG.uniform(0.01, 0.02, (experts, out)).astype(np.float32)
        arrays += [packed(values, 4), scale, None]
    arrays += [None] * 6
    arrays.append(RNG.uniform(0.1, 1, (5, experts)).astype(np.float32))
    agrees(
        "QMoE", arrays, k=2, normalize_routing_weights=normalized, constants=[2, 3, 5, 6]
    )


@pytest.mark.slow
def test_experts_compiled_once_take_any_number_of_rows() -> None:
    text = """graph (float[N,6] x, float[N,4] p, float[4,20,6] a, float[4,6,10] b) => (float[N,6] y) {
          y = com.microsoft.MoE <k = 2, activation_type = "swiglu", swiglu_fusion = 1> (x, p, a, , b)
        }"""
    model = onnx_models.parse(text)
    prepared = backend.prepare(model)
    _, _, a, _, b, _ = operands((1,), 4, width=2)
    for rows in (1, 9, 40):
        x, p = floats(rows, 6), floats(rows, 4)
        (found,) = prepared.run([x, p, a, b])
        options = {"k": 2, "activation_type": "swiglu", "swiglu_fusion": 1}
        (expected,) = ours("MoE", [x, p, a, None, b], **options)
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_forms_that_mean_something_else_are_refused_by_name() -> None:
    with pytest.raises(ModelError, match="use_sparse_mixer"):
        ours("MoE", operands((3,), 4), k=2, use_sparse_mixer=1)
    with pytest.raises(ModelError, match="5 of 4 experts"):
        ours("MoE", operands((3,), 4), k=5)
