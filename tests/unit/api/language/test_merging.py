from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from fakes.growth import grows_in_proportion
from tilewright.api.language.merging import merged

RANKS = {
    ("a", "b"): 0,
    ("ab", "c"): 1,
    ("b", "c"): 2,
    ("a", "a"): 3,
    ("aa", "a"): 4,
    ("c", "c"): 1,
}


def _plainly(symbols: list[str]) -> list[str]:
    while True:
        found = [
            (RANKS[pair], at)
            for at, pair in enumerate(itertools.pairwise(symbols))
            if pair in RANKS
        ]
        if not found:
            return symbols
        _, at = min(found)
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]


@given(st.text(alphabet="abc", max_size=40))
def test_the_best_and_leftmost_pair_goes_first(text: str) -> None:
    assert merged(text, lambda a, b: RANKS.get((a, b))) == _plainly(list(text))


def test_a_long_word_takes_no_square_of_time() -> None:
    def work(count: int) -> None:
        assert len(merged("a" * count, lambda a, b: RANKS.get((a, b)))) < count

    assert grows_in_proportion(work, 500, 16_000)
