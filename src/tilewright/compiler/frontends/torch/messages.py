"""Whether a text that a module makes while torch traces it is for people alone: of a log, a warning, an error.

Such a text changes no result.  Decided by the statement that makes it.  Called by `open_sizes`.

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
    ("critical", "debug", "error", "exception", "fatal", "info", "log", "print", "warn", "warning", "write")
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
        low <= begin and end <= high
        for low, high in _told(
            frame.f_code.co_filename, linecache.getline(frame.f_code.co_filename, line)
        )
    )


@functools.lru_cache(64)
def _told(file: str, line: str) -> tuple[tuple[_Place, _Place], ...]:
    """Where the texts for people stand in a file; the line notices that it is another than before."""
    del line
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(
        (
            (n.lineno, n.col_offset),
            (n.end_lineno or n.lineno, n.end_col_offset or n.col_offset),
        )
        for statement in ast.walk(tree)
        for n in _parts(statement)
    )


def _parts(statement: ast.AST) -> Iterator[ast.expr]:
    if isinstance(statement, ast.Raise) and statement.exc is not None:
        yield statement.exc
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        function = call.func
        name = getattr(function, "attr", None) or getattr(function, "id", "")
        if name in _TELLS:
            yield from call.args
            yield from (word.value for word in call.keywords)
