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
from tilewright.base.errors import UserError
from tilewright.formats.parameters import read_parameters
from tilewright.runtime.loaders import module_file, outside_weights

pytestmark = pytest.mark.slow  # a model of two programs is compiled


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs, each of whose files has half a second in its time."""
    place = tmp_path_factory.mktemp("kept")
    (place / "tiny.gguf").write_bytes(speaking_form(layers=1).data())
    with mock.patch.dict(os.environ, TILEWRIGHT_CACHE_DIR=str(place / "cache")):
        programs.make_programs(place / "tiny.gguf", "0" * 64)
    (found,) = [f for store in place.glob("cache/models*") for f in store.iterdir()]
    for file in found.iterdir():
        os.utime(file, ns=(HALF, HALF))
    programs._note_stamps(found, programs._stamps(found))
    return found


@pytest.fixture
def verify_archive(monkeypatch: pytest.MonkeyPatch) -> mock.Mock:
    """Called for each archive that is compared."""
    found = mock.Mock(wraps=module_file.verify_archive)
    monkeypatch.setattr(module_file, "verify_archive", found)
    return found


SECOND = 1_000_000_000
HALF = 1_700_000_000 * SECOND + SECOND // 2


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


@pytest.mark.parametrize("name", DAMAGES)
@pytest.mark.parametrize("time", [7 * SECOND, HALF + 1])
def test_files_that_were_touched_are_compared_with_their_checksums(
    kept: Path, tmp_path: Path, verify_archive: mock.Mock, name: str, time: int
) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(kept, folder)  # which keeps times
    assert programs._load(folder, None) is not None
    assert not verify_archive.called
    weights = folder / "weights.irpa"
    changed = DAMAGES[name](bytearray(weights.read_bytes()))
    weights.unlink()
    if changed is not None:
        weights.write_bytes(changed)
        os.utime(weights, ns=(time, time))
    found = programs._load(folder, None)
    assert (found is not None) == (name == "as it was") == folder.exists()
    if found is not None:
        assert verify_archive.call_count == 2
        # What was compared is not compared again.
        assert programs._load(folder, None) is not None
        assert verify_archive.call_count == 2


@pytest.mark.parametrize("more", [-1, 1])
def test_a_size_that_is_another_one_is_noticed_whatever_the_time(
    kept: Path, tmp_path: Path, verify_archive: mock.Mock, more: int
) -> None:
    shutil.copytree(kept, tmp_path / "copy")
    weights = tmp_path / "copy" / "weights.irpa"
    os.truncate(weights, weights.stat().st_size + more)
    os.utime(weights, ns=(HALF, HALF))
    programs._load(tmp_path / "copy", None)
    assert verify_archive.called


@pytest.mark.parametrize("copy", [shutil.copy2, shutil.copyfile])
def test_copies_are_compared_where_their_times_are_their_own(
    kept: Path, tmp_path: Path, verify_archive: mock.Mock, copy: Callable[..., object]
) -> None:
    shutil.copytree(kept, tmp_path / "copy", copy_function=copy)
    for _ in range(2):
        assert programs._load(tmp_path / "copy", None) is not None
        assert verify_archive.call_count == (0 if copy is shutil.copy2 else 2)


@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_times_that_were_cut_to_seconds_are_those_that_were_noted(
    kept: Path, tmp_path: Path, verify_archive: mock.Mock, seconds: int
) -> None:
    """As archives and images of containers cut them."""
    shutil.copytree(kept, tmp_path / "copy")
    time = HALF - SECOND // 2 + seconds * SECOND
    for name in ("read.vmfb", "next.vmfb", "weights.irpa"):
        os.utime(tmp_path / "copy" / name, ns=(time, time))
    assert programs._load(tmp_path / "copy", None) is not None
    assert verify_archive.call_count == (2 if seconds else 0)


def test_weights_of_both_programs_are_compared_once(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(kept, tmp_path / "copy")
    weights = tmp_path / "copy" / "weights.irpa"
    entries = read_parameters(weights.read_bytes(), "weights").entries
    weights.touch()
    seen: list[int] = []

    def crc32(data: memoryview) -> int:
        seen.append(data.nbytes)
        return zlib.crc32(data)

    monkeypatch.setattr(outside_weights, "zlib", mock.Mock(crc32=crc32))
    assert programs._load(tmp_path / "copy", None) is not None
    assert sorted(seen) == sorted(entry.length for entry in entries.values())


def test_a_folder_that_cannot_be_written_is_compared_at_each_start(
    kept: Path, tmp_path: Path, verify_archive: mock.Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(kept, tmp_path / "copy")
    (tmp_path / "copy" / "weights.irpa").touch()
    monkeypatch.setattr(Path, "write_text", mock.Mock(side_effect=PermissionError))
    for count in (2, 4):
        assert programs._load(tmp_path / "copy", None) is not None
        assert verify_archive.call_count == count


@pytest.mark.parametrize("noted", [b"", b"[" * 9000, b"\xff", b"1\n2\n3\n4", b"\n\n", None])
def test_notes_that_are_none_are_as_if_there_were_none(
    kept: Path, tmp_path: Path, verify_archive: mock.Mock, noted: bytes | None
) -> None:
    shutil.copytree(kept, tmp_path / "copy")
    (place,) = (tmp_path / "copy").glob("stamps*")
    place.unlink()
    if noted is not None:
        place.write_bytes(noted)
    assert programs._load(tmp_path / "copy", None) is not None
    assert verify_archive.call_count == 2


def test_what_cannot_watch_is_refused_though_programs_are_kept(kept: Path) -> None:
    place, cache = kept.parent.parent.parent, kept.parent.parent
    with (
        mock.patch.dict(os.environ, TILEWRIGHT_CACHE_DIR=str(cache)),
        pytest.raises(UserError, match="progress is 5, expected True, or an object with"),
    ):
        programs.make_programs(place / "tiny.gguf", "0" * 64, progress=5)  # pyright: ignore[reportArgumentType]
