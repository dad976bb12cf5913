"""What a library that TVM compiled asks of whoever loads it: the functions of TVM's runtime that it calls.

Kernels call them through variables of the library, which tvm-ffi fills with what TVM's runtime entered into
its table; where TVM is not in the process they stay empty, and here are the functions that they get: scratch
memory, and parallel loops on threads of ours.  Compiled Relax functions also import some by name,
which must be visible before the system maps the library.

Not here: loading (`runtime.library`).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, final

from tilewright.base import knobs
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.runtime.native.core import EXTENSION, Pool
from tilewright.runtime.native.foreign_functions import address_of

OpenedLibrary: TypeAlias = ctypes.CDLL
_BACKEND: Final = (
    "TVMBackendAllocWorkspace",
    "TVMBackendFreeWorkspace",
    "TVMBackendParallelLaunch",
    "TVMBackendParallelBarrier",
)
# What the variable is called, without its two underscores, and the function of tvm-ffi's.
_FOREIGN: Final = {
    "TVMFFIFunctionCall": "TVMFFIFunctionCall",
    "TVMFFIErrorSetRaisedFromCStr": "TVMFFIErrorSetRaisedFromCStr",
    "TVMFFIEnvModLookupFromImports": "TVMFFIEnvModLookupFromImports",
    "TVMBackendGetFuncFromEnv": "TVMFFIEnvModLookupFromImports",  # up to TVM 0.25
    "TVMFFIHandleInitOnce": "TVMFFIHandleInitOnce",
}
LOOKUP_VARIABLES: Final = ("__TVMFFIEnvModLookupFromImports", "__TVMBackendGetFuncFromEnv")
"""Compiled code finds packed functions by name through one of them."""
_BARRIER: Final = "__TVMBackendParallelBarrier"
_LOCK: Final = fork_lock(Rank.MODULE)
_MADE: Final[list[object]] = []  # what compiled code may call for the rest of the process


def show_imported_functions() -> None:
    """Let libraries that are opened from here on find the functions that they import by name."""
    if EXTENSION is not None and EXTENSION.__file__ is not None:
        ctypes.CDLL(
            EXTENSION.__file__, mode=ctypes.RTLD_GLOBAL | getattr(os, "RTLD_NOLOAD", 0)
        )


def fill_variables(library: ctypes.CDLL, foreign_functions: ctypes.CDLL) -> None:
    """Give a library the functions of TVM's runtime that nobody has given it yet.

    Args:
        library: is loaded.
        foreign_functions: tvm-ffi's C library, some of whose functions are asked for in the same way.
    """
    for name, function in _FOREIGN.items():
        _fill(library, name, lambda to=function: address_of(getattr(foreign_functions, to)))
    has_barriers = _variable(library, _BARRIER) is not None
    for name in _BACKEND:
        _fill(library, name, lambda name=name: _function(name, has_barriers))


def _fill(library: ctypes.CDLL, name: str, find: Callable[[], int]) -> None:
    variable = _variable(library, f"__{name}")
    if variable is not None and not variable.value:
        variable.value = find()


def variables_of(library: ctypes.CDLL) -> dict[str, int]:
    """Where the variables of a library lie through which its code finds packed functions."""
    found = {name: _variable(library, name) for name in LOOKUP_VARIABLES}
    return {name: ctypes.addressof(one) for name, one in found.items() if one is not None}


def write_pointer(address: int, value: int) -> None:
    """Give a pointer at an address a value.  Nobody checks the address."""
    ctypes.c_void_p.from_address(address).value = value


def _variable(library: ctypes.CDLL, name: str) -> ctypes.c_void_p | None:
    try:
        return ctypes.c_void_p.in_dll(library, name)
    except ValueError:
        return None


def _function(name: str, has_barriers: bool) -> int:
    with _LOCK:
        if EXTENSION is None:
            return _fallback(name)
        if not _MADE:
            pool = Pool(knobs.THREADS.get() or os.cpu_count() or 1)
            _MADE.append(pool)
            EXTENSION.use_backend_pool(pool)
        return EXTENSION.backend_function(name, has_barriers)


# --- without the C core: one thread ---------------------------------------------------------------

_ALLOCATE: Final = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int
)
_FREE: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_TASK: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
)
_LAUNCH: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
)
_WAIT: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p)
_ALIGNMENT: Final = 64
_BLOCKS: Final[dict[int, object]] = {}


class _ParallelGroup(ctypes.Structure):
    """What a part of a loop is told about the loop."""

    _fields_ = (("sync_handle", ctypes.c_void_p), ("task_count", ctypes.c_int32))


@_ALLOCATE
def _allocate(_type: int, _device: int, size_bytes: int, _code: int, _bits: int) -> int:
    block = ctypes.create_string_buffer(size_bytes + _ALIGNMENT)
    address = -(-ctypes.addressof(block) // _ALIGNMENT) * _ALIGNMENT
    _BLOCKS[address] = block
    return address


@_FREE
def _free(_type: int, _device: int, address: int) -> int:
    _BLOCKS.pop(address, None)
    return 0


@_LAUNCH
def _launch(task: int, data: int, _count: int) -> int:
    return _TASK(task)(0, ctypes.addressof(_ParallelGroup(None, 1)), data)


@_WAIT
def _wait(_task: int, _group: int) -> int:
    return 0


_FALLBACKS: Final[Mapping[str, Callable[..., int]]] = dict(
    zip(_BACKEND, (_allocate, _free, _launch, _wait), strict=True)
)


def _fallback(name: str) -> int:
    return address_of(_FALLBACKS[name])


# --- compiled functions of Relax ------------------------------------------------------------------

_FIND: Final = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)
)


@final
class NameLookup:
    """What compiled code calls to find packed functions by name.

    Args:
        library: tvm-ffi's C library.
        find: the function of a name, which it keeps alive, or None: then tvm-ffi is asked.

    Ownership: compiled code may call `address` as long as this object lives.
    """

    def __init__(self, library: ctypes.CDLL, find: Callable[[str], Any]) -> None:
        ask = _FIND(address_of(library.TVMFFIEnvModLookupFromImports))

        def lookup(context: int | None, name: bytes, found: Any) -> int:
            known = find(name.decode(errors="replace"))
            if known is None:
                return ask(context, name, found)
            found[0] = known.__chandle__()
            return 0

        self._callback = _FIND(lookup)
        self.address: int = address_of(self._callback)
