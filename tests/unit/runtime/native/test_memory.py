"""Memory, file mappings and the environment block."""

from __future__ import annotations

import gc
import mmap
import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from tilewright.runtime import native
from tilewright.runtime.native import records


@pytest.mark.parametrize("size_bytes", [1, 63, 4097, (2 << 20) - 1, 2 << 20, (5 << 20) + 3])
def test_memory_is_zeroed_aligned_and_writable(core: ModuleType, size_bytes: int) -> None:
    memory = core.Memory(size_bytes)
    array = np.frombuffer(memory, np.uint8)
    assert memory.address % 64 == 0
    assert memory.size_bytes == len(memory) == array.size == size_bytes
    assert array.ctypes.data == memory.address
    assert not array.any()
    array[:] = 7
    assert bytes(memoryview(memory)[-1:]) == b"\x07"
    assert not memory.readonly


def test_memory_of_no_bytes_exists(core: ModuleType) -> None:
    assert core.Memory(0).size_bytes == 0


def test_large_memory_starts_at_a_huge_page(extension: ModuleType) -> None:
    assert extension.Memory(2 << 20).address % (2 << 20) == 0


def test_memory_lives_as_long_as_its_views(core: ModuleType) -> None:
    array = np.frombuffer(core.Memory(3 << 20), np.uint8)
    gc.collect()
    array[:] = 9
    assert (array == 9).all()


def test_memory_refuses_a_negative_size(core: ModuleType) -> None:
    with pytest.raises(ValueError, match="size_bytes is -1, expected at least 0"):
        core.Memory(-1)


def test_memory_that_nobody_has_is_an_error(core: ModuleType) -> None:
    with pytest.raises(MemoryError):
        core.Memory((1 << 62) - 1)


@pytest.mark.parametrize("offset", [0, 1, 63, 64, mmap.PAGESIZE, 3 * mmap.PAGESIZE + 17])
def test_map_file_shows_the_range_from_any_offset(
    core: ModuleType, tmp_path: Path, offset: int
) -> None:
    content = np.random.default_rng(0).bytes(5 * mmap.PAGESIZE + 5)
    path = tmp_path / "weights"
    path.write_bytes(content)
    whole = core.map_file(path, offset)
    part = core.map_file(str(path), offset=offset, length=100)
    assert bytes(memoryview(whole)) == content[offset:]
    assert bytes(memoryview(part)) == content[offset : offset + 100]
    assert part.readonly


def test_a_mapping_from_a_page_on_cannot_be_written(
    core: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "weights"
    path.write_bytes(bytes(2 * mmap.PAGESIZE))
    view = memoryview(core.map_file(path, mmap.PAGESIZE))
    assert view.readonly
    with pytest.raises(TypeError):
        view[0] = 1


def test_a_mapping_outlives_the_name_of_its_file(core: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    memory = core.map_file(path)
    path.unlink()
    assert bytes(memoryview(memory)) == b"abc"


@pytest.mark.parametrize(
    ("offset", "length"), [(0, 4), (3, 1), (4, None), (1, 3), (0, 1 << 62)]
)
def test_map_file_refuses_what_ends_after_the_file(
    core: ModuleType, tmp_path: Path, offset: int, length: int | None
) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    with pytest.raises(ValueError, match="ends after the file's 3 bytes"):
        core.map_file(path, offset, length)


def test_map_file_names_a_missing_file(core: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere"):
        core.map_file(tmp_path / "nowhere")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs")
def test_a_pipe_or_a_device_is_not_waited_for(core: ModuleType, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", os.devnull):
        with pytest.raises(ValueError, match="is a device or a pipe, expected a file"):
            core.map_file(path)
    with pytest.raises((ValueError, OSError)):
        core.map_file(tmp_path)


def test_an_empty_range_can_be_mapped(core: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    assert core.map_file(path, 3).size_bytes == 0


def test_processor_data_agrees_with_the_system(extension: ModuleType) -> None:
    words = extension.processor_data()
    assert len(words) == 8
    flags = Path("/proc/cpuinfo")
    if not flags.exists() or " avx2 " not in flags.read_text().replace("\n", " "):
        pytest.skip("not an x86 processor with AVX2")
    names = flags.read_text().split("flags", 1)[1].split("\n", 1)[0].split()
    bits = {"ssse3": 1, "sse4_1": 2, "avx": 10, "fma": 11, "f16c": 14, "avx2": 15}
    bits |= {"avx512f": 20, "avx512bw": 24, "avx512_vnni": 28, "avx512_bf16": 31}
    for name, bit in bits.items():
        assert bool(words[0] >> bit & 1) == (name in names), name


def test_an_environment_carries_constants_behind_itself() -> None:
    memory = native.create_environment(b"\x05\0\0\0\x06\0\0\0")
    fields = records.ENVIRONMENT.unpack_from(memoryview(memory))
    assert fields[0] == memory.address + records.ENVIRONMENT.size
    assert fields[1:4] == (0, 0, 0)
    assert fields[4:] == native.processor_data()
    tail = memoryview(memory)[records.ENVIRONMENT.size :]
    assert np.frombuffer(tail, "<u4").tolist() == [5, 6]
