"""When a test runs: which markers an expression refuses, and where they stand."""

from __future__ import annotations

import pytest

from selection import is_left_out, markers_of_file, markers_of_test, refused_markers

FAST, SLOW = "not slow and not needs_torch", "(slow or needs_torch) and not nightly"


@pytest.mark.parametrize(
    ("expression", "refused"),
    [
        (FAST, {"slow", "needs_torch"}),
        (SLOW, {"nightly"}),
        ("not slow", {"slow"}),
        ("not slow or not nightly", set()),
        ("not (slow and nightly)", set()),
        ("slow", set()),
        ("", set()),
        ("not (", set()),
    ],
)
def test_a_marker_is_refused_where_every_term_has_to_hold(
    expression: str, refused: set[str]
) -> None:
    assert refused_markers(expression) == refused


@pytest.mark.parametrize(
    ("markers", "fast", "slow"),
    [
        ([], True, True),
        (["slow"], False, True),
        (["sampled"], False, True),
        (["needs_torch", "filterwarnings"], False, True),
        (["nightly"], False, False),
        (["nightly", "needs_torch"], False, False),
    ],
)
def test_a_test_is_left_out_where_no_marker_that_it_may_get_brings_it_back(
    markers: list[str], fast: bool, slow: bool
) -> None:
    assert is_left_out(FAST, markers) is not fast
    assert is_left_out(SLOW, markers) is not slow
    assert not is_left_out("nightly", markers)


def test_the_markers_of_a_file_are_read_from_its_text() -> None:
    one = (
        "import pytest\npytestmark = pytest.mark.slow  # half a minute\nX = pytest.mark.y\n"
    )
    assert markers_of_file(one) == ["slow"]
    several = (
        "pytestmark = [\n    pytest.mark.nightly,\n    pytest.mark.z('a'),\n]\nX = 1\n"
    )
    assert markers_of_file(several) == ["nightly", "z"]
    inside = "def f():\n    pytestmark = pytest.mark.slow\n"
    assert markers_of_file(inside) == []


def test_the_markers_of_a_test_are_known_before_its_cases() -> None:
    @pytest.mark.sampled(3)
    @pytest.mark.parametrize("x", [1, 2])
    def marked(x: int) -> None:
        del x

    assert set(markers_of_test(marked)) == {"sampled", "parametrize"}
    assert markers_of_test(object()) == []
