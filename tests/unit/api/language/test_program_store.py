"""The folder of programs of language models: what counts as one, and what goes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tilewright.api.language.program_store import ProgramStore, place
from tilewright.base.diagnostics import TilewrightWarning


def _store(tmp_path: Path, *models: str) -> ProgramStore:
    store = ProgramStore(folder=tmp_path / "models")
    assert store.claim()
    for age, name in enumerate(models):
        with store.unfinished() as made:
            (made / "next.vmfb").write_bytes(b"x" * 100)
            place(made, store.place_of(name))
        os.utime(store.place_of(name), (1e9 - age, 1e9 - age))
    return store


def test_a_store_that_is_not_there_holds_nothing(tmp_path: Path) -> None:
    store = ProgramStore(folder=tmp_path / "models")
    assert store.usage() == (0, 0)
    assert store.clear() == (0, 0)
    assert not store.folder.exists()


def test_models_are_counted_with_what_they_take(tmp_path: Path) -> None:
    store = _store(tmp_path, "a", "b")
    (store.folder / "notes.txt").write_text("somebody's own")
    assert store.usage() == (2, 200)
    assert store.clear() == (2, 200)
    assert [f.name for f in store.folder.iterdir()] == ["notes.txt"]


def test_what_is_being_written_stays_until_it_is_old(tmp_path: Path) -> None:
    store = _store(tmp_path, "a")
    with store.unfinished() as made:
        (made / "read.vmfb").write_bytes(b"y" * 10)
        assert store.usage() == (1, 110)
        assert store.clear() == (1, 100)
        assert (made / "read.vmfb").exists()
        for each in (made.parent, made, made / "read.vmfb"):
            os.utime(each, (1e9, 1e9))
        assert store.clear() == (0, 10)
        assert not made.exists()
        made.mkdir(parents=True)  # what the block removes at its end


@pytest.mark.parametrize(("ahead", "stays"), [(3600, True), (1e6, False)])
def test_what_is_written_by_a_clock_that_is_ahead_stays(
    tmp_path: Path, ahead: float, stays: bool
) -> None:
    """The folder may lie on a machine whose clock is not ours; days ahead it was set back, and nobody writes any more."""
    store = _store(tmp_path)
    with store.unfinished() as made:
        time_there = time.time() + ahead
        for each in (made, made.parent):
            os.utime(each, (time_there, time_there))
        store.trim()
        assert made.exists() == stays
        made.mkdir(parents=True, exist_ok=True)  # what the block removes at its end


def test_links_are_removed_and_not_what_they_lead_to(tmp_path: Path) -> None:
    store, other = _store(tmp_path), tmp_path / "other"
    other.mkdir()
    (other / "kept.txt").write_text("k" * 5000)
    store.place_of("a").symlink_to(other)
    usage = store.usage()
    assert (usage.entry_count, usage.size_bytes < 5000) == (1, True)
    assert store.clear().entry_count == 1
    assert (other / "kept.txt").exists()


def test_the_models_used_last_are_kept(tmp_path: Path) -> None:
    store = _store(tmp_path, *"abcdef")
    store.trim()
    left = {f.name for f in store.folder.iterdir()}
    assert left == {store.place_of(name).name for name in "abcd"}


def test_models_dated_to_come_go_before_those_used_now(tmp_path: Path) -> None:
    """A clock was set back: the model that was compiled now would be compiled at each start."""
    store = _store(tmp_path, *"abcd")
    for name in "abcd":
        os.utime(store.place_of(name), (time.time() + 1e6, time.time() + 1e6))
    store.place_of("new").mkdir()
    store.trim()
    assert store.place_of("new").is_dir()
    assert store.usage().entry_count == 4


def test_a_folder_that_others_may_write_to_is_left_alone(tmp_path: Path) -> None:
    store = _store(tmp_path, "a")
    store.folder.chmod(0o777)
    with pytest.warns(TilewrightWarning, match="can be written by other users"):
        assert store.usage() == (0, 0)
    assert store.clear() == (0, 0)
    assert store.place_of("a").is_dir()
