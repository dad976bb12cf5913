"""When a test runs: what its markers say, and what need not even be made for a run.

`-m "not slow and not needs_torch"` leaves out 40 % of the cases.  pytest makes them all and then drops those; here files
whose every test is left out are not imported, and tests that are left out get no cases.  `conftest.py` calls this.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeGuard

import pytest

_MARKERS_OF_A_FILE = re.compile(
    r"^pytestmark = (\[\n.*?^\]|[^\n]*)", re.MULTILINE | re.DOTALL
)


def leave_to_the_night(items: Sequence[pytest.Item]) -> None:
    """Mark what is for the slow run, and what of it only for the nightly one.

    ``nightly`` is slow, too; ``sampled(n)`` leaves every n-th case of a test in the slow run, ``thinned(n)`` in the fast
    one, and the others in the slow one.  Both together: what ``thinned`` leaves is sampled.
    """
    seen: Counter[str] = Counter()
    for item in items:
        thinned, sampled = (
            item.get_closest_marker(name) for name in ("thinned", "sampled")
        )
        is_kept = thinned is not None and _is_in_turn(item, thinned, seen)
        is_left = not is_kept and (thinned is not None or sampled is not None)
        if is_left and sampled is not None and not _is_in_turn(item, sampled, seen):
            item.add_marker(pytest.mark.nightly)
        if is_left or item.get_closest_marker("nightly"):
            item.add_marker(pytest.mark.slow)


def _is_in_turn(item: pytest.Item, every: pytest.Mark, seen: Counter[str]) -> bool:
    """Whether a case of a test is one of those that come first or stay a whole step behind the last one."""
    key = f"{every.name} {item.nodeid.partition('[')[0]}"
    seen[key] += 1
    return (seen[key] - 1) % every.args[0] == 0


@functools.cache
def refused_markers(expression: str) -> frozenset[str]:
    """The markers whose tests ``-m expression`` never takes: ``a`` and ``c`` of "not a and (b or d) and not c"."""
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:  # none, or one that pytest complains about
        return frozenset()
    is_all_of = isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And)
    return frozenset(
        term.operand.id
        for term in (tree.values if is_all_of else [tree])
        if isinstance(term, ast.UnaryOp)
        and isinstance(term.op, ast.Not)
        and isinstance(term.operand, ast.Name)
    )


def is_left_out(expression: str, markers: Iterable[str]) -> bool:
    """Whether ``-m expression`` takes no test that has these markers, whatever others it has."""
    found = set(markers)
    if "nightly" in found or ("sampled" in found and "thinned" not in found):
        found.add("slow")
    return not found.isdisjoint(refused_markers(expression))


def markers_of_file(text: str) -> list[str]:
    """The markers that the text of a file gives all its tests."""
    found = _MARKERS_OF_A_FILE.search(text)
    if found is None:
        return []
    try:
        (statement,) = ast.parse(found[0]).body
    except SyntaxError:  # a call of several lines: whatever it is, the file is imported
        return []
    value = statement.value if isinstance(statement, ast.Assign) else None
    marks = value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
    return [mark.attr for mark in map(_without_call, marks) if _is_marker(mark)]


def _without_call(mark: ast.expr | None) -> ast.expr | None:
    return mark.func if isinstance(mark, ast.Call) else mark


def _is_marker(mark: ast.expr | None) -> TypeGuard[ast.Attribute]:
    """Whether it is `pytest.mark.name`."""
    if not isinstance(mark, ast.Attribute) or not isinstance(mark.value, ast.Attribute):
        return False
    return mark.value.attr == "mark"


def markers_of_test(function: object) -> list[str]:
    """The markers of a test, or of a class of tests, before it has cases."""
    held = getattr(function, "pytestmark", ())
    marks = held if isinstance(held, list | tuple) else [held]
    return [m.name for m in marks if isinstance(m, pytest.Mark | pytest.MarkDecorator)]
