from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.api.language.constraints import Constraint, TextForm
from tilewright.api.language.json_schemas import grammar_of
from tilewright.api.language.sampling import GREEDY, Sampler, Sampling, likely
from tilewright.api.language.token_trees import TokenTree
from tilewright.base.errors import UserError

SCORES = np.log(np.array([0.05, 0.5, 0.15, 0.3], np.float32))


def _chosen(**options: float) -> list[int]:
    plain = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    return likely(SCORES, Sampling(**(plain | options)))[0].tolist()  # type: ignore[arg-type]


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert Sampler(GREEDY).choose(np.array([1, 3, 3, 2], np.float32)) == 1


def test_each_bound_leaves_the_most_likely() -> None:
    assert _chosen() == [1, 3, 2, 0]
    assert _chosen(top_k=2) == [1, 3]
    assert _chosen(top_p=0.7) == [1, 3]
    assert _chosen(top_p=0.81) == [1, 3, 2]
    assert _chosen(top_p=0) == [1]
    assert _chosen(min_p=0.5) == [1, 3]
    assert _chosen(min_p=1) == [1]


def test_shares_are_those_of_the_softmax() -> None:
    plain = Sampling(temperature=2.0, top_k=0, top_p=1, min_p=0)
    tokens, shares = likely(SCORES, plain)
    powers = np.sqrt([0.5, 0.3, 0.15, 0.05])
    assert tokens.tolist() == [1, 3, 2, 0]
    assert np.allclose(shares, powers / powers.sum())


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    sampler = Sampler(Sampling(temperature=1, top_k=0, top_p=1, min_p=0, seed=3))
    counts = np.bincount([sampler.choose(SCORES) for _ in range(4000)], minlength=4)
    assert np.abs(counts / 4000 - np.exp(SCORES)).max() < 0.03


def test_a_seed_draws_the_same_again() -> None:
    drawn = [[Sampler(Sampling(seed=s)).choose(SCORES) for _ in range(3)] for s in (1, 1)]
    assert drawn[0] == drawn[1]
    many = {tuple(_draws(seed)) for seed in range(10)}
    assert len(many) > 1


def _draws(seed: int) -> list[int]:
    sampler = Sampler(Sampling(seed=seed, temperature=2.0))
    return [sampler.choose(SCORES) for _ in range(8)]


@pytest.mark.parametrize(
    "scores",
    [
        [np.nan, np.nan],
        [np.inf, 1.0],
        [-np.inf, -np.inf],
        [3.0],
        [np.nan, 1.0, 2.0],
    ],
)
def test_scores_that_are_no_numbers_draw_a_token_all_the_same(scores: list[float]) -> None:
    with np.errstate(all="ignore"):
        token = Sampler(Sampling(seed=0)).choose(np.array(scores, np.float32))
    assert 0 <= token < len(scores)


def _greedy(count: int, scores: list[float], prompt: tuple[int, ...] = (), **options: Any) -> list[int]:  # fmt: skip
    sampler = Sampler(Sampling(temperature=0, **options), prompt)
    held = np.array(scores, np.float32)
    drawn = [sampler.choose(held) for _ in range(count)]
    assert held.tolist() == np.array(scores, np.float32).tolist(), "scores stay"
    return drawn


def test_penalties_count_what_was_drawn() -> None:
    scores = [3.0, 2.5, 1.0]
    assert _greedy(3, scores) == [0, 0, 0]
    assert _greedy(3, scores, presence_penalty=1) == [0, 1, 0]
    # 3, 2.5; 2, 2.5; 2, 1.5; 1, 1.5; 1, .5 beside 1: the first of the largest
    assert _greedy(6, scores, frequency_penalty=1) == [0, 1, 0, 1, 0, 2]
    assert _greedy(3, scores, frequency_penalty=1, prompt=(0, 0, 0)) == [0, 1, 0]
    assert _greedy(2, scores, presence_penalty=-5, logit_bias={2: 2.5}) == [2, 2]


