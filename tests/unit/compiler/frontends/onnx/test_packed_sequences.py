"""Batches without padding: packed, attended, restored, against attention of every sequence alone."""

import itertools

import numpy as np
import pytest

import tilewright.onnx_backend as backend
from fakes import onnx_models
from fakes.contributed import ours

RNG = np.random.default_rng(37)
LENGTHS = [3, 1, 5]
TOKENS, LONGEST = sum(LENGTHS), 5


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def offsets() -> tuple[np.ndarray, np.ndarray]:
    """Places of tokens, then of padding; where sequences begin."""
    places = np.arange(len(LENGTHS) * LONGEST).reshape(len(LENGTHS), LONGEST)
    kept = np.arange(LONGEST) < np.array(LENGTHS)[:, None]
    order = np.concatenate([places[kept], places[~kept]]).reshape(places.shape)
    begins = np.concatenate([[0], np.cumsum(LENGTHS)])
    return order.astype(np.int32), begins.astype(np.int32)


def alone(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int, bias: np.ndarray | None
) -> np.ndarray:
    parts: list[np.ndarray] = []
    begins = offsets()[1]
    for number, (start, stop) in enumerate(itertools.pairwise(begins)):
        split = [
            x[start:stop].reshape(stop - start, heads, -1).swapaxes(0, 1).astype(np.float64)
            for x in (q, k, v)
        ]
        scores = split[0] @ split[1].swapaxes(1, 2) / np.sqrt(split[0].shape[2])
        if bias is not None:
            own = bias[number % len(bias)]
            scores = scores + own[:, : stop - start, : stop - start]
        p = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = p / p.sum(-1, keepdims=True) @ split[2]
        parts.append(mixed.swapaxes(0, 1).reshape(stop - start, -1))
    return np.concatenate(parts)


@pytest.mark.slow
def test_padding_is_removed_and_restored_compiled_for_any_size() -> None:
    text = """graph (float[B,S,H] x, int32[B] n) => (float[T,H] p, int32[B,S] o, int32[C] c, int32[1] m, float[B,S,H] y) {
          p, o, c, m = com.microsoft.RemovePadding (x, n)
          y = com.microsoft.RestorePadding (p, o)
        }"""
    prepared = backend.prepare(onnx_models.parse(text))
    x, (order, begins) = floats(3, LONGEST, 4), offsets()
    packed, places, starts, longest, restored = prepared.run(
        [x, np.array(LENGTHS, np.int32)]
    )
    kept = np.arange(LONGEST) < np.array(LENGTHS)[:, None]
    np.testing.assert_array_equal(packed, x[kept])
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(starts, begins)
    assert longest.tolist() == [LONGEST]
    np.testing.assert_array_equal(restored, np.where(kept[..., None], x, 0))


def test_packed_projections_attend_to_their_own_sequence() -> None:
    x, w, bias = floats(TOKENS, 7), floats(7, 8 + 8 + 6), floats(22)
    extra = floats(1, 2, LONGEST, LONGEST)
    for added in (None, extra):
        arrays = [x, w, bias, *offsets(), added]
        (found,) = ours("PackedAttention", arrays, num_heads=2, qkv_hidden_sizes=[8, 8, 6])
        q, k, v = np.split(x @ w + bias, [8, 16], 1)
        np.testing.assert_allclose(found, alone(q, k, v, 2, added), atol=1e-5)


def test_queries_keys_and_values_apart_or_side_by_side_attend_to_their_own_sequence() -> (
    None
):
    q, k, v, bias = floats(TOKENS, 8), floats(TOKENS, 8), floats(TOKENS, 8), floats(24)
    added = [x + b for x, b in zip((q, k, v), np.split(bias, 3), strict=True)]
    expected = alone(*added, 2, None)
    rest = [bias, *offsets()]
    (found,) = ours("PackedMultiHeadAttention", [q, k, v, *rest], num_heads=2)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    side = np.stack([x.reshape(TOKENS, 2, 4) for x in (q, k, v)], 2)
    (found,) = ours("PackedMultiHeadAttention", [side, None, None, *rest], num_heads=2)
    np.testing.assert_allclose(found, expected, atol=1e-5)
