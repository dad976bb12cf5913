from __future__ import annotations

import itertools

import pytest

from tilewright.api.language.stops import overlap, until

TEXT = "abcabcabd and so on"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("stops", [("abd",), ("zzz",), ("", "so"), ("and", "bcab"), ("n",)])
def test_a_text_ends_before_the_first_stop_however_it_comes(
    size: int, stops: tuple[str, ...]
) -> None:
    parts = ["".join(p) for p in itertools.zip_longest(*[iter(TEXT)] * size, fillvalue="")]
    ended: list[int] = []
    found = "".join(until(parts, stops, ended.append))
    # Of two that begin in one part the earlier one counts.
    cuts = [TEXT.find(stop) for stop in stops if stop and stop in TEXT]
    assert found == (TEXT[: min(cuts)] if cuts else TEXT)
    assert ended == ([len(found)] if cuts else [])


def test_what_may_be_a_beginning_waits() -> None:
    assert list(until(["x<", "/", "y"], ("</s>",), print)) == ["x", "", "</y", ""]
    assert overlap("ab<", "<x>") == 1
    assert overlap("<x>", "<x>") == 0
    assert overlap("", "<x>") == 0
