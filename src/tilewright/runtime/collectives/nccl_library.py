"""NVIDIA's library for collectives: found at run time, when a channel between GPUs is first made.

Calls never block: communicators are made so that what takes time goes on by itself, and is asked
after.  A call that fails raises a `DeviceError` with the library's own words.  Not here: what the
calls are for.

Source: NCCL API reference, version 2.14 (the first with communicators that do not block).
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
from collections.abc import Callable, Mapping
from ctypes import c_char_p, c_int, c_size_t, c_ubyte, c_uint
from ctypes import c_void_p as pointer
from pathlib import Path
from types import MappingProxyType
from typing import Final, cast, final

from tilewright.base.errors import DeviceError
from tilewright.base.knobs import NCCL_LIBRARY
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.native.shared_library import open_first

OLDEST_VERSION: Final = 21400
IN_PROGRESS: Final = 7
DEFAULT_NAMES: Final = ("libnccl.so.2", "libnccl.so")
_WHEEL_FILE: Final = "lib/libnccl.so.2"
_ID_BYTES: Final = 128
_MAGIC: Final = 0xCAFE_BEEF
_HINT: Final = (
    "install NCCL (the package libnccl2 of the system, or pip install nvidia-nccl-cu12), or name "
    "its library with TILEWRIGHT_NCCL_LIBRARY"
)


@final
class UniqueId(ctypes.Structure):
    """By which the ranks of a communicator find each other; passed by value."""

    _fields_ = (("data", c_ubyte * _ID_BYTES),)


@final
class Config(ctypes.Structure):
    """What a communicator is to be like: the part that version 2.14 knew."""

    _fields_ = (
        ("size", c_size_t),
        ("magic", c_uint),
        ("version", c_uint),
        ("blocking", c_int),
    )


_move = (pointer, c_size_t, c_int, c_int, pointer, pointer)  # memory, count, type, peer, …
_reduce = (pointer, pointer, c_size_t, c_int, c_int, pointer, pointer)

SYMBOLS: Final[Mapping[str, tuple[object, ...]]] = MappingProxyType(
    {
        "ncclGetVersion": (pointer,),
        "ncclGetUniqueId": (pointer,),
        "ncclCommInitRankConfig": (pointer, c_int, UniqueId, c_int, pointer),
        "ncclCommGetAsyncError": (pointer, pointer),
        "ncclCommAbort": (pointer,),
        "ncclGroupStart": (),
        "ncclGroupEnd": (),
        "ncclAllGather": (pointer, pointer, c_size_t, c_int, pointer, pointer),
        "ncclAllReduce": _reduce,
        "ncclBroadcast": _reduce,  # the root where the others have the reduction
        "ncclReduce": (*_reduce[:5], c_int, pointer, pointer),
        "ncclReduceScatter": _reduce,
        "ncclSend": _move,
        "ncclRecv": _move,
    }
)
"""The functions, and what they take; the last two of those that move are communicator and stream."""

_STATUS: Final[Mapping[int, StatusCode]] = MappingProxyType(
    {
        1: StatusCode.ABORTED,  # a CUDA call failed
        2: StatusCode.UNAVAILABLE,  # a call of the system failed
        3: StatusCode.INTERNAL,
        4: StatusCode.INVALID_ARGUMENT,
        5: StatusCode.FAILED_PRECONDITION,  # used in a wrong way
        6: StatusCode.ABORTED,  # another rank, or the network to it, failed
    }
)

_Function = Callable[..., int]


@final
class NcclLibrary:
    """The functions of one library.

    Args:
        path: of the library; empty for the system's, or that of an installed wheel.
    Thread-safety: may be used from any thread; calls for one communicator by one at a time.
    """

    __slots__ = ("_functions", "_library", "path", "version")

    def __init__(self, path: str = "") -> None:
        names = (path,) if path else _names()
        self._library, self.path = open_first(
            names, "cuda", "collectives between GPUs need NCCL", _HINT
        )
        self._functions: dict[str, _Function] = {
            name: _bind(self._library, name, arguments, self.path)
            for name, arguments in SYMBOLS.items()
        }
        version = c_int()
        self.call("ncclGetVersion", ctypes.byref(version))
        self.version: int = version.value
        if self.version < OLDEST_VERSION:
            raise failure(
                StatusCode.UNAVAILABLE,
                f"'{self.path}' is NCCL {_version_text(self.version)}, expected "
                f"{_version_text(OLDEST_VERSION)} or newer",
                location="cuda",
                hint=_HINT,
            )

    def call(self, name: str, *arguments: object, communicator: int = 0) -> bool:
        """Call a function; whether it is done, or goes on by itself.

        Raises: DeviceError with what NCCL says about the communicator.
        """
        result = self._functions[name](*arguments)
        if result not in (0, IN_PROGRESS):
            raise self.error(name, result, communicator)
        return result == 0

    def error(self, function: str, result: int, communicator: int = 0) -> DeviceError:
        """The exception for a result that is not 0."""
        text = self._text("ncclGetErrorString", c_int(result))
        detail = self._text("ncclGetLastError", pointer(communicator))
        words = ": ".join(dict.fromkeys(word for word in (text, detail) if word))
        code = _STATUS.get(result, StatusCode.INTERNAL)
        return failure(code, f"NCCL: {words or result}", location=function)

    def _text(self, function: str, argument: object) -> str:
        try:
            ask = self._library[function]
        except AttributeError:
            return ""
        ask.restype = c_char_p
        found = cast("bytes | None", ask(argument))
        return (found or b"").decode("utf-8", "replace").strip()

    def unique_id(self) -> bytes:
        """A new name for a communicator."""
        identifier = UniqueId()
        self.call("ncclGetUniqueId", ctypes.byref(identifier))
        return bytes(identifier)

    def start_communicator(self, identifier: bytes, rank: int, count: int) -> int:
        """Begin to meet the other ranks, with the GPU of the thread's context; the handle."""
        handle = pointer()
        config = Config(Config.blocking.offset + 4, _MAGIC, OLDEST_VERSION, 0)
        name = UniqueId.from_buffer_copy(identifier)
        self.call(
            "ncclCommInitRankConfig",
            ctypes.byref(handle),
            count,
            name,
            rank,
            ctypes.byref(config),
        )
        return handle.value or 0

    def query_communicator(self, handle: int) -> int:
        """How it is: 0 when all is done, `IN_PROGRESS`, or an error of its own or of another rank."""
        state = c_int()
        self.call("ncclCommGetAsyncError", handle, ctypes.byref(state), communicator=handle)
        return state.value


