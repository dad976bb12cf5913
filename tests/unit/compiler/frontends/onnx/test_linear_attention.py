"""Attention without a softmax and the convolution in front of it, beside onnxruntime's CPU kernels."""

import numpy as np
import pytest

import tilewright as tw
from fakes import onnx_models
from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def operands(
    rule: str, tokens: int, queries: int, keys: int, *, past: bool, vector: bool = False
) -> list[np.ndarray | None]:
    batch, depth, width = 2, 5, 3
    key = floats(batch, tokens, keys, depth)
    key /= np.linalg.norm(key, axis=-1, keepdims=True)
    decay = -np.abs(floats(batch, tokens, keys * (depth if vector else 1)))
    beta = RNG.uniform(0, 1, (batch, tokens, keys)).astype(np.float32)
    return [
        floats(batch, tokens, queries * depth),
        key.reshape(batch, tokens, keys * depth),
        floats(batch, tokens, keys * width),
        floats(batch, keys, depth, width) if past else None,
        decay if "gated" in rule else None,
        beta if "delta" in rule else None,
    ]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize(
    "heads", [(1, 1), (4, 2), pytest.param((2, 2), marks=pytest.mark.slow), (2, 4)]
)
def test_every_rule_of_a_state(rule: str, heads: tuple[int, int]) -> None:
    for tokens, past in ((1, True), (4, False), (37, True)):
        arrays = operands(rule, tokens, *heads, past=past)
        agrees(
            "LinearAttention", arrays, outputs=2, update_rule=rule,
            q_num_heads=heads[0], kv_num_heads=heads[1],
        )  # fmt: skip


def test_a_decay_of_every_element_of_a_key_and_a_scale() -> None:
    for rule in ("gated", "gated_delta"):
        arrays = operands(rule, 3, 2, 2, past=True, vector=True)
        agrees(
            "LinearAttention", arrays, outputs=2, update_rule=rule, q_num_heads=2,
            kv_num_heads=2, scale=0.3,
        )  # fmt: skip


@pytest.mark.slow
def test_any_number_of_tokens_is_compiled_once() -> None:
    text = """graph (float[B,T,10] q, float[B,T,10] k, float[B,T,6] v) => (float[B,T,6] y, float[B,2,5,3] s) {
      y, s = com.microsoft.LinearAttention<q_num_heads = 2, kv_num_heads = 2, update_rule = "linear"> (q, k, v)
    }"""
    model = tw.compile(onnx_models.parse(text))
    for tokens in (1, 9):
        q, k, v, *_ = operands("linear", tokens, 2, 2, past=False)
        expected = ours("LinearAttention", [q, k, v], outputs=2, q_num_heads=2, kv_num_heads=2, update_rule="linear")  # fmt: skip
        for one, other in zip(model(q, k, v), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_states_of_several_tokens_are_refused() -> None:
    arrays = operands("linear", 2, 1, 1, past=False)
    with pytest.raises(ModelError, match="state_window"):
        ours("LinearAttention", arrays, q_num_heads=1, kv_num_heads=1, state_window=2, update_rule="linear")  # fmt: skip


def test_gates_of_a_state() -> None:
    a, bias, scale, b = floats(2, 3, 4), floats(4), -np.abs(floats(4)), floats(2, 3, 4)
    a[0, 0] = [80, -80, np.inf, 0]
    agrees("LinearAttentionGate", [a, bias, scale, b], outputs=2)
    agrees("LinearAttentionGate", [a, bias, scale])


@pytest.mark.thinned(5)
@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("dilation", [1, 3])
def test_a_convolution_that_looks_back_carries_what_it_saw(
    taps: int, dilation: int
) -> None:
    x, w, bias = floats(2, 6, 5), floats(6, 1, taps), floats(6)
    past = floats(2, 6, (taps - 1) * dilation)
    for arrays in ([x, w, bias, past], [x, w], [x[..., :1], w, None, past]):
        if past.size or len(arrays) < 4:
            agrees("CausalConvWithState", arrays, outputs=2, dilation=dilation)
            agrees("CausalConvWithState", arrays, outputs=2, dilation=dilation, activation="silu")  # fmt: skip


def test_channels_may_come_last() -> None:
    x, w, past = floats(2, 5, 6), floats(6, 1, 3), floats(2, 2, 6)
    agrees("CausalConvWithState", [x, w, None, past], outputs=2, channels_last=1)
