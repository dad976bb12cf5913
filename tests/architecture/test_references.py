"""What the sources name as a place to read on is in the repository."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Pages of other projects, each named with its project where it stands.
FOREIGN = {"ContribOperators.md", "ExternalData.md", "Operators.md", "gguf.md"}
# Notes that only their authors have.
CITATION = re.compile(
    r"\b(?:STYLE|SPEC|DESIGN|PERFORMANCE)(?:\.md)?\b[ ,(]{0,2}(?:section )?\d"
)
# In `src` only ours: other projects have a folder of this name, too.
PATH = re.compile(
    r"(?<![\w/.~$<{*-])(?:docs|tests|benchmarks|tools|examples|src/tilewright)/[\w./-]*\w"
)
# `_native` is the extension, which is built.
DOTTED = re.compile(
    r"\btilewright\.(?!runtime\._native)(?:api|base|cli|compiler|formats|runtime|tuning)(?:\.[A-Za-z_]\w*)+"
)
OF_THEIR_OWN = ("tests/", "docs/map/")  # which make files, or name those of others
SUFFIXES = {".py", ".c", ".h", ".md", ".toml", ".yaml", ".S", ".hpp", ""}


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("this is no checkout")
    return tuple(listed.stdout.splitlines())


@cache
def texts() -> dict[str, str]:
    """Every text, by its path."""
    return {
        name: (ROOT / name).read_text("utf-8")
        for name in tracked()
        if Path(name).suffix in SUFFIXES
        and (ROOT / name).is_file()
        and (ROOT / name) != Path(__file__)
    }


def all_of(pattern: str | re.Pattern[str], *left_out: str) -> Iterator[tuple[str, str]]:
    """What a pattern finds, its group if it has one, with its place; in no file that begins like one left out."""
    for name, text in texts().items():
        if name.startswith(left_out):
            continue
        for match in re.finditer(pattern, text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{name}:{line}", match[match.re.groups]


def test_pages_that_are_named_are_here() -> None:
    pages = {Path(name).name for name in tracked()} | FOREIGN
    missing = [
        f"{place}: {name}"
        for place, name in all_of(r"[\w-]+\.md\b", "tests/")  # which make pages
        if name not in pages and not any(page.endswith(name) for page in pages)
    ]
    assert missing == []


@cache
def places() -> frozenset[str]:
    """Files, files without their suffix, and folders."""
    return frozenset(
        str(place)
        for file in map(Path, tracked())
        for place in (file, file.with_suffix(""), *file.parents)
    )


def test_files_that_are_named_are_here() -> None:
    missing = [
        f"{place}: {name}"
        for place, name in all_of(PATH, *OF_THEIR_OWN)
        if name not in places() and Path(name).name not in FOREIGN
    ]
    assert missing == []


def test_python_files_that_are_named_without_a_folder_are_here() -> None:
    files = {Path(name).name for name in tracked()}
    missing = [
        f"{place}: {name}"
        for place, name in all_of(r"`(\w+\.py)\b", *OF_THEIR_OWN, "CHANGELOG.md")
        if name not in files
    ]
    assert missing == []


def test_names_with_dots_lead_to_something() -> None:
    missing = [
        f"{place}: {name}"
        for place, name in all_of(DOTTED, *OF_THEIR_OWN, "CHANGELOG.md")
        if not leads_somewhere(name)
    ]
    assert missing == []


@cache
def leads_somewhere(name: str) -> bool:
    """Is it a module, or does the module that it begins with say the word that follows?"""
    place, words = ROOT / "src", name.split(".")
    while words and (place / words[0]).is_dir():
        place /= words.pop(0)
    if words and (place / f"{words[0]}.py").is_file():
        place = place / f"{words.pop(0)}.py"
    text = place if place.is_file() else place / "__init__.py"
    return not words or re.search(rf"\b{words[0]}\b", text.read_text("utf-8")) is not None


def test_nobody_cites_notes_that_are_not_here() -> None:
    assert [f"{place}: {text}" for place, text in all_of(CITATION)] == []


def test_the_teaching_compiler_names_places_of_the_house() -> None:
    text = (ROOT / "examples" / "from_scratch.py").read_text()
    named = [
        place
        for line in re.findall(r"^# House: (.*)$", text, re.MULTILINE)
        for place in re.findall(r"[a-z_]+(?:/[a-z_]+)+(?:\.py)?", line)
    ]
    assert len(named) > 6
    assert [p for p in named if not (ROOT / "src" / "tilewright" / p).exists()] == []
