"""Attributes of ops survive JSON, and nothing else is accepted."""

from __future__ import annotations

import json
import math

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import decode_attribute, encode_attribute, resolve_attribute

n = symbol("n", 1)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -7, 1.5, math.inf, -math.inf, "text", (), (1, 2), ("a", (1.0, None)),
        dtypes.f16, n, (n + 1, 3, n // 2), float(np.float32(0.1)),
    ],
)  # fmt: skip
def test_a_value_survives_json(value: object) -> None:
    assert decode_attribute(json.loads(json.dumps(encode_attribute(value)))) == value


def test_nan_survives_json() -> None:
    text = json.dumps(encode_attribute(math.nan), allow_nan=False)
    decoded = decode_attribute(json.loads(text))
    assert isinstance(decoded, float)
    assert math.isnan(decoded)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.array(3.5, np.float32),
        np.zeros((0, 4), np.float64),
        np.array([True, False]),
        np.arange(8, dtype=np.float32).reshape(2, 4).T,
        np.array([1.5, -2], ml_dtypes.bfloat16),
        np.array([-8, 7], ml_dtypes.int4),
    ],
    ids=lambda a: f"{a.dtype}{list(a.shape)}",
)
def test_an_array_survives_json(array: np.ndarray) -> None:
    decoded = decode_attribute(json.loads(json.dumps(encode_attribute(array))))
    assert isinstance(decoded, np.ndarray)
    assert decoded.dtype == array.dtype
    np.testing.assert_array_equal(decoded, array)


def test_numpy_scalars_become_numbers() -> None:
    assert encode_attribute(np.int64(3)) == 3
    assert encode_attribute(np.float64(0.5)) == 0.5
    assert encode_attribute(np.bool_(True)) is True


def test_dimensions_become_numbers_where_values_are_given() -> None:
    encoded = encode_attribute((n, (2 * n + 1,), "n"))
    assert decode_attribute(encoded, {"n": 5}) == (5, (11,), "n")
    assert resolve_attribute((n, (2 * n + 1,), "n"), {"n": 5}) == (5, (11,), "n")


def test_a_value_without_a_form_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be stored in a plan"):
        encode_attribute(object())


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"dtype": "f33"},
        {"dtype": 3},
        {"dim": "n +"},
        {"float": "many"},
        {"array": "AAAA", "type": "f32", "shape": [1]},
        {"array": "AAAAAA==", "type": "f32", "shape": [2]},
        {"array": "AAAAAA==", "type": "f32", "shape": [-1, -1]},
        {"array": "AAAAAA==", "type": "f32", "shape": [1.0]},
        {"array": "AAAAAA==", "type": "f32", "shape": [1] * 65},
        {"array": "!", "type": "f32", "shape": [1]},
        {"array": "", "type": "f32", "shape": "0"},
        {"array": "", "type": "f32"},
        [{"dtype": None}],
    ],
)
def test_malformed_values_are_refused(value: object) -> None:
    with pytest.raises(ArchiveError, match="plan:"):
        decode_attribute(value)


def test_an_array_of_another_size_says_how_much_there_is() -> None:
    value = {"array": "AAAA", "type": "u8", "shape": [4]}
    with pytest.raises(ArchiveError, match="attribute has 3 bytes, expected 4"):
        decode_attribute(value)
