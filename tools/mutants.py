"""The small wrong changes that a mutation run tries, made from the syntax tree of a source file.

What it is: from the text of a file to its mutants, each with the span it replaces; the operators are the
functions below `OPERATORS`.
What it is not: a judge of tests (that is `mutate.py`).
Who calls it: `tools/mutate.py`.

Left alone, for a change there shows nothing about the tests: annotations, docstrings and other strings, decorators,
assertions (they state what cannot be otherwise), and what a `raise` says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One changed place: bytes `start` to `end` of the file become `replacement`."""

    file: str
    line: int
    function: str
    operator: str
    start: int
    end: int
    replacement: str
    before: str
    """The lines that change, in one line."""
    after: str

    def apply(self, source: str) -> str:
        """The text of the file with this one change."""
        data = source.encode()
        return (data[: self.start] + self.replacement.encode() + data[self.end :]).decode()

    @property
    def key(self) -> str:
        """A name that outlives changes elsewhere in the file."""
        return f"{self.file}::{self.function}: {self.before} -> {self.after}"


@dataclass(frozen=True, slots=True)
class _Change:
    operator: str
    start: int
    end: int
    replacement: str


class _Source:
    """The bytes of a file, and where its nodes stand in them."""

    def __init__(self, text: str) -> None:
        self.data: bytes = text.encode()
        self._starts: list[int] = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        return self.data[self.start(node) : self.end(node)].decode()

    def whole_lines(self, start: int, end: int) -> tuple[int, int]:
        """The span, widened to whole lines."""
        first = self.data.rfind(b"\n", 0, start) + 1
        last = self.data.find(b"\n", end)
        return first, len(self.data) if last < 0 else last

    def between(
        self, left: ast.expr, right: ast.expr, pattern: str, new: str, name: str
    ) -> Iterator[_Change]:
        """Replace what matches `pattern` between two operands; brackets around them stay."""
        start = self.end(left)
        found = re.search(pattern.encode(), self.data[start : self.start(right)])
        if found is not None:
            yield _Change(name, start + found.start(), start + found.end(), new)

    def replace(self, node: ast.expr | ast.stmt, new: str, name: str) -> _Change:
        return _Change(name, self.start(node), self.end(node), new)


# ------------------------------------------------------------------ operators: a node → changes

_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}
_ARITHMETIC: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
_OPPOSITES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


def _comparison(node: ast.AST, source: _Source) -> Iterator[_Change]:
    if isinstance(node, ast.Compare):
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(
            operands, node.ops, node.comparators, strict=False
        ):
            pattern, new = _COMPARISONS[type(operator)]
            yield from source.between(left, right, pattern, new, "comparison")


def _boolean(node: ast.AST, source: _Source) -> Iterator[_Change]:
    if isinstance(node, ast.BoolOp):
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from source.between(left, right, rf"\b{old}\b", new, "boolean")
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield source.replace(node, f"({source.text(node.operand)})", "boolean")


def _arithmetic(node: ast.AST, source: _Source) -> Iterator[_Change]:
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        pattern, new = _ARITHMETIC[type(node.op)]
        yield from source.between(node.left, node.right, pattern, new, "arithmetic")


def _constant(node: ast.AST, source: _Source) -> Iterator[_Change]:
    if isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield source.replace(node, str(not node.value), "constant")
        elif isinstance(node.value, int):
            yield source.replace(node, f"({node.value} + 1)", "one more")
            yield source.replace(node, f"({node.value} - 1)", "one less")


def _opposite(node: ast.AST, source: _Source) -> Iterator[_Change]:
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _OPPOSITES
    ):
        yield source.replace(node.func, _OPPOSITES[node.func.id], "opposite")


