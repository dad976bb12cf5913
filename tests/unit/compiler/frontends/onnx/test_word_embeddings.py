"""Words as vectors of their characters, beside onnxruntime's CPU kernel."""

import numpy as np
import pytest

from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(37)


def _weights(filters: int, kernel: int, features: int) -> list[np.ndarray]:
    shapes = ((filters, 1, kernel, features), (filters,), (6, features))
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("kernel", [1, 2, 3, 5])
def test_words_are_as_long_as_they_have_characters(kernel: int) -> None:
    words = [
        [1, 2, 3, 0, 0],
        [2, 0, 0, 0, 0],
        [1, 0, 2, 3, 0],
        [1, 2, 3, 4, 5],
        [5, 5, 0, 0, 1],
    ]
    agrees("WordConvEmbedding", [np.array(words, np.int32), *_weights(4, kernel, 2)])


def test_a_sentence_may_be_empty_and_is_one_sentence() -> None:
    words = RNG.integers(1, 6, (3, 4)).astype(np.int32)
    agrees("WordConvEmbedding", [words[:1], *_weights(3, 2, 5)])
    agrees("WordConvEmbedding", [words[:0], *_weights(3, 2, 5)])
    with pytest.raises(ModelError, match=r"expected \[words, characters\]"):
        ours("WordConvEmbedding", [words[None], *_weights(3, 2, 5)])


def test_what_has_no_character_is_zero() -> None:
    words = np.array([[0, 1, 2], [3, 1, 0], [0, 0, 0]], np.int32)
    (found,) = ours("WordConvEmbedding", [words, *_weights(4, 2, 2)])
    assert (found == 0).all(1).tolist() == [True, False, True]


def test_words_shorter_than_the_kernel_are_an_error() -> None:
    with pytest.raises(ModelError, match="shorter than the kernel 3"):
        ours("WordConvEmbedding", [np.ones((1, 2), np.int32), *_weights(4, 3, 2)])
