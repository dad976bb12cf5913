"""Executable plugins: shared libraries that provide functions for kernels to call.

Not here: when they are asked (`loaders.imports`).

Source: IREE `hal/local/executable_plugin.h`, version 0.1.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final

from tilewright.base.errors import ArchiveError, InputError
from tilewright.base.input_file import why_no_file
from tilewright.base.status import code_name
from tilewright.base.version import VERSION as TILEWRIGHT

_QUERY: Final = "iree_hal_executable_plugin_query"
_VERSION: Final = 1
_NOT_FOUND: Final = 5
_CODE_MASK: Final = 0x1F
_POINTER: Final = ctypes.c_void_p
_ALLOCATE: Final = ctypes.CFUNCTYPE(_POINTER, _POINTER, ctypes.c_int, _POINTER, _POINTER)


class _Header(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("description", ctypes.c_char_p),
        ("features", ctypes.c_uint32),
        ("sanitizer", ctypes.c_uint32),
        ("reserved", ctypes.c_uint64 * 8),
    )


class _Environment(ctypes.Structure):
    _fields_ = (("allocator_self", _POINTER), ("allocator_control", _ALLOCATE))


class _ResolveParams(ctypes.Structure):
    _fields_ = (
        ("count", ctypes.c_size_t),
        ("names", ctypes.POINTER(ctypes.c_char_p)),
        ("functions", ctypes.POINTER(_POINTER)),
        ("contexts", ctypes.POINTER(_POINTER)),
    )


_LOAD: Final = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    ctypes.POINTER(_Environment),
    ctypes.c_size_t,
    _POINTER,
    ctypes.POINTER(_POINTER),
)
_UNLOAD: Final = ctypes.CFUNCTYPE(None, _POINTER)
_RESOLVE: Final = ctypes.CFUNCTYPE(
    ctypes.c_size_t,
    _POINTER,
    ctypes.POINTER(_ResolveParams),
    ctypes.POINTER(ctypes.c_uint32),
)


class _Interface(ctypes.Structure):
    _fields_ = (
        ("header", ctypes.POINTER(_Header)),
        ("load", _LOAD),
        ("unload", _UNLOAD),
        ("resolve", _RESOLVE),
    )


@_ALLOCATE
def _allocate(
    owner: int | None, command: int, params: int | None, pointer: int | None
) -> int:
    """The allocator that plugins get: the C library's."""
    del owner
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.calloc.restype = libc.realloc.restype = _POINTER
    place = ctypes.cast(pointer or 0, ctypes.POINTER(_POINTER))
    size = ctypes.c_size_t.from_address(params).value if params else 0
    made = [
        lambda: libc.malloc(ctypes.c_size_t(size)),
        lambda: libc.calloc(ctypes.c_size_t(1), ctypes.c_size_t(size)),
        lambda: libc.realloc(_POINTER(place[0]), ctypes.c_size_t(size)),
        lambda: libc.free(_POINTER(place[0])),
    ][command]()
    place[0] = None if command == 3 else made
    return 8 if command != 3 and made is None else 0  # RESOURCE_EXHAUSTED


@final
class PluginLibrary:
    """A shared library that resolves imports: an executable plugin.

    Args:
        path: the library.
        parameters: key and value pairs that it understands.

    Raises: InputError for a file that is no such library; ArchiveError for one of another version
    or that refuses to load.
    """

    def __init__(
        self, path: str | Path, parameters: Mapping[str, str] | None = None
    ) -> None:
        self.path: str = str(path)
        problem = why_no_file(path)  # the system's loader would wait for a pipe
        if problem is not None:
            raise InputError(f"no plugin: {problem}", location=self.path)
        try:
            self._library: ctypes.CDLL = ctypes.CDLL(str(Path(path).resolve()))
            query = getattr(self._library, _QUERY)
        except (OSError, AttributeError) as error:
            raise InputError(f"no plugin: {error}", location=self.path) from error
        query.restype = _POINTER
        found: int | None = query(ctypes.c_uint32(_VERSION), None)
        if not found:
            raise ArchiveError(
                f"the plugin needs a version of the interface above {_VERSION}, the one that "
                f"tilewright {TILEWRIGHT} has",
                location=self.path,
            )
        self._interface: _Interface = _Interface.from_address(found)
        header = self._interface.header.contents
        if header.version > _VERSION:
            raise ArchiveError(
                f"plugin version {header.version}, expected at most {_VERSION}",
                location=self.path,
            )
        self.name: str = (header.name or b"").decode(errors="replace")
        self._self: ctypes.c_void_p = _POINTER()
        self._load(parameters or {})

    def _load(self, parameters: Mapping[str, str]) -> None:
        texts = [text.encode() for pair in parameters.items() for text in pair]
        packed = (ctypes.c_size_t * (2 * len(texts)))()
        for index, text in enumerate(texts):
            packed[2 * index] = ctypes.cast(ctypes.c_char_p(text), _POINTER).value or 0
            packed[2 * index + 1] = len(text)
        self._environment: _Environment = _Environment(None, _allocate)
        status = self._interface.load(
            ctypes.byref(self._environment),
            len(parameters),
            packed,
            ctypes.byref(self._self),
        )
        if status:
            raise ArchiveError(
                f"the plugin does not load ({code_name(status & _CODE_MASK)})",
                location=self.path,
            )

    def close(self) -> None:
        """Unload; no kernel that calls it may run any more."""
        self._interface.unload(self._self)

    def resolve(self, names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
        """Addresses of functions and their contexts, of those names that it has."""
        wanted = sorted(names)
        texts = (ctypes.c_char_p * len(wanted))(*(name.encode() for name in wanted))
        functions = (_POINTER * len(wanted))()
        contexts = (_POINTER * len(wanted))()
        params = _ResolveParams(len(wanted), texts, functions, contexts)
        bits = ctypes.c_uint32()
        status = self._interface.resolve(
            self._self, ctypes.byref(params), ctypes.byref(bits)
        )
        if status & _CODE_MASK not in (0, _NOT_FOUND):
            raise ArchiveError(
                f"the plugin cannot resolve imports ({code_name(status & _CODE_MASK)})",
                location=self.path,
            )
        return {
            name: (function, context or 0)
            for name, function, context in zip(wanted, functions, contexts, strict=True)
            if function
        }
