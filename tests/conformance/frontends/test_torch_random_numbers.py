"""Random numbers of compiled modules: how often they come, and that another call draws others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tw

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]
COUNT = 40_000


class Drawn(nn.Module):
    def __init__(self, draw: Callable[..., object]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x):
        return self.draw(x)


def twice(draw: Callable[..., object], x: object) -> tuple[np.ndarray, np.ndarray]:
    model = tw.compile(Drawn(draw).eval(), args=(x,), opt_level=2)
    return model(x).double().numpy(), model(x).double().numpy()


@pytest.mark.parametrize(
    ("draw", "mean", "deviation"),
    [
        (torch.rand_like, 0.5, 12**-0.5),
        (lambda x: torch.randn(x.shape) + x * 0, 0, 1),
        (lambda x: torch.normal(x, 2.0), 1, 2),
        (lambda x: torch.randint_like(x, 3, 8), 5, 2**0.5),
        (lambda x: torch.bernoulli(x * 0.25), 0.25, (0.25 * 0.75) ** 0.5),
        (lambda x: nn.functional.dropout(x, 0.2, training=True), 1, 0.5),
        (lambda x: torch.empty_like(x).exponential_(2.0), 0.5, 0.5),
        (
            lambda x: torch.multinomial(x[:4] * torch.tensor([1.0, 0, 2, 1]), 40_000, True),
            1.75,
            1.0897,
        ),
    ],
)
def test_draws_have_their_mean_and_deviation_and_come_once(
    draw: Callable[..., object], mean: float, deviation: float
) -> None:
    first, second = twice(draw, torch.ones(COUNT))
    for drawn in (first, second):
        # Six deviations of the mean of so many numbers.
        assert abs(drawn.mean() - mean) < 6 * deviation / COUNT**0.5
        assert drawn.std() == pytest.approx(deviation, rel=0.05)
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("draw", "mean", "deviation"),
    [
        (lambda x: torch.rand(x.shape, dtype=torch.complex64) + x * 0, 0.5, 12**-0.5),
        (lambda x: torch.randn_like(torch.complex(x, x)), 0, 0.5**0.5),
        (lambda x: torch.complex(x, x).normal_(3, 2), 3, 2**0.5),
    ],
)
def test_both_parts_of_complex_numbers_are_drawn(
    draw: Callable[..., object], mean: float, deviation: float
) -> None:
    """They were refused.  The deviation of normal numbers is that of the whole number, as in torch."""
    parts = twice(lambda x: torch.view_as_real(draw(x)), torch.ones(COUNT))[0].T
    for drawn in parts:
        assert abs(drawn.mean() - mean) < 6 * deviation / COUNT**0.5
        assert drawn.std() == pytest.approx(deviation, rel=0.05)
    assert abs(np.corrcoef(parts)[0, 1]) < 6 / COUNT**0.5


def test_a_permutation_has_every_place_once() -> None:
    first, second = twice(lambda x: torch.randperm(x.shape[0]), torch.ones(101))
    assert sorted(first) == sorted(second) == list(range(101))
    assert first.tolist() != second.tolist()


def test_attention_drops_shares_of_its_values() -> None:
    """The mean of 1000 values with about equal weights: its deviation is that of what is dropped."""

    def attend(x):
        keys, values = torch.zeros(8, 1000, 4), torch.ones(8, 1000, 1)
        return nn.functional.scaled_dot_product_attention(x, keys, values, dropout_p=0.3)

    first, second = twice(attend, torch.rand(8, 64, 4))
    deviation = (0.3 / 0.7 / 1000) ** 0.5
    for drawn in (first, second):
        assert abs(drawn.mean() - 1) < 6 * deviation / drawn.size**0.5
        assert drawn.std() == pytest.approx(deviation, rel=0.15)
    assert not np.array_equal(first, second)


def test_dropout_of_a_model_that_is_not_trained_is_no_draw() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).eval()
    x = torch.randn(2, 3)
    model = tw.compile(module, args=(x,), opt_level=2)
    assert len(model.inputs) == 1
    torch.testing.assert_close(model(x), module(x))
