from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.vmfb import (
    CallSite,
    DebugDatabase,
    FileLine,
    Fused,
    ModuleDef,
    Named,
    Rodata,
    SourceMap,
    archive_bytes,
    read_archive,
)
from tilewright.formats.vmfb.flatbuffer import TableView
from tilewright.formats.vmfb.schema import Root, Segment
from unit.formats.conftest import ARCHIVES


def test_modules_of_iree_say_what_they_are(iree_archive: bytes) -> None:
    module = read_archive(iree_archive)
    assert module.name.isidentifier()
    assert module.bytecode_version >> 16 in (15, 16, 17)
    depends = {item.name for item in module.dependencies}
    assert depends & {"hal", "hal_inline"}
    assert {item.name for item in module.exports} - {"__init"}
    assert {item.name.partition(".")[0] for item in module.imports} <= depends
    assert module.debug is not None


def test_one_module_in_detail() -> None:
    module = read_archive((ARCHIVES / "iree-3.13.0-ctrl_vmvx.vmfb").read_bytes())
    assert module.types[:2] == ("i32", "i64")
    assert module.dependencies[0].minimum_version == 7
    assert module.signatures[0].calling_convention == "0ri_ri"
    assert "iree.abi.declaration" in module.signatures[0].attributes
    assert bytes(module.rodata[0].data) == b"hal.device.id"
    assert module.rodata[4].external
    assert module.state.global_refs == 2
    assert module.functions[0].word_registers == 40
    assert module.function_names()[0] == "ctrl"


def test_data_are_views_of_the_archive() -> None:
    data = (ARCHIVES / "iree-3.13.0-add_vmvx.vmfb").read_bytes()
    module = read_archive(data)
    assert all(memoryview(segment.data).obj is data for segment in module.rodata)
    assert memoryview(module.bytecode).obj is data


def test_an_archive_may_lie_inside_a_zip_file(tmp_path: Path) -> None:
    plain = archive_bytes(ModuleDef(name="m", rodata=(Rodata(data=b"x" * 500),)))
    path = tmp_path / "module.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        info = zipfile.ZipInfo("module.fb")
        info.extra = struct.pack("<HH", 0xCAFE, 21) + bytes(21)
        file.writestr(info, plain)
    module = read_archive(path.read_bytes())
    assert module.name == "m"
    assert bytes(module.rodata[0].data) != b""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("module.fb", plain)
    with pytest.raises(ArchiveError, match="compressed with method 8"):
        read_archive(path.read_bytes())


def test_debug_data_of_every_kind_is_kept() -> None:
    locations = (
        None,
        FileLine("a.mlir", 3, 7),
        Named("name", 1),
        CallSite(1, 2),
        Fused("", (1, 2, 3)),
        Fused("why", ()),
    )
    maps = (SourceMap(name="f", locations=((0, 1), (7, 4))), SourceMap(name="g"))
    module = ModuleDef(name="m", debug=DebugDatabase(locations=locations, functions=maps))
    assert read_archive(archive_bytes(module)).debug == module.debug


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "is no .vmfb archive: too short"),
        (b"\x10\0\0\0", "is no .vmfb archive: too short"),
        (bytes(64), "file identifier"),
        (b"PK\x03\x04", "ZIP header"),
        (struct.pack("<I", 8) + struct.pack("<I", 4) + b"TFL3", "expected b'IREE'"),
    ],
)
def test_other_bytes_are_refused(data: bytes, complaint: str) -> None:
    with pytest.raises(ArchiveError, match=complaint):
        read_archive(data, "model.vmfb")


def test_a_truncated_archive_is_refused_at_every_length() -> None:
    data = archive_bytes(ModuleDef(name="m", rodata=(Rodata(data=b"x" * 300),)))
    for length in range(len(data)):
        with pytest.raises(ArchiveError):
            read_archive(data[:length])


def test_tables_that_unfold_without_end_are_refused() -> None:
    """A vector of 65 536 entries, each the same table with the same vector of as many more."""
    count = 1 << 16
    out = bytearray(struct.pack("<I", 0) + b"IREE")
    root_vtable = len(out)
    out += struct.pack("<HHHHHHHHHHH", 22, 8, 0, 0, 0, 0, 0, 0, 0, 0, 4)
    out += bytes(-len(out) % 4)
    root = len(out)
    out += struct.pack("<iI", root - root_vtable, 4)
    outer = len(out)
    inner_at = outer + 4 + 4 * count + 12
    out += struct.pack("<I", count)
    out += b"".join(struct.pack("<I", inner_at - (outer + 4 + 4 * i)) for i in range(count))
    vtable = len(out)
    out += struct.pack("<HHHHH", 8, 8, 0, 4, 0) + bytes(2)
    assert len(out) == inner_at
    out += struct.pack("<iI", inner_at - vtable, 4)
    inner = len(out)
    out += struct.pack("<I", count)
    out += b"".join(
        struct.pack("<I", inner_at - (inner + 4 + 4 * i) & 0xFFFF_FFFF)
        for i in range(count)
    )
    struct.pack_into("<I", out, 0, root)
    with pytest.raises(ArchiveError):
        read_archive(struct.pack("<I", len(out)) + bytes(out))


def test_a_vector_that_is_unfolded_over_and_over_is_refused() -> None:
    data = bytes(
        archive_bytes(
            ModuleDef(name="m", rodata=(Rodata(data=b"x" * 250_000, external=False),))
        )
    )
    size = struct.unpack_from("<I", data)[0]
    root = TableView.root(data[4 : 4 + size], b"IREE", "module")

    def unfold() -> None:
        for _ in range(100):
            (segment,) = root.tables(Root.RODATA, "read-only data")
            segment.vector(Segment.EMBEDDED, 1, "bytes")

    with pytest.raises(ArchiveError, match="refer to the same data over and over"):
        unfold()
