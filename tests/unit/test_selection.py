"""When a test runs: which markers an expression refuses, and where they stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from selection import (
    is_left_out,
    leave_to_the_night,
    markers_of_file,
    markers_of_test,
    refused_markers,
)

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
        (["thinned", "sampled"], True, True),
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


class _Case:
    """What is asked of a case of a test."""

    def __init__(self, name: str, marks: Sequence[pytest.MarkDecorator]) -> None:
        self.nodeid = name
        self.marks = [mark.mark for mark in marks]

    def iter_markers(self) -> Iterator[pytest.Mark]:
        return iter(self.marks)

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return next((mark for mark in self.marks if mark.name == name), None)

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.mark)


@pytest.mark.parametrize(
    ("marks", "kept", "slow", "nightly"),
    [
        ([pytest.mark.thinned(3)], "0 3 6", "1 2 4 5", ""),
        ([pytest.mark.sampled(3)], "", "0 1 2 3 4 5 6", "1 2 4 5"),
        ([pytest.mark.thinned(3), pytest.mark.sampled(2)], "0 3 6", "1 2 4 5", "2 5"),
        ([pytest.mark.nightly], "", "0 1 2 3 4 5 6", "0 1 2 3 4 5 6"),
        (
            [pytest.mark.thinned(7), pytest.mark.nightly],
            "",
            "0 1 2 3 4 5 6",
            "0 1 2 3 4 5 6",
        ),
        ([pytest.mark.usefixtures], "0 1 2 3 4 5 6", "", ""),
    ],
)
def test_every_case_is_in_one_run_at_least(
    marks: Sequence[pytest.MarkDecorator], kept: str, slow: str, nightly: str
) -> None:
    cases = [_Case(f"file::test[{n}]", marks) for n in range(7)]
    leave_to_the_night(cases)

    def with_marker(name: str) -> str:
        return " ".join(str(n) for n, x in enumerate(cases) if x.get_closest_marker(name))

    assert with_marker("slow") == slow
    assert with_marker("nightly") == nightly
    fast = [str(n) for n, x in enumerate(cases) if not x.get_closest_marker("slow")]
    assert " ".join(fast) == kept
