"""Objects for a linker as a module: kind `static_library`, which is linked and not run.

Source: TVM 0.27, `runtime.ModuleLoadStaticLibrary`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import final

from tilewright.base.errors import ArchiveError, InputError, reason_of
from tilewright.base.options import path_option
from tilewright.base.output_file import open_output
from tilewright.formats.byte_cursor import ByteCursor
from tilewright.formats.byte_view import Buffer, ByteView, view_bytes
from tilewright.formats.native_file import ARCHIVE_MAGIC, OBJECT, describe, elf_type
from tilewright.runtime.native import map_file
from tilewright.runtime.packed.module import Module, ModuleProperties


@final
class StaticLibrary(Module):
    """An object or an archive of objects.

    Args:
        data: its bytes; not copied.
        function_names: the packed functions in it (symbols `__tvm_ffi_<name>`), as far as known.

    Raises: ArchiveError for bytes that are neither.
    """

    kind = "static_library"
    properties = (
        ModuleProperties.BINARY_SERIALIZABLE | ModuleProperties.COMPILATION_EXPORTABLE
    )

    def __init__(
        self, data: Buffer, function_names: Sequence[str] = (), location: str = "module"
    ) -> None:
        super().__init__()
        self._data: Buffer = data
        self._names: tuple[str, ...] = tuple(function_names)
        is_archive = bytes(view_bytes(data)[: len(ARCHIVE_MAGIC)]) == ARCHIVE_MAGIC
        if not is_archive and elf_type(data) != OBJECT:
            raise ArchiveError(
                f"is {describe(data)}, expected an object or an archive of objects",
                location=location,
            )
        self._format: str = "a" if is_archive else "o"

    def function_names(self) -> Sequence[str]:
        return self._names

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether it will have the function when it is linked."""
        return name in self._names or super().implements_function(name, query_imports)

    def get_write_formats(self) -> Sequence[str]:
        return (self._format,)

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        """Write the bytes as they are.  Raises: InputError for the other format."""
        if fmt not in ("", self._format):
            raise InputError(
                f"it is written as '{self._format}', not as '{fmt}'",
                location=str(file_name),
            )
        with open_output(Path(file_name)) as file:
            file.write(view_bytes(self._data))

    def save_to_bytes(self) -> bytes:
        """As TVM does it: the bytes, then the names of the functions."""
        parts = [view_bytes(self._data), *(name.encode() for name in self._names)]
        texts = [len(part).to_bytes(8, "little") + bytes(part) for part in parts]
        return texts[0] + len(self._names).to_bytes(8, "little") + b"".join(texts[1:])


def load_static_library(
    path: str | Path, function_names: Sequence[str] = ()
) -> StaticLibrary:
    """A module that `export_library` links into what it writes.

    Args:
        path: an object or an archive of objects.
        function_names: the packed functions in it.

    Raises: ArchiveError for another file, and one that cannot be read.
    """
    where = path_option("path", path)
    try:
        data = map_file(where)
    except (OSError, ValueError) as error:
        raise ArchiveError(
            f"cannot read the file: {reason_of(error)}", location=where
        ) from error
    return StaticLibrary(memoryview(data)[: data.size_bytes], function_names, where)


def load_static_library_bytes(data: bytes) -> StaticLibrary:
    """The loader of the kind.  Raises: ArchiveError."""
    location = "module of kind 'static_library'"
    cursor = ByteCursor(ByteView(data, location))
    content = cursor.raw_text("object")
    count = cursor.u64("number of functions")
    names = [cursor.text("name") for _ in cursor.counted(count, 8, "list of functions")]
    return StaticLibrary(content, names, location)
