"""Biases and turns by distance, beside onnxruntime or the code of the models that they come from."""

import math

import numpy as np
import pytest

from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(31)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def bucket(distance: int, count: int, most: int, both_ways: bool) -> int:
    """T5's own, of one distance."""
    first = 0
    if both_ways:
        count //= 2
        first, distance = (count if distance > 0 else 0), abs(distance)
    else:
        distance = -min(distance, 0)
    exact = count // 2
    if distance < exact:
        return first + distance
    part = math.log(distance / exact) / math.log(most / exact)
    return first + min(exact + int(part * (count - exact)), count - 1)


@pytest.mark.parametrize("both_ways", [0, 1])
@pytest.mark.parametrize(("rows", "keys"), [(40, 40), (1, 1), (7, 33)])
def test_distances_fall_into_the_buckets_of_t5(
    rows: int, keys: int, both_ways: int
) -> None:
    table = floats(3, 8)  # head after head
    lengths = [np.array([n]) for n in (rows, keys)]
    arrays = [table.reshape(8, 3), *lengths]
    options = {"max_distance": 20, "is_bidirectional": both_ways}
    (found,) = ours("RelativePositionBias", arrays, constants=(1, 2), **options)
    expected = [
        [
            [line[bucket(k - q, 8, 20, bool(both_ways))] for k in range(keys)]
            for q in range(rows)
        ]
        for line in table
    ]
    np.testing.assert_array_equal(found, [expected])
    (computed,) = ours("RelativePositionBias", arrays, **options)
    np.testing.assert_array_equal(computed, found)


def test_a_bias_of_distances_is_gated_by_queries() -> None:
    query, bias, rel = floats(2, 5, 12), floats(12), floats(1, 3, 5, 5)
    weight, shift, factor = floats(4, 8), floats(8), floats(1, 3, 1, 1)
    arrays = [query, bias, rel, weight, shift, factor]
    (found,) = ours("GatedRelativePositionBias", arrays, num_heads=3)
    q = (query + bias).reshape(2, 5, 3, 4).transpose(0, 2, 1, 3).astype(np.float64)
    gates = (q @ weight + shift).reshape(2, 3, 5, 2, 4).sum(-1)
    update, reset = np.split(1 / (1 + np.exp(-gates)), 2, -1)
    expected = (update * (reset * factor - 1) + 2) * rel
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_gemma_turns_by_angles_in_the_type_of_queries() -> None:
    angles = floats(2, 5, 4)
    states = [floats(2, 3, 5, 4).astype(np.float16) for _ in range(4)]
    found = ours("GemmaRotaryEmbedding", [angles, *states], outputs=2)
    sin, cos = (f(angles)[:, None].astype(np.float16) for f in (np.sin, np.cos))
    for result, (x, turned) in zip(found, (states[:2], states[2:]), strict=True):
        assert result.dtype == np.float16
        np.testing.assert_allclose(result, x * cos + turned * sin, atol=4e-3)


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("rank", [3, 4])
def test_three_positions_turn_columns(layout: int, interleaved: int, rank: int) -> None:
    sections = [4, 2, 2]
    half = sum(sections)
    places = RNG.integers(0, 11, (3, 2, 5))
    tables = [floats(11, half), floats(11, half)]
    x = floats(2, 5, 3 * 2 * half) if rank == 3 else floats(2, 3, 5, 2 * half)
    agrees(
        "MRotaryEmbedding", [x, places, *tables], mrope_section=sections, mrope_layout=layout,
        interleaved=interleaved, num_heads=3, rotary_embedding_dim=2 * half,
    )  # fmt: skip


def test_sections_have_to_fill_the_tables() -> None:
    arrays = [floats(1, 2, 8), np.zeros((3, 1, 2), np.int64), floats(4, 4), floats(4, 4)]
    with pytest.raises(ModelError, match="expected a sum of 4"):
        ours("MRotaryEmbedding", arrays, mrope_section=[2, 1, 2])
