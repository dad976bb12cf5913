"""Habits that a linter does not know: sizes, the environment, names of files."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import sizes

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tilewright"
FORBIDDEN_FILE_NAMES = {"utils", "util", "helpers", "common", "misc"}
READS_THE_ENVIRONMENT = {SOURCE / "base" / "knobs.py"}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def trees_with(*words: str) -> Iterator[tuple[Path, ast.Module]]:
    """The modules in whose text one of these words stands: parsing all takes seconds."""
    for path in modules():
        text = path.read_text()
        if any(word in text for word in words):
            yield path, ast.parse(text)


def attribute_paths(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (f"os.{alias.name}" for alias in node.names)


def test_files_and_functions_keep_their_size() -> None:
    allowed = sizes.read_allowed(ROOT / "tools" / "sizes.toml")
    assert sizes.find_complaints(sizes.measure(ROOT), allowed) == []


def test_only_the_knobs_read_the_environment() -> None:
    readers = {
        path
        for path, tree in trees_with("environ", "getenv")
        if {"os.environ", "os.getenv"} & set(attribute_paths(tree))
    }
    assert readers <= READS_THE_ENVIRONMENT


def test_no_file_is_called_utils() -> None:
    assert [path for path in modules() if path.stem in FORBIDDEN_FILE_NAMES] == []


def test_open_ends_name_an_issue() -> None:
    loose = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in modules()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\b(?:TODO|FIXME|XXX)\b(?!\(#\d)", line)
    ]
    assert loose == []


def test_asserts_and_bare_excepts_never_hide_an_error() -> None:
    hiding: list[str] = []
    for path, tree in trees_with("except:", "except Exception:"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ExceptHandler):
                body_is_empty = all(isinstance(item, ast.Pass) for item in node.body)
                if node.type is None or (
                    body_is_empty and ast.unparse(node.type) == "Exception"
                ):
                    hiding.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert hiding == []


def test_types_are_checked_wherever_torch_is_not_imported() -> None:
    """`make check` installs no torch: a file that imports it is left out, and no other one is."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["basedpyright"]
    importing = [
        str(path.relative_to(ROOT))
        for folder in settings["include"]
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search(
            r"^(?:import|from) (?:torch|transformers)\b", path.read_text(), re.MULTILINE
        )
    ]
    assert settings["exclude"] == importing


SAYS_NOTHING = {"what", "who", "whom", "why", "thing", "things", "stuff", "foo"}
# Such a word as it stands where a name is given; in prose it is mostly followed by another word.
PATTERN = re.compile(
    r"\b_*(?:" + "|".join(SAYS_NOTHING) + r")_*\s*(?:[,:=)\](]|in\b|[-+*/|&%@^<>]{1,2}=)",
    re.IGNORECASE,
)


def given_names(tree: ast.AST) -> Iterator[str]:
    """Names that the code itself chooses: of functions, classes, arguments, fields and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def test_names_can_be_searched_for() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("src", "tests", "tools", "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if PATTERN.search(path.read_text())
        for name in given_names(ast.parse(path.read_text()))
        if name.lower().strip("_") in SAYS_NOTHING
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["def what(): pass", "class Things: pass", "f = lambda who: who", "for i, what in (): pass", "a, what_ = b",
     "with a as thing: pass", "[*things] = a", "what += 1", "(why := 1)", "def f(a, *, who): pass"],
)  # fmt: skip
def test_a_name_is_seen_wherever_it_is_given(text: str) -> None:
    assert PATTERN.search(text)
    names = {name.lower().strip("_") for name in given_names(ast.parse(text))}
    assert names & SAYS_NOTHING


def test_nobody_imports_a_test_file_that_may_be_skipped() -> None:
    """Where its package is missing the file is not read to its end, and who imports it fails."""
    texts = {path: path.read_text() for path in (ROOT / "tests").rglob("*.py")}
    skipped = {
        path.stem
        for path, text in texts.items()
        if re.search(r"^\w+ = pytest\.importorskip|allow_module_level", text, re.MULTILINE)
    }
    importing = [
        f"{path.relative_to(ROOT)}: {line}"
        for path, text in texts.items()
        for line, module in re.findall(r"^((?:from|import) ([\w.]+).*)", text, re.MULTILINE)
        if module.rpartition(".")[2] in skipped
    ]
    assert importing == []
