"""The mark of sources differs where they do, and is found where the package is."""

from __future__ import annotations

import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.runtime.native import core_sources
from tilewright.runtime.native.core_sources import MARK_FILE, files_of_core, mark_of


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name in ("include/a.h", "src/b.c", "src/python/c.c", "src/relax/d.c"):
        path = tmp_path / "native" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"// {name}\n")
    return tmp_path / "native"


def test_the_files_are_those_of_the_extension(sources: Path) -> None:
    (sources / "src" / "library").mkdir()
    (sources / "src" / "library" / "e.c").touch()
    (sources / "src" / "notes.txt").touch()
    assert [path.name for path in files_of_core(sources)] == ["a.h", "b.c", "c.c", "d.c"]


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "src" / "b.c").write_text("// src/b.d\n"),
        lambda folder: (folder / "src" / "b.c").rename(folder / "src" / "e.c"),
        lambda folder: (folder / "include" / "a.h").unlink(),
        lambda folder: (folder / "src" / "f.h").touch(),
    ],
    ids=["content", "name", "one less", "one more"],
)
def test_a_change_is_another_mark(sources: Path, change: Callable[[Path], object]) -> None:
    before = mark_of(sources)
    assert mark_of(sources) == before
    change(sources)
    assert mark_of(sources) != before


def expected_in(root: Path) -> str | None:
    """What a package whose checkout is `root` expects."""
    place = root / "src" / "tilewright" / "runtime" / "native"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(core_sources.__file__, place)
    found = runpy.run_path(str(place / "core_sources.py"))
    mark: str | None = found["expected_mark"]()
    return mark


def test_a_checkout_expects_its_sources(sources: Path, tmp_path: Path) -> None:
    assert expected_in(tmp_path) == mark_of(sources)


def test_a_wheel_expects_what_it_was_built_from(sources: Path, tmp_path: Path) -> None:
    place = tmp_path / "src" / "tilewright" / "runtime" / "native"
    place.mkdir(parents=True)
    (place / MARK_FILE).write_text("1-2")
    assert expected_in(tmp_path) == "1-2"
    shutil.rmtree(sources)
    assert expected_in(tmp_path) == "1-2"


def test_where_there_is_neither_nothing_is_expected(tmp_path: Path) -> None:
    assert expected_in(tmp_path) is None
