"""`tilewright cache`: where, how much, and gone."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from fakes.command_line import tilewright
from fakes.language_models import speaking_form
from tilewright.api.language import program_store
from tilewright.base import knobs


def test_the_cache_says_what_it_holds_and_is_cleared(
    mlp_onnx: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    with knobs.override(cache_dir=folder, cache="1"):
        assert tilewright("cache").row("holds") == "0 B in 0 entries"
        tilewright("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb")
        assert tilewright("cache").code == 0
        known = json.loads(tilewright("cache", "--json").out)
        assert known["folder"].startswith(str(folder))
        assert known["entries"] > 0
        assert known["bytes"] > 0
        done = tilewright("cache", "--clear")
        assert done.row("deleted").endswith(f"in {known['entries']} entries")
        assert json.loads(tilewright("cache", "--json").out)["entries"] == 0


def test_entries_that_cannot_be_deleted_are_an_error(
    mlp_onnx: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a file system that is mounted read-only."""

    def refuse(self: Path, missing_ok: bool = False) -> None:
        del missing_ok
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    with knobs.override(cache_dir=tmp_path / "cache", cache="1"):
        tilewright("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb")
        known = json.loads(tilewright("cache", "--json").out)
        monkeypatch.setattr(Path, "unlink", refuse)
        done = tilewright("cache", "--clear")
        assert done.code == 1
        assert done.row("deleted") == "0 B in 0 entries"
        assert done.err == (
            f"error: {known['folder']}: {known['entries']} of what it holds could not be deleted\n"
            "hint: the folder is read-only or another user's, or a compilation writes to it now\n"
        )
        assert tilewright("cache", "--clear", "--json").code == 1


def test_programs_that_cannot_be_deleted_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with knobs.override(cache_dir=tmp_path / "cache", cache="1"):
        store = program_store.ProgramStore.of_user()
        assert store.claim()
        store.place_of("a model").mkdir()
        monkeypatch.setattr(program_store, "remove", lambda folder: None)
        done = tilewright("cache", "--clear")
        assert done.code == 1
        assert done.err.startswith(f"error: {store.folder}: 1 of what it holds could not")


@pytest.mark.slow
def test_programs_of_language_models_are_shown_and_cleared(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    (tmp_path / "m.gguf").write_bytes(speaking_form(layers=1).data())
    with knobs.override(cache_dir=folder, cache="1"):
        assert tilewright("cache").row("programs") == "0 B of 0 models"
        tilewright("generate", tmp_path / "m.gguf", "the", "--tokens", "1")
        known = json.loads(tilewright("cache", "--json").out)["models"]
        assert known["folder"].startswith(str(folder))
        assert (known["entries"], known["bytes"] > 10000) == (1, True)
        assert tilewright("cache", "--clear").row("programs deleted").endswith("of 1 model")
        assert json.loads(tilewright("cache", "--json").out)["models"] == {
            "folder": known["folder"], "entries": 0, "bytes": 0,
        }  # fmt: skip
        assert list(Path(known["folder"]).iterdir()) == []
