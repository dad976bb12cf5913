"""When a test runs: what its markers say, and what need not even be made for a run.

`-m "not slow and not needs_torch"` leaves out many of the cases.  pytest makes them all and then drops those; here files
whose every test is left out are not imported, and tests that are left out get no cases.  `conftest.py` calls this.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeGuard

import pytest

UNEVEN: Final[pytest.StashKey[list[str]]] = pytest.StashKey()
"""What `leave_to_the_night` returned, for the test that looks at it."""

_MARKERS_OF_A_FILE = re.compile(
    r"^pytestmark = (\[\n.*?^\]|[^\n]*)", re.MULTILINE | re.DOTALL
)


def leave_to_the_night(items: Sequence[pytest.Item]) -> list[str]:
    """Mark what is for the slow run, and what of it only for the nightly one.

    ``nightly`` is slow, too; ``sampled(n)`` leaves every n-th case of a test in the slow run, ``thinned(n)`` in the fast
    one, and the others in the slow one.  Both together: what ``thinned`` leaves is sampled.

    Returns: parameters of which a sample takes some values again and others never, each with its test.
    """
    samples: dict[str, Sample] = {}
    for item in items:
        held = closest_markers(item)
        thinned, sampled = held.get("thinned"), held.get("sampled")
        is_kept = thinned is not None and _is_in_turn(item, thinned, held, samples)
        is_left = not is_kept and (thinned is not None or sampled is not None)
        if is_left and sampled and not _is_in_turn(item, sampled, held, samples):
            item.add_marker(pytest.mark.nightly)
        if is_left or "nightly" in held:
            item.add_marker(pytest.mark.slow)
    return [
        f"{test}: {name}" for test, sample in samples.items() for name in sample.uneven()
    ]


def closest_markers(item: pytest.Item) -> dict[str, pytest.Mark]:
    """What `get_closest_marker` finds by each name: one walk up to the session, for thousands of tests."""
    found: dict[str, pytest.Mark] = {}
    for mark in item.iter_markers():
        found.setdefault(mark.name, mark)
    return found


class Sample:
    """Which cases of a test stay in a run: those that come first or stay a whole step behind the last one."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._seen = 0
        self._cases: list[tuple[Mapping[str, Hashable], bool]] = []

    def takes(self, values: Mapping[str, Hashable] | None) -> bool:
        """Whether the next case stays; `values` are those of its parameters, None where it is in no run anyway."""
        stays = self._seen % self._every == 0
        self._seen += 1
        if values is not None:
            self._cases.append((values, stays))
        return stays

    def uneven(self) -> list[str]:
        """The parameters of which half the cases that stay could have all values, or two, and do not."""
        kept = [values for values, stays in self._cases if stays]
        everything = [values for values, _ in self._cases]
        enough = min(len(kept), max(2, (len(kept) + 1) // 2))
        return [
            name
            for name in dict.fromkeys(name for values in everything for name in values)
            if _count(kept, name) < min(enough, _count(everything, name))
        ]


def _count(cases: Sequence[Mapping[str, Hashable]], name: str) -> int:
    return len({values.get(name) for values in cases})


def _is_in_turn(
    item: pytest.Item,
    every: pytest.Mark,
    held: Mapping[str, pytest.Mark],
    samples: dict[str, Sample],
) -> bool:
    key = f"{item.nodeid.partition('[')[0]} {every.name}({every.args[0]})"
    later = ("slow", "nightly") if every.name == "thinned" else ("nightly",)
    values = None if any(name in held for name in later) else _values(item)
    return samples.setdefault(key, Sample(every.args[0])).takes(values)


def _values(item: pytest.Item) -> dict[str, Hashable] | None:
    """What each `parametrize`, and each fixture with parameters, gives this case; few values have a hash."""
    case = getattr(item, "callspec", None)
    if case is None:
        return None
    numbers = {name: id(value) for name, value in case.params.items()}
    found: dict[str, Hashable] = {}
    for mark in item.iter_markers("parametrize"):
        given = mark.args[0]
        names = given.replace(",", " ").split() if isinstance(given, str) else given
        found[", ".join(names)] = tuple(numbers.pop(name, 0) for name in names)
    return found | numbers


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
