"""The best code that a machine can run, or what it lacks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import TargetError
from tilewright.base.target import Target
from tilewright.formats.artifact import Needs
from tilewright.formats.variant_choice import choose_variant

features = st.frozensets(st.sampled_from(("a", "b", "c", "d")))
codes = st.lists(
    st.builds(Needs, st.text(max_size=3), st.sampled_from(("x86_64", "aarch64")), features),
    max_size=6,
)


@given(codes, features)
def test_the_choice_runs_and_nothing_that_runs_needs_more(
    offered: list[Needs], present: frozenset[str]
) -> None:
    machine = Target(features=present)
    running = [n for n in offered if n.arch == "x86_64" and n.features <= present]
    if not running:
        with pytest.raises(TargetError, match=r"^m: no code for this CPU \('x86_64'"):
            choose_variant(offered, machine, "m")
        return
    chosen = choose_variant(offered, machine, "m")
    most = max(len(n.features) for n in running)
    assert chosen is next(n for n in running if len(n.features) == most)


def test_the_nearest_code_says_what_is_missing() -> None:
    machine = Target(features=frozenset("ab"))
    far, near = (Needs(text, "x86_64", frozenset(text)) for text in ("bcd", "abd"))
    foreign = Needs("arm", "aarch64", frozenset())
    with pytest.raises(TargetError) as caught:
        choose_variant([far, near, foreign], machine, "m")
    assert "the artifact has 'bcd', 'abd', 'arm'; missing here: d" in str(caught.value)
