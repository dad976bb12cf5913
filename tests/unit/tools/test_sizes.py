"""tools/sizes.py finds what is too long and what is allowed for nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

import sizes


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    return tmp_path


def test_a_file_at_the_limit_passes_and_one_line_more_does_not(tree: Path) -> None:
    (tree / "src" / "fits.py").write_text("x = 1\n" * 600)
    (tree / "src" / "long.py").write_text("x = 1\n" * 601)
    assert sizes.measure(tree) == {"src/long.py": 601}


def test_a_long_function_is_named_with_its_file(tree: Path) -> None:
    (tree / "src" / "a.py").write_text("def f() -> None:\n" + "    x = 1\n" * 60)
    assert sizes.measure(tree) == {"src/a.py:f": 61}


def test_an_exception_covers_up_to_its_own_size() -> None:
    over = {"src/a.py": 700}
    assert sizes.find_complaints(over, {"src/a.py": 700}) == []
    assert sizes.find_complaints(over, {"src/a.py": 699}) == [
        "src/a.py: 700 lines, expected at most 699"
    ]


def test_an_exception_nobody_needs_is_a_complaint() -> None:
    assert sizes.find_complaints({}, {"src/a.py": 700}) == [
        "src/a.py: allowed in sizes.toml, but short"
    ]


def test_an_exception_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sizes.toml"
    path.write_text('[[allowed]]\nplace = "a.py"\nlines = 1\nreason = " "\n')
    with pytest.raises(SystemExit, match=r"'a\.py' has no reason"):
        sizes.read_allowed(path)