def _swapped_arguments(node: ast.AST, source: _Source) -> Iterator[_Change]:
    if not isinstance(node, ast.Call):
        return
    pointless = isinstance(node.func, ast.Name) and node.func.id in (
        "min",
        "max",
        "isinstance",
    )
    for left, right in zip(node.args, node.args[1:], strict=False):
        texts = source.text(left), source.text(right)
        starred = isinstance(left, ast.Starred) or isinstance(right, ast.Starred)
        if not pointless and not starred and texts[0] != texts[1]:
            middle = source.data[source.end(left) : source.start(right)].decode()
            yield _Change(
                "swapped arguments",
                source.start(left),
                source.end(right),
                f"{texts[1]}{middle}{texts[0]}",
            )


def _swapped_branches(node: ast.AST, source: _Source) -> Iterator[_Change]:
    if isinstance(node, ast.IfExp):
        body, test, other = (
            source.text(part) for part in (node.body, node.test, node.orelse)
        )
        yield source.replace(node, f"({other} if {test} else {body})", "swapped branches")


def _dropped_statement(node: ast.AST, source: _Source) -> Iterator[_Change]:
    """Calls for their effect, `+=`, and guards; without an assignment nothing would run."""
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.YieldFrom)
    leaves = ast.Return | ast.Raise | ast.Continue | ast.Break
    guard = (
        isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], leaves)
    )
    if isinstance(node, ast.stmt) and (called or guard or isinstance(node, ast.AugAssign)):
        yield source.replace(node, "pass", "dropped statement")


OPERATORS: Final[Sequence[Callable[[ast.AST, _Source], Iterator[_Change]]]] = (
    _comparison,
    _boolean,
    _arithmetic,
    _constant,
    _opposite,
    _swapped_arguments,
    _swapped_branches,
    _dropped_statement,
)


# ------------------------------------------------------------------ from a file to its mutants


class _Places(ast.NodeVisitor):
    """Walks what may change; `function` is the path of the function or class around a node."""

    def __init__(self) -> None:
        self.found: list[tuple[str, ast.AST]] = []
        self._function: list[str] = []

    def generic_visit(self, node: ast.AST) -> None:
        self.found.append((".".join(self._function), node))
        super().generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function.append(node.name)
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for statement in node.body:
            self.visit(statement)
        self._function.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._function.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._function.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text for people."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """States what cannot be otherwise."""

    def visit_Raise(self, node: ast.Raise) -> None:
        """What it says is for people; whether it is reached, the guard around it shows."""

    def visit_keyword(self, node: ast.keyword) -> None:
        """`strict=True` states what cannot be otherwise, too."""
        if node.arg != "strict":
            self.visit(node.value)

    def visit_match_case(self, node: ast.match_case) -> None:
        """Only what follows from a pattern: a pattern has no arithmetic."""
        for part in (*([node.guard] if node.guard else ()), *node.body):
            self.visit(part)


def mutants_of(path: Path, root: Path) -> list[Mutant]:
    """All mutants of a file, in the order of their places."""
    text = path.read_text(encoding="utf-8")
    source = _Source(text)
    places = _Places()
    places.visit(ast.parse(text))
    changes = [
        (function, change)
        for function, node in places.found
        for operator in OPERATORS
        for change in operator(node, source)
    ]
    name = path.relative_to(root).as_posix()
    made = [_mutant(name, function, change, source) for function, change in changes]
    distinct = {one.key: one for one in made}
    return sorted(distinct.values(), key=lambda one: (one.start, one.end, one.replacement))


def _mutant(file: str, function: str, change: _Change, source: _Source) -> Mutant:
    first, last = source.whole_lines(change.start, change.end)
    old = source.data[first:last].decode()
    head = source.data[first : change.start].decode()
    tail = source.data[change.end : last].decode()
    return Mutant(
        file=file,
        line=source.data.count(b"\n", 0, change.start) + 1,
        function=function,
        operator=change.operator,
        start=change.start,
        end=change.end,
        replacement=change.replacement,
        before=" ".join(old.split()),
        after=" ".join(f"{head}{change.replacement}{tail}".split()),
    )
