"""Memory and code images in Python over ctypes and mmap: the lower half of the fallback.

Not here: running anything (`fallback`).  Two differences from the C core show: a `Memory` of 0 bytes has
a 1-byte buffer, and `map_file` copies.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from tilewright.base.input_file import STREAM, is_stream
from tilewright.runtime.native.records import (
    ENVIRONMENT,
    PROTECT_EXECUTE,
    PROTECT_READ,
    PROTECT_WRITE,
)

_QUERY: Final = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p)
_SYSTEM_PROTECTION: Final = (
    (PROTECT_READ, getattr(mmap, "PROT_READ", 0)),
    (PROTECT_WRITE, getattr(mmap, "PROT_WRITE", 0)),
    (PROTECT_EXECUTE, getattr(mmap, "PROT_EXEC", 0)),
)
_PIECE_BYTES: Final = 1 << 24
_WRITE_AND_EXECUTE: Final = PROTECT_WRITE | PROTECT_EXECUTE


class _PyBuffer(ctypes.Structure):
    """The start of CPython's Py_buffer; room for the rest."""

    _fields_ = [
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("rest", ctypes.c_byte * 128),
    ]


def buffer_address(value: object) -> int:
    """Address of a buffer; valid while a memoryview of it is held."""
    view = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(value), ctypes.byref(view), 0)
    address = view.buf or 0
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
    return address


# ------------------------------------------------------------------ memory


class Memory(mmap.mmap):
    """A zeroed block of whole pages."""

    address: int
    size_bytes: int
    readonly: bool

    def __new__(cls, size_bytes: int) -> Self:
        """Map anonymous memory."""
        if size_bytes < 0:
            raise ValueError(f"size_bytes is {size_bytes}, expected at least 0")
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            self = super().__new__(cls, -1, max(size_bytes, 1), flags=flags)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"{size_bytes} bytes") from error
        return self._describe(size_bytes, readonly=False)

    def _describe(self, size_bytes: int, *, readonly: bool) -> Self:
        self.address = buffer_address(self)
        self.size_bytes = size_bytes
        self.readonly = readonly
        return self

    @classmethod
    def map(cls, descriptor: int, length: int) -> Self:
        """Map the beginning of a file for reading."""
        self = super().__new__(cls, descriptor, max(length, 1), prot=mmap.PROT_READ)
        return self._describe(length, readonly=True)

    def check(self) -> None:
        """For the C core, whose mappings can be lost; these are copies."""


def map_file(path: str | Path, offset: int = 0, length: int | None = None) -> Memory:
    """A read-only copy of a file range: Python cannot catch the signal that cut mappings raise."""
    if is_stream(path):  # which would be waited for
        raise ValueError(STREAM)
    with Path(path).open("rb") as file, tempfile.TemporaryFile(buffering=0) as copy:
        file_bytes = file.seek(0, 2)
        wanted = file_bytes - offset if length is None else length
        if offset > file_bytes or wanted > file_bytes - offset:
            raise ValueError(
                f"range of {wanted} bytes at offset {offset} ends after the file's {file_bytes} bytes"
            )
        file.seek(offset)
        left = wanted
        while left:
            piece = file.read(min(left, _PIECE_BYTES))
            if not piece:
                raise ValueError(f"the file became shorter than {offset + wanted} bytes")
            left -= copy.write(piece)
        if wanted == 0:
            copy.write(b"\0")
        return Memory.map(copy.fileno(), wanted)


def processor_data() -> tuple[int, ...]:
    """No feature words: nobody can ask the processor without the C core."""
    return (0,) * 8


_IMPORT: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)
_THUNK: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)


@_THUNK
def _call_import(
    function: int, params: int | None, context: int | None, reserved: int | None
) -> int:
    return _IMPORT(function)(params, context, reserved)


def import_thunk() -> int:
    """The address of the function that kernels call imports through."""
    return ctypes.cast(_call_import, ctypes.c_void_p).value or 0


default_environment: Final = Memory(ENVIRONMENT.size)

# ------------------------------------------------------------------ code images


class CodeImage:
    """Code in memory, written first and protected afterwards."""

    def __init__(
        self,
        size_bytes: int,
        segments: Sequence[tuple[int, bytes]],
        relocations: Sequence[tuple[int, int, bool]],
        protections: Sequence[tuple[int, int, int]],
    ) -> None:
        if size_bytes <= 0:
            raise ValueError("size_bytes is out of range")
        self._memory = Memory(size_bytes)
        self.base: int = self._memory.address
        self.size_bytes: int = size_bytes
        view = memoryview(self._memory)
        for index, (offset, data) in enumerate(segments):
            self._check("segment", index, offset, len(data))
            view[offset : offset + len(data)] = data
        for index, (offset, value, is_base_relative) in enumerate(relocations):
            self._check("relocation", index, offset, 8)
            word = (value + (self.base if is_base_relative else 0)) & 0xFFFFFFFFFFFFFFFF
            view[offset : offset + 8] = word.to_bytes(8, sys.byteorder)
        view.release()
        self._protections = bytearray(-(-size_bytes // mmap.PAGESIZE))
        for index, (offset, length, protection) in enumerate(protections):
            self._check("protection", index, offset, length)
            if protection & _WRITE_AND_EXECUTE == _WRITE_AND_EXECUTE:
                raise ValueError(f"protection {index}: writable and executable")
            for page in self._pages(offset, length):
                self._protections[page] = protection
        self._seal()

    def address(self, offset: int) -> int:
        """Address of an offset."""
        if not 0 <= offset < self.size_bytes:
            raise IndexError(
                f"offset {offset} is outside the image of {self.size_bytes} bytes"
            )
        return self.base + offset

    def read(self, address: int, length: int) -> bytes:
        """Bytes of readable pages."""
        offset = address - self.base
        if not self._allows(offset, length, PROTECT_READ):
            raise IndexError(
                f"{length} bytes at address {address:#x} are not readable image memory"
            )
        return ctypes.string_at(address, length)

    def holds_code(self, address: int) -> bool:
        """Whether an address may be called."""
        return self._allows(address - self.base, 1, PROTECT_EXECUTE)

    def call_query(self, offset: int, version: int, environment_address: int) -> int:
        """Call the library query function at an offset."""
        if not self._allows(offset, 1, PROTECT_EXECUTE):
            raise ValueError(f"offset {offset} is not executable image memory")
        query = _QUERY(self.base + offset)
        return query(version, environment_address or default_environment.address) or 0

    def _check(self, subject: str, index: int, offset: int, length: int) -> None:
        if offset < 0 or length < 0 or offset + length > self.size_bytes:
            raise ValueError(
                f"{subject} {index}: outside the image of {self.size_bytes} bytes"
            )

    def _pages(self, offset: int, length: int) -> range:
        return range(
            offset // mmap.PAGESIZE, -(-(offset + length) // mmap.PAGESIZE) if length else 0
        )

    def _allows(self, offset: int, length: int, protection: int) -> bool:
        if offset < 0 or offset + length > self.size_bytes:
            return False
        return all(
            self._protections[page] & protection for page in self._pages(offset, length)
        )

    def _seal(self) -> None:
        protect = ctypes.CDLL(None, use_errno=True).mprotect
        for page, protection in enumerate(self._protections):
            bits = sum(system for ours, system in _SYSTEM_PROTECTION if protection & ours)
            address = ctypes.c_void_p(self.base + page * mmap.PAGESIZE)
            if protect(address, ctypes.c_size_t(mmap.PAGESIZE), bits) != 0:
                raise OSError(ctypes.get_errno(), "mprotect")
