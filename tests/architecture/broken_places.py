"""Breaks every place that the maps name, one after the other, and runs the tests that are to show it.

A line of a map whose tests pass although the place does nothing but fail shows nothing: it is printed.  Works in a
copy of the repository.  Half an hour; before a release:

    python tests/architecture/broken_places.py             all lines of all maps
    python tests/architecture/broken_places.py tvm 65      lines of some, by a part of the name, from a number on

Not broken: modules and tables, functions without a body (of abstract classes), native code.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from test_maps import MAPS, ROOT, rows

PLACE = re.compile(r"`([\w/]+\.py):([\w.]+)`")
TEST = re.compile(r"`([^`]+::[^`]+)`")
BROKEN = 'raise RuntimeError("broken on purpose")\n'
COPIED = ("src", "tests", "docs", "native", "tools", "examples", "pyproject.toml")
WAIT_S = 200
FAILED, NOT_COLLECTED, NO_TESTS = 1, 4, 5  # pytest's


class Line(NamedTuple):
    """A place on a map, and the tests of its line."""

    where: str
    file: str
    name: str
    tests: tuple[str, ...]


def lines(page_part: str, first: int) -> Iterator[Line]:
    for page in MAPS:
        for row in rows(page):
            if page_part in page.name and row.number >= first:
                tests = tuple(f"tests/{test}" for test in TEST.findall(row.shown_by))
                for file, name in PLACE.findall(row.here):
                    yield Line(f"{page.name}:{row.number}", file, name, tests)


def find(tree: ast.Module, name: str) -> ast.AST | None:
    node: ast.AST | None = tree
    for part in name.split("."):
        members = getattr(node, "body", ())
        node = next((m for m in members if getattr(m, "name", "") == part), None)
    return node


def broken(source: str, name: str) -> str:
    """The source with a function that fails, or a class whose making fails."""
    node = find(ast.parse(source), name)
    found = [node]
    if isinstance(node, ast.ClassDef):
        functions = [m for m in node.body if isinstance(m, ast.FunctionDef)]
        found = [m for m in functions if m.name == "__init__"] or functions
    text = source.splitlines(keepends=True)
    for function in reversed(found):
        if not isinstance(function, ast.FunctionDef):
            continue
        body = [one for one in function.body if not is_text(one)]
        if body:
            indent = " " * body[0].col_offset
            text[body[0].lineno - 1 : body[-1].end_lineno] = [indent + BROKEN]
    return "".join(text)


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def shows(root: Path, line: Line) -> str:
    """What the tests say when the place is broken; empty where they fail, as they should."""
    path = next(
        p for p in (root / "src/tilewright" / line.file, root / line.file) if p.exists()
    )
    source = path.read_text(encoding="utf-8")
    changed = broken(source, line.name)
    if changed == source:
        return ""
    path.write_text(changed, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTHONPATH": str(root / "src")}
    try:
        done = subprocess.run(
            [*command, *line.tests],
            cwd=root, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "no end"
    finally:
        path.write_text(source, encoding="utf-8")
    failed = done.returncode in (FAILED, NOT_COLLECTED, NO_TESTS)
    return "" if failed else done.stdout.strip().splitlines()[-1]


def main() -> None:
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    first = sys.argv[2] if len(sys.argv) > 2 else "0"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            source = ROOT / name
            copy = shutil.copytree if source.is_dir() else shutil.copyfile
            copy(source, root / name)
        (root / "build").symlink_to(ROOT / "build")
        (root / ".venv").symlink_to(ROOT / ".venv")
        found = 0
        for line in lines(part, int(first)):
            said = shows(root, line)
            if said:
                found += 1
                sys.stdout.write(
                    f"{line.where}: {line.file}:{line.name} is shown by nothing: {said}\n"
                )
                sys.stdout.flush()
    sys.exit(found > 0)


if __name__ == "__main__":
    main()
