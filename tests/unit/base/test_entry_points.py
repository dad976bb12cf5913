"""Entry points: listed by their metadata, imported by exact name, and failures that name the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.installed_package import install
from tilewright.base.entry_points import (
    EntryPointGroup,
    find_entry_point,
    list_entry_points,
)
from tilewright.base.errors import UserError
from tilewright.base.fork_locks import LATE_IMPORTS

KINDS = EntryPointGroup.MODULE_KINDS
NAMES = ("offering", "offering_too", "failing")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "site"
    monkeypatch.syspath_prepend(str(path))
    yield path
    for name in NAMES:
        sys.modules.pop(name, None)


def test_what_is_installed_is_listed_without_importing_it(site: Path) -> None:
    rows = {"tilewright.module_kinds": {"b.kind": "offering:load", "a": "offering"}}
    install(site, "offering", "raise RuntimeError", rows, version="2.1")
    found = [row for row in list_entry_points(KINDS) if row.package == "offering 2.1"]
    assert [(row.name, row.value) for row in found] == [
        ("a", "offering"),
        ("b.kind", "offering:load"),
    ]
    assert "offering" not in sys.modules


def test_only_the_exact_name_is_found(site: Path) -> None:
    install(site, "offering", "x = 5", {KINDS.value: {"kind": "offering:x"}})
    assert find_entry_point(KINDS, "kin") is None
    assert find_entry_point(KINDS, "Kind") is None
    assert find_entry_point(EntryPointGroup.CODE_GENERATORS, "kind") is None
    found = find_entry_point(KINDS, "kind")
    assert found is not None
    assert found.load() == 5


@pytest.mark.parametrize(
    ("source", "value", "text"),
    [
        ("import no_such_package_anywhere", "failing", "ModuleNotFoundError"),
        ("1 / 0", "failing", "ZeroDivisionError: division by zero"),
        ("", "failing:nothing", "AttributeError"),
        ("", "failing nothing", "cannot be loaded"),
        ("def f(:", "failing", "SyntaxError"),
    ],
)
def test_what_fails_names_its_package(
    site: Path, source: str, value: str, text: str
) -> None:
    install(site, "failing", source, {KINDS.value: {"kind": value}})
    found = find_entry_point(KINDS, "kind")
    assert found is not None
    with pytest.raises(
        UserError, match=r"package failing 1\.0, entry point 'kind'"
    ) as caught:
        found.load()
    assert text in str(caught.value)


def test_two_packages_that_offer_one_name_are_both_named(site: Path) -> None:
    for name in NAMES[:2]:
        install(site, name, "", {KINDS.value: {"kind": name}})
    with pytest.raises(UserError, match=r"offering 1\.0 and offering_too 1\.0"):
        find_entry_point(KINDS, "kind")


def test_a_package_whose_metadata_is_gone_is_no_obstacle(site: Path) -> None:
    install(site, "offering", "x = 5", {KINDS.value: {"kind": "offering:x"}})
    (site / "offering-1.0.dist-info" / "METADATA").unlink()
    found = find_entry_point(KINDS, "kind")
    assert found is not None
    assert found.load() == 5


def test_a_row_that_another_package_wrote_wrong_is_no_obstacle(site: Path) -> None:
    install(site, "offering", "x = 5", {KINDS.value: {"kind": "offering:x"}})
    install(site, "failing", "", {"somebody.else": {"a": "no object of Python"}})
    found = find_entry_point(KINDS, "kind")
    assert found is not None
    assert found.load() == 5


def test_rows_that_cannot_be_read_name_their_package(site: Path) -> None:
    install(site, "failing", "", {KINDS.value: {"kind": "failing:x\n[broken"}})
    with pytest.raises(UserError, match=r"entry points of package failing 1\.0"):
        find_entry_point(KINDS, "kind")


def test_the_version_that_comes_first_on_the_path_is_the_one(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "offering", "x = 5", {KINDS.value: {"kind": "offering:x"}})
    rows = {KINDS.value: {"kind": "offering:x", "newer": "offering:x"}}
    install(tmp_path / "first", "offering", "x = 6", rows, version="2.0")
    monkeypatch.syspath_prepend(str(tmp_path / "first"))
    found = [row for row in list_entry_points(KINDS) if row.value == "offering:x"]
    assert [(row.name, row.package) for row in found] == [
        ("kind", "offering 2.0"),
        ("newer", "offering 2.0"),
    ]
    monkeypatch.undo()


def test_what_reads_metadata_is_loaded_when_somebody_asks() -> None:
    program = (
        "import sys\n"
        "from tilewright.base.entry_points import EntryPointGroup, list_entry_points\n"
        "print('importlib.metadata' in sys.modules)\n"
        "list_entry_points(EntryPointGroup.MODULE_KINDS)\n"
        "print('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.split() == ["False", "True"]


def test_no_fork_comes_between_while_metadata_is_read(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer Pythons import more there, and a child would find their locks taken for ever."""
    install(site, "offering", "", {"tilewright.module_kinds": {"a": "offering"}})
    held: list[bool] = []

    def package(_: object) -> str:
        held.append(LATE_IMPORTS._is_owned())  # pyright: ignore[reportAttributeAccessIssue]
        return "offering 1"

    monkeypatch.setattr("tilewright.base.entry_points._package", package)
    assert find_entry_point(KINDS, "a") is not None
    assert held
    assert all(held)
