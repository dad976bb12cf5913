"""Philox against the answers that its authors publish."""

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.random_bits import (
    high_word,
    low_word,
    of_words,
    philox,
)
from tilewright.compiler.graph.ir import Graph


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)  # fmt: skip
def test_words_are_those_of_random123(
    counter: list[int], key: list[int], expected: list[int]
) -> None:
    e = NodeMaker(Graph("words"))
    words = philox(
        e,
        [e.scalar(k, dtypes.u32) for k in key],
        [e.scalar(c, dtypes.u32) for c in counter],
    )
    assert [int(word.array) for word in words] == expected


def test_words_are_the_halves_of_numbers() -> None:
    e = NodeMaker(Graph("halves"))
    numbers = np.array([0x0123456789ABCDEF, 2**64 - 1, 0], np.uint64)
    low, high = (half(e, e.constant(numbers)) for half in (low_word, high_word))
    assert low.array.tolist() == [0x89ABCDEF, 2**32 - 1, 0]
    assert high.array.tolist() == [0x01234567, 2**32 - 1, 0]
    np.testing.assert_array_equal(of_words(e, low, high).array, numbers)