def test_repetition_makes_scores_smaller_on_both_sides_of_zero() -> None:
    assert _greedy(1, [3.0, 2.5], (0,), repetition_penalty=1.5) == [1]
    assert _greedy(1, [-2.0, -2.5], (0,), repetition_penalty=1.5) == [1]
    assert _greedy(2, [3.0, 2.5], repetition_penalty=1.5) == [0, 1]
    assert _greedy(3, [3.0, 2.5, 2.2], (2, 2), repetition_penalty=1.5) == [0, 1, 0]


def test_a_bias_takes_a_token_away() -> None:
    assert _greedy(1, [3.0, 2.5], logit_bias={0: -100}) == [1]


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 0},
        {"repetition_penalty": float("inf")},
        {"presence_penalty": float("nan")},
        {"frequency_penalty": float("inf")},
        {"temperature": -1},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"seed": -1},
    ],
)
def test_options_that_make_no_sense_are_errors(options: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"{next(iter(options))} is "):
        Sampling(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1e-320}, {"temperature": 1e308}, {"repetition_penalty": 1e308}, {"repetition_penalty": 1e-308},
        {"presence_penalty": 1e308}, {"frequency_penalty": -1e308}, {"logit_bias": {1: 1e308}}, {"logit_bias": {1: -1e308}},
        {"top_p": 0}, {"min_p": 1}, {"top_k": 10**12},
    ],
)  # fmt: skip
@pytest.mark.parametrize("temperature", [0, None])
def test_numbers_at_their_ends_draw_tokens_and_warn_of_nothing(
    options: dict[str, Any], temperature: int | None
) -> None:
    given = options if temperature is None else {**options, "temperature": temperature}
    sampler = Sampler(Sampling(seed=1, **given), [0, 2])
    scores = np.array([0.0, 2.0, -3.0, 1.0], np.float32)
    assert all(0 <= sampler.choose(scores) < 4 for _ in range(4))


def test_scores_that_are_no_numbers_are_not_drawn() -> None:
    """Where there are others; of those alone the first."""
    scores = np.array([np.nan, 1.0, np.nan, 3.0], np.float32)
    for options in ({"temperature": 0}, {}, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}):
        sampler = Sampler(Sampling(seed=1, **options))
        assert {sampler.choose(scores) for _ in range(20)} <= {1, 3}
    assert Sampler(Sampling(temperature=0)).choose(scores) == 3
    for value in (np.nan, -np.inf, np.inf):
        flat = np.full(4, value, np.float32)
        assert Sampler(Sampling(temperature=0)).choose(flat) == 0
        assert 0 <= Sampler(Sampling(seed=1)).choose(flat) < 4
    scores = np.array([1.0, np.inf, -np.inf, 3.0], np.float32)
    assert Sampler(Sampling(seed=1)).choose(scores) == 1


def test_only_what_a_form_allows_is_drawn() -> None:
    tree = TokenTree([b"x", b"1", b"true", b"2", b""], [4])
    form = TextForm(tree, *grammar_of({"enum": [12, True]}))
    scores = np.array([9, 1, 0.5, 5, 3], np.float32)
    for sampling, bias in (
        (GREEDY, 0),
        (Sampling(temperature=5, top_k=0, top_p=1, min_p=0), 1),
    ):
        for _ in range(20 if bias else 1):
            sampler = Sampler(sampling, constraint=Constraint(form))
            first = sampler.choose(scores)
            assert first in (1, 2)
            if first == 1:
                assert not sampler.is_complete
                assert sampler.choose(scores) == 3
            assert sampler.is_complete
            assert sampler.choose(scores) == 4


@pytest.mark.parametrize(
    "scores", [np.full(3, np.nan), np.full(3, -np.inf), np.array([1, np.nan, -np.inf])]
)
def test_a_form_is_kept_to_whatever_scores_are(scores: np.ndarray) -> None:
    tree = TokenTree([b"x", b"1", b""], [2])
    for sampling in (GREEDY, Sampling(seed=1)):
        sampler = Sampler(
            sampling, constraint=Constraint(TextForm(tree, *grammar_of({"const": 1})))
        )
        assert sampler.choose(scores.astype(np.float32)) == 1
