"""Programs of language models that were kept: what of them is noticed when they are loaded again."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from fakes.language_models import speaking_form
from tilewright.api.language import programs
from tilewright.formats.parameters import read_parameters
from tilewright.runtime.loaders import module_file, outside_weights

pytestmark = pytest.mark.slow  # a model of two programs is compiled


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "tiny.gguf"
    place.write_bytes(speaking_form(layers=1).data())
    return place


def flipped(data: bytearray) -> bytearray:
    data[len(data) // 2] ^= 0x40
    return data


DAMAGES: dict[str, Callable[[bytearray], bytearray | None]] = {
    "as it was": lambda data: data,
    "a bit": flipped,
    "zeros": lambda data: data[:8192] + bytes(len(data) - 8192),
    "cut": lambda data: data[:-9000],
    "gone": lambda data: None,
}


def test_files_that_were_touched_are_compared_with_their_checksums(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    programs.make_programs(path, "0" * 64)
    (kept,) = [f for store in tmp_path.glob("cache/models*") for f in store.iterdir()]
    verify_archive = mock.Mock(wraps=module_file.verify_archive)
    monkeypatch.setattr(module_file, "verify_archive", verify_archive)
    for name, change in DAMAGES.items():
        folder = tmp_path / name
        shutil.copytree(kept, folder)
        assert programs._load(folder, None) is not None
        assert not verify_archive.called
        changed = change(bytearray((folder / "weights.irpa").read_bytes()))
        (folder / "weights.irpa").unlink()
        if changed is not None:
            (folder / "weights.irpa").write_bytes(changed)
            os.utime(folder / "weights.irpa", (7, 7))  # not the second of the first one
        found = programs._load(folder, None)
        assert (found is not None) == (name == "as it was") == folder.exists(), name
        verify_archive.reset_mock()
    # What was compared is not compared again.
    assert programs._load(tmp_path / "as it was", None) is not None
    assert not verify_archive.called


def test_weights_of_both_programs_are_compared_once(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    programs.make_programs(path, "0" * 64)
    (kept,) = [f for store in tmp_path.glob("cache/models*") for f in store.iterdir()]
    weights = kept / "weights.irpa"
    entries = read_parameters(weights.read_bytes(), "weights").entries
    os.utime(weights, (7, 7))
    seen: list[int] = []

    def crc32(data: memoryview) -> int:
        seen.append(data.nbytes)
        return zlib.crc32(data)

    monkeypatch.setattr(outside_weights, "zlib", mock.Mock(crc32=crc32))
    assert programs._load(kept, None) is not None
    assert sorted(seen) == sorted(entry.length for entry in entries.values())
