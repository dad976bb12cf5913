"""The maps of docs/map name places and tests that exist."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAPS = sorted(p for p in (ROOT / "docs" / "map").glob("*.md") if p.name != "README.md")
HEADING = ["step", "here", "shown by"]
OF_THE_REPOSITORY = ("native/", "tests/", "tools/", "docs/", "examples/")
SPAN = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    """One line of a table."""

    number: int
    step: str
    here: str
    shown_by: str


def rows(page: Path) -> Iterator[Row]:
    """The lines of all tables of a map; another kind of table is an error."""
    is_inside = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            is_inside = False
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not is_inside:
            assert cells == HEADING, f"{page.name}:{number}: another heading"
            is_inside = True
        elif not set(cells[0]) <= {"-"}:
            assert len(cells) == len(HEADING), f"{page.name}:{number}: {len(cells)} cells"
            yield Row(number, *cells)


@functools.cache
def defined(path: Path) -> frozenset[str]:
    """Names that a Python file defines: functions, classes, their members, values."""
    return frozenset(_defined(ast.parse(path.read_text(encoding="utf-8")).body, ""))


def _defined(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef):
            yield prefix + node.name
            yield from _defined(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (prefix + t.id for t in targets if isinstance(t, ast.Name))


def problem_of_place(text: str) -> str:
    """What is wrong with a place; nothing if it is there."""
    name, _, member = text.partition(":")
    folder = ROOT if name.startswith(OF_THE_REPOSITORY) else ROOT / "src" / "tilewright"
    path = folder / name
    if not path.exists():
        return f"no such file: {name}"
    if not member:
        return ""
    if path.suffix == ".py":
        return "" if member in defined(path) else f"{name} defines no {member}"
    is_there = re.search(rf"\b{re.escape(member)}\b", path.read_text(encoding="utf-8"))
    return "" if is_there else f"{name} has no {member}"


def problem_of_test(text: str) -> str:
    """The same for a test."""
    name, _, test = text.partition("::")
    path = ROOT / "tests" / name
    if not path.is_file():
        return f"no such file of tests: {name}"
    if not test.startswith("test_"):
        return f"names no test: {text}"
    return "" if test in defined(path) else f"{name} has no {test}"


def problems(row: Row) -> Iterator[str]:
    """All that is wrong with a line."""
    if not row.step:
        yield "no step"
    places, tests = SPAN.findall(row.here), SPAN.findall(row.shown_by)
    if row.here.startswith("none:"):
        if row.shown_by != "-":
            yield "a step without a place has no test"
    elif not places or not tests:
        yield "a step has a place and a test, or says why after 'none:'"
    yield from filter(None, map(problem_of_place, places))
    yield from filter(None, map(problem_of_test, tests))


def test_there_are_maps_and_the_readme_lists_them() -> None:
    listed = (ROOT / "docs" / "map" / "README.md").read_text(encoding="utf-8")
    assert MAPS
    for page in MAPS:
        assert f"({page.name})" in listed


@pytest.mark.parametrize("page", MAPS, ids=lambda page: page.stem)
def test_every_place_and_test_of_every_map_is_there(page: Path) -> None:
    found = [
        f"{page.name}:{row.number}: {problem}"
        for row in rows(page)
        for problem in problems(row)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("here", "shown_by", "text"),
    [
        ("`runtime/nowhere.py`", "`architecture/test_maps.py::test_x`", "no such file"),
        ("`runtime/session.py:Session.fly`", "`x.py::test_x`", "defines no Session.fly"),
        ("`native/src/image.c:tw_image_fly`", "`x.py::test_x`", "has no tw_image_fly"),
        ("`runtime/session.py`", "`architecture/test_maps.py::test_x`", "has no test_x"),
        ("`runtime/session.py`", "`architecture/test_maps.py`", "names no test"),
        ("somewhere", "`architecture/test_maps.py`", "a place and a test"),
        ("none: not needed", "`x.py::test_x`", "without a place has no test"),
    ],
)
def test_the_check_sees_what_is_not_there(here: str, shown_by: str, text: str) -> None:
    assert any(text in problem for problem in problems(Row(1, "a step", here, shown_by)))
