"""Whether a text that a module makes while torch traces it is taken to be for people alone: of a log, a warning, an error.

Decided by the statement that makes it and by names: `x.info(...)` is taken to be a logger's, and of errors only those that
the same function catches are taken to be looked at.  Such a text is not told.  Called by `open_sizes`.

Source: Python, `codeobject.co_positions`, PEP 657.
"""

from __future__ import annotations

import ast
import functools
import itertools
import linecache
from collections.abc import Iterator
from types import FrameType
from typing import Final

_TELLS: Final = frozenset(
    ("critical", "debug", "error", "exception", "fatal", "info", "log", "print", "warn", "warning")
)  # fmt: skip
"""Functions of loggers, consoles and warnings; what they give back is not looked at, or the statement is another."""
_Place = tuple[int, int]


def is_for_readers(frame: FrameType) -> bool:
    """Whether what a frame is at is part of an argument of a call that only tells, or of an exception that is raised."""
    now = next(
        itertools.islice(frame.f_code.co_positions(), max(frame.f_lasti, 0) // 2, None),
        (None,) * 4,
    )
    line, end_line, column, end_column = now
    if line is None or end_line is None or column is None or end_column is None:
        return False
    begin, end = (line, column), (end_line, end_column)
    return any(
        low <= begin and end <= high for low, high in _told_in(frame.f_code.co_filename)
    )


def _told_in(file: str) -> tuple[tuple[_Place, _Place], ...]:
    # From here on, the entry is there if the file is.
    _ = linecache.getlines(file)
    entry = linecache.cache.get(file)
    if entry is None or len(entry) == 1:
        return ()
    size_bytes, changed_at, *_ = entry
    return _told(file, size_bytes, changed_at)


@functools.lru_cache(64)
def _told(
    file: str, size_bytes: int, changed_at: float | None
) -> tuple[tuple[_Place, _Place], ...]:
    """Where the texts for people stand in a file; its size and time tell whether it is another than before."""
    del size_bytes, changed_at
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(
        (
            (n.lineno, n.col_offset),
            (n.end_lineno or n.lineno, n.end_col_offset or n.col_offset),
        )
        for statement, is_caught in _statements(tree)
        for n in _parts(statement, is_caught=is_caught)
    )


def _statements(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """All nodes, each with whether the function that it is in may catch what it raises."""
    left: list[tuple[ast.AST, bool]] = [(tree, False)]
    while left:
        node, is_caught = left.pop()
        yield node, is_caught
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        around = is_caught and not is_function
        tried: list[ast.AST] = []
        if isinstance(node, ast.Try | ast.TryStar) and node.handlers:
            tried.extend(node.body)
        left.extend((n, around or n in tried) for n in ast.iter_child_nodes(node))


def _parts(statement: ast.AST, *, is_caught: bool) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Raise) and statement.exc is not None and not is_caught:
        yield statement.exc
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if _only_tells(call):
            yield from call.args
            yield from (word.value for word in call.keywords)


def _only_tells(call: ast.Call) -> bool:
    function = call.func
    name = getattr(function, "attr", None) or getattr(function, "id", "")
    if name == "write":
        return isinstance(function, ast.Attribute) and _is_console(function.value)
    files = [word.value for word in call.keywords if word.arg == "file"]
    return name in _TELLS and all(map(_is_console, files))


def _is_console(node: ast.expr) -> bool:
    """Whether it is `sys.stdout` or `sys.stderr`, as Python spells these."""
    if not isinstance(node, ast.Attribute) or node.attr not in ("stdout", "stderr"):
        return False
    return isinstance(node.value, ast.Name) and node.value.id == "sys"
