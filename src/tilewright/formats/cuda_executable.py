"""Executables of the format `cuda-nvptx-fb`: kernels of NVIDIA GPUs as PTX text with their exports.

A FlatBuffer, since release 3.9 behind a header of 64 bytes; read with every offset checked, and
written the way the newest compilers do.  The PTX itself is not looked into: the GPU's driver
compiles it.  Called by `runtime.drivers.cuda` and by whoever makes such executables.

Source: modules of IREE's compilers 3.0 to 3.13, decoded; the field names are those of its schema
(`cuda_executable_def.fbs`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import Buffer, ByteView, view_bytes
from tilewright.formats.vmfb.flatbuffer import TableView
from tilewright.formats.vmfb.flatbuffer_writer import (
    Elements,
    Inline,
    Node,
    Scalar,
    Table,
    Tables,
    Text,
    write_flatbuffer,
)

FORMAT: Final = "cuda-nvptx-fb"
IDENTIFIER: Final = b"CDA1"
HEADER: Final = struct.Struct("<4sIQ48x")
"""Magic, version, size of what follows; older files begin with the FlatBuffer itself."""
VERSION: Final = 0

BINDING_READ_ONLY: Final = 1
BINDING_INDIRECT: Final = 2

_BLOCK: Final = struct.Struct("<3I")
_MAX_THREADS: Final = 1024


class _Slot:
    """Slot numbers of the tables' fields."""

    EXPORTS, MODULES = 0, 1
    MODULE_ORDINAL, KERNEL_NAME, BLOCK, SHARED_BYTES, CONSTANTS, BINDINGS = range(6)
    NAME = 7
    IMAGE = 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CudaExport:
    """A kernel of an executable.

    Attributes:
        name: what dispatches call it.
        module: which of the images has it.
        kernel_name: its entry in that image.
        block: threads in x, y and z.
        shared_bytes: dynamic shared memory of a block.
        constant_count: u32 parameters behind the bindings.
        binding_flags: one per binding, bits `BINDING_…`.
    """

    name: str
    module: int = 0
    kernel_name: str
    block: tuple[int, int, int] = (1, 1, 1)
    shared_bytes: int = 0
    constant_count: int = 0
    binding_flags: tuple[int, ...] = ()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CudaExecutableDef:
    """The contents of an executable: PTX (or machine code) images and the kernels in them."""

    exports: tuple[CudaExport, ...]
    images: tuple[bytes, ...]


def is_cuda_executable(data: Buffer) -> bool:
    """Whether bytes look like such an executable, with or without the header."""
    view = view_bytes(data)
    return IDENTIFIER in (bytes(view[:4]), bytes(view[4:8]))


def read_cuda_executable(data: Buffer, location: str = "executable") -> CudaExecutableDef:
    """Read an executable.

    Raises: ArchiveError: it is corrupt, truncated or of another version.
    """
    root = TableView.root(_contents(ByteView(data, location)), IDENTIFIER, location)
    images = tuple(
        _image(table, index, location)
        for index, table in enumerate(root.tables(_Slot.MODULES, "modules"))
    )
    exports = tuple(
        _export(table, index, len(images), location)
        for index, table in enumerate(root.tables(_Slot.EXPORTS, "exports"))
    )
    return CudaExecutableDef(exports=exports, images=images)


def _contents(view: ByteView) -> memoryview:
    if bytes(view.data[:4]) != IDENTIFIER:
        return view.data
    view.check(0, HEADER.size, "header")
    _, version, size = HEADER.unpack_from(view.data)
    if version != VERSION:
        raise ArchiveError(
            f"header version {version}, expected {VERSION}", location=view.location
        )
    return view.sub(HEADER.size, size, "contents")


def _image(table: TableView, index: int, location: str) -> bytes:
    image = table.vector(_Slot.IMAGE, 1, "image")
    if not image:
        raise ArchiveError(f"module {index} has no image", location=location)
    return bytes(image)


def _export(table: TableView, index: int, modules: int, location: str) -> CudaExport:
    kernel_name = table.text(_Slot.KERNEL_NAME, "kernel name")
    module = table.u32(_Slot.MODULE_ORDINAL)
    block = table.struct(_Slot.BLOCK, _BLOCK)
    flags = table.vector(_Slot.BINDINGS, 8, "binding flags") or b""
    where = f"{location}: export {index} '{kernel_name}'"
    if not kernel_name:
        raise ArchiveError(f"export {index} has no name", location=location)
    if module >= modules:
        raise ArchiveError(f"module {module} of {modules}", location=where)
    if block is None or not 0 < block[0] * block[1] * block[2] <= _MAX_THREADS:
        raise ArchiveError(f"block of {block} threads", location=where)
    return CudaExport(
        name=table.text(_Slot.NAME, "export name") or kernel_name,
        module=module,
        kernel_name=kernel_name,
        block=(block[0], block[1], block[2]),
        shared_bytes=table.u32(_Slot.SHARED_BYTES),
        constant_count=table.u32(_Slot.CONSTANTS),
        binding_flags=struct.unpack(f"<{len(flags) // 8}Q", flags),
    )


def write_cuda_executable(executable: CudaExecutableDef) -> bytes:
    """The bytes of an executable, header included."""
    modules = tuple(
        Table(((_Slot.IMAGE, Elements(image, 1, 1)),)) for image in executable.images
    )
    root = Table(
        (
            (_Slot.EXPORTS, Tables(tuple(map(_export_table, executable.exports)))),
            (_Slot.MODULES, Tables(modules)),
        )
    )
    contents = write_flatbuffer(root, IDENTIFIER, has_size_prefix=False)
    return HEADER.pack(IDENTIFIER, VERSION, len(contents)) + contents


def _export_table(export: CudaExport) -> Table:
    flags = struct.pack(f"<{len(export.binding_flags)}Q", *export.binding_flags)
    fields: tuple[tuple[int, Node], ...] = (
        (_Slot.MODULE_ORDINAL, Scalar("I", export.module)),
        (_Slot.KERNEL_NAME, Text(export.kernel_name)),
        (_Slot.BLOCK, Inline("I", export.block)),
        (_Slot.SHARED_BYTES, Scalar("I", export.shared_bytes)),
        (_Slot.CONSTANTS, Scalar("I", export.constant_count)),
        (_Slot.BINDINGS, Elements(flags, 8, 8)),
        (_Slot.NAME, Text(export.name)),
    )
    return Table(fields)
