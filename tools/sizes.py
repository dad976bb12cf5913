"""Hold files under 600 lines and functions under 60, with a short list of exceptions.

What it is: a ratchet on sizes.  Exceptions stand in ``sizes.toml`` beside this file, each
with the size it may reach and a reason; an exception nobody needs is an error too.
What it is not: a measure of complexity (ruff's C90 is).
Who calls it: ``make check``, pre-commit, ``tests/architecture``::

    python tools/sizes.py
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FOLDERS: Final = ("src", "native", "tests", "tools", "benchmarks", "examples")
SUFFIXES: Final = (".py", ".c", ".h")
FILE_LIMIT: Final = 600
FUNCTION_LIMIT: Final = 60
TEXT: Final = re.compile(r'"""(?:[^"\\]|\\.|"(?!""))*"""', re.DOTALL)
DEF: Final = re.compile(r"^( *)(?:async )?def ", re.MULTILINE)
BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")
"""The fields of a statement that hold statements."""


def iterate_sources(root: Path) -> Iterator[Path]:
    """Yield our own sources, in a fixed order."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path


def function_sizes(source: str) -> Iterator[tuple[str, int]]:
    """Yield each function of a Python file with its number of lines."""
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


def may_be_long(source: str) -> bool:
    """Return whether some function may be over its limit: parsing all files takes seconds.

    A function ends, at the latest, where a line stands that is indented no further and closes no bracket.
    """
    code = TEXT.sub(lambda text: "\n" * text[0].count("\n"), source)
    for start in DEF.finditer(code):
        after = re.compile(rf"^ {{0,{len(start[1])}}}[^\s)\]}}#]", re.MULTILINE)
        end = after.search(code, start.end())
        last = len(code) if end is None else end.start()
        if code.count("\n", start.start(), last) > FUNCTION_LIMIT:
            return True
    return False


def statements(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every statement, and none of the expressions, which are nine tenths of a tree."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for block in BLOCKS:
            waiting += getattr(node, block, ())


def measure(root: Path) -> dict[str, int]:
    """Return everything over its limit: ``file`` or ``file:function`` → lines."""
    over: dict[str, int] = {}
    for path in iterate_sources(root):
        name = path.relative_to(root).as_posix()
        source = path.read_text(encoding="utf-8")
        lines = source.count("\n")
        if lines > FILE_LIMIT:
            over[name] = lines
        if path.suffix == ".py" and may_be_long(source):
            for function, size in function_sizes(source):
                if size > FUNCTION_LIMIT:
                    key = f"{name}:{function}"
                    over[key] = max(size, over.get(key, 0))
    return over


def read_allowed(path: Path) -> dict[str, int]:
    """Return the exceptions; each must have a reason."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("allowed", [])
    for row in rows:
        if not str(row.get("reason", "")).strip():
            raise SystemExit(f"{path.name}: '{row.get('place')}' has no reason")
    return {str(row["place"]): int(row["lines"]) for row in rows}


def find_complaints(over: dict[str, int], allowed: dict[str, int]) -> list[str]:
    """Return what is too long without being allowed, and what is allowed for nothing."""
    complaints: list[str] = []
    for name, lines in over.items():
        limit = allowed.get(name, FUNCTION_LIMIT if ":" in name else FILE_LIMIT)
        if lines > limit:
            complaints.append(f"{name}: {lines} lines, expected at most {limit}")
    complaints += [
        f"{name}: allowed in sizes.toml, but short" for name in allowed if name not in over
    ]
    return complaints


def main() -> int:
    """Print complaints; 1 if there are any."""
    allowed = read_allowed(Path(__file__).with_name("sizes.toml"))
    complaints = find_complaints(measure(ROOT), allowed)
    for line in complaints:
        sys.stdout.write(line + "\n")
    if complaints:
        sys.stdout.write(
            "hint: split it, or enter it into tools/sizes.toml with a reason\n"
        )
    else:
        sys.stdout.write("sizes: all files and functions within their limits\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    raise SystemExit(main())
