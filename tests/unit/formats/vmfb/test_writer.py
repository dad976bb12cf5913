from __future__ import annotations

import io
import mmap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.vmfb import (
    Export,
    ModuleDef,
    Rodata,
    archive_bytes,
    read_archive,
    write_archive,
)
from unit.formats.vmfb.modules import add_module


def test_what_was_written_is_read_back(iree_archive: bytes) -> None:
    module = read_archive(iree_archive)
    written = archive_bytes(module)
    again = read_archive(written)
    assert again == module
    assert archive_bytes(again) == written


def test_a_built_module_survives_the_file(tmp_path: Path) -> None:
    module = add_module()
    size = write_archive(module, tmp_path / "own.vmfb")
    data = (tmp_path / "own.vmfb").read_bytes()
    assert len(data) == size
    again = read_archive(data)
    assert [bytes(item.data) for item in again.rodata] == [
        bytes(i.data) for i in module.rodata
    ]
    assert sum(bool(item.external) for item in again.rodata) == 1  # the kernels
    assert again.functions == module.functions
    assert again.imports == module.imports
    assert again.dependencies == module.dependencies
    assert again.state == module.state


def test_the_same_module_gives_the_same_bytes() -> None:
    assert archive_bytes(add_module()) == archive_bytes(add_module())


def test_external_data_lies_on_64_byte_boundaries() -> None:
    parts = [bytes([n]) * size for n, size in enumerate((1, 63, 64, 65, 4096, 0))]
    module = ModuleDef(name="m", rodata=tuple(Rodata(data=p, external=True) for p in parts))
    data = archive_bytes(module)
    again = read_archive(data)
    base = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    for segment, part in zip(again.rodata, parts, strict=True):
        assert bytes(segment.data) == part
        if part:
            place = np.frombuffer(segment.data, np.uint8).__array_interface__["data"][0]
            assert (place - base) % 64 == 0


def test_small_data_goes_into_the_tables_unless_told() -> None:
    module = ModuleDef(
        name="m",
        rodata=(
            Rodata(data=b"x" * 255),
            Rodata(data=b"x" * 256),
            Rodata(data=b"x" * 9, external=True),
            Rodata(data=b"x" * 999, external=False),
        ),
    )
    kinds = [item.external for item in read_archive(archive_bytes(module)).rodata]
    assert kinds == [False, True, True, False]


def test_weights_are_streamed_from_their_arrays_and_never_copied(tmp_path: Path) -> None:
    weights = np.arange(8 << 20, dtype=np.float32).reshape(8, -1)
    module = ModuleDef(name="m", rodata=(Rodata(data=weights),))
    path = tmp_path / "big.vmfb"
    tracemalloc.start()
    try:
        write_archive(module, path)
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        segment = read_archive(mapped).rodata[0]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert np.array_equal(np.frombuffer(segment.data, np.float32), weights.reshape(-1))


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "model.vmfb"
    path.write_bytes(b"old")

    class Broken:
        """Not a buffer."""

    module = ModuleDef(name="m", rodata=(Rodata(data=b"x"), Rodata(data=Broken())))
    with pytest.raises(TypeError):
        write_archive(module, path)
    assert [item.name for item in tmp_path.iterdir()] == ["model.vmfb"]
    assert path.read_bytes() == b"old"


def test_files_get_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"")
    write_archive(ModuleDef(name="m"), tmp_path / "model.vmfb")
    assert (tmp_path / "model.vmfb").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_open_file_is_written_from_where_it_stands() -> None:
    file = io.BytesIO()
    write_archive(ModuleDef(name="m"), file)
    assert read_archive(file.getvalue()).name == "m"


def test_a_module_that_could_not_be_read_is_not_written() -> None:
    with pytest.raises(ArchiveError, match="export 'f' is function 0 of 0"):
        archive_bytes(ModuleDef(name="m", exports=(Export(name="f", function=0),)))