def open_nccl() -> NcclLibrary:
    """The library that the knob names, else the system's.

    Raises: DeviceError (UNAVAILABLE) where there is none, or none that is new enough.
    """
    return _load(NCCL_LIBRARY.get())


@functools.cache
def _load(path: str) -> NcclLibrary:
    return NcclLibrary(path)


def _names() -> tuple[str, ...]:
    """The system's library, then that of NVIDIA's wheel."""
    try:
        wheel = importlib.util.find_spec("nvidia.nccl")
    except ImportError:
        wheel = None
    folders = () if wheel is None else wheel.submodule_search_locations or ()
    return (*DEFAULT_NAMES, *(str(Path(folder) / _WHEEL_FILE) for folder in folders))


def _bind(
    library: ctypes.CDLL, name: str, arguments: tuple[object, ...], path: str
) -> _Function:
    try:
        function = library[name]
    except AttributeError as error:
        raise failure(
            StatusCode.UNAVAILABLE,
            f"'{path}' has no function '{name}', expected NCCL "
            f"{_version_text(OLDEST_VERSION)} or newer",
            location="cuda",
            hint=_HINT,
        ) from error
    function.argtypes = cast("tuple[type[c_int], ...]", arguments)
    function.restype = c_int
    return function


def _version_text(version: int) -> str:
    return f"{version // 10000}.{version % 10000 // 100}"
