from __future__ import annotations

import numpy as np
import pytest

from tilewright.api.language.token_scores import LEAST, token_score


def test_scores_become_logarithms_of_probabilities() -> None:
    scores = np.array([1.0, 3.0, 2.0, -50.0], np.float32)
    exact = scores - np.log(np.exp(scores.astype(np.float64)).sum())
    found = token_score(scores, 2, 2, 7)
    assert (found.token, found.start) == (2, 7)
    assert found.logprob == pytest.approx(exact[2])
    assert [t for t, _ in found.likely] == [1, 2]
    assert [p for _, p in found.likely] == pytest.approx([exact[1], exact[2]])
    assert token_score(scores, 2, 0, 0).likely == ()
    assert len(token_score(scores, 2, 20, 0).likely) == 4


@pytest.mark.parametrize(
    "scores",
    [
        [np.nan, 1.0],
        [np.inf, 1.0],
        [-np.inf, -np.inf],
        [0.0, -np.inf],
        [3e38, -3e38],
        [2.0],
    ],
)
def test_whatever_the_scores_are_numbers_come_out(scores: list[float]) -> None:
    found = token_score(np.array(scores, np.float32), 0, 5, 0)
    numbers = [found.logprob, *(p for _, p in found.likely)]
    assert all(LEAST <= number <= 0 for number in numbers)


def test_large_scores_do_not_overflow() -> None:
    found = token_score(np.array([1e4, 1e4], np.float32), 0, 1, 0)
    assert found.logprob == pytest.approx(np.log(0.5))
