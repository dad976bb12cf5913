"""NVIDIA's driver library: found at run time, called through one table of functions.

Every function is asked for by name and interface version through `cuGetProcAddress`, so the
installed driver may be newer than what is described here, and nothing is linked.  A call that
fails raises a `DeviceError` with the driver's own words.  Not here: what the calls are for.

Source: CUDA Driver API reference, version 11.3.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from ctypes import c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_ushort
from ctypes import c_void_p as pointer
from types import MappingProxyType
from typing import Final, NamedTuple, cast, final

from tilewright.base.errors import DeviceError
from tilewright.base.knobs import CUDA_LIBRARY
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.native.shared_library import open_first

API_VERSION: Final = 11030
_WINDOWS: Final = sys.platform == "win32"
DEFAULT_NAMES: Final = ("nvcuda.dll",) if _WINDOWS else ("libcuda.so.1", "libcuda.so")

_HINT: Final = (
    "install NVIDIA's driver, or name its library with TILEWRIGHT_CUDA_LIBRARY; "
    "the other devices (tilewright devices) need none"
)


class Symbol(NamedTuple):
    """A function of the library: its name, the interface version asked for, its arguments."""

    name: str
    arguments: tuple[object, ...]
    version: int = API_VERSION


_handle = pointer
_address = c_uint64
_nodes = (
    pointer,
    _handle,
    pointer,
    c_size_t,
)  # out node, graph, dependencies, their number
_copy_kernel = (_handle, _handle, pointer)  # executable graph, node, parameters

SYMBOLS: Final = (
    Symbol("cuInit", (c_uint,)),
    Symbol("cuDriverGetVersion", (pointer,)),
    Symbol("cuGetErrorName", (c_int, pointer)),
    Symbol("cuGetErrorString", (c_int, pointer)),
    # devices and contexts
    Symbol("cuDeviceGet", (pointer, c_int)),
    Symbol("cuDeviceGetCount", (pointer,)),
    Symbol("cuDeviceGetName", (pointer, c_int, c_int)),
    Symbol("cuDeviceGetUuid", (pointer, c_int)),
    Symbol("cuDeviceTotalMem", (pointer, c_int)),
    Symbol("cuDeviceGetAttribute", (pointer, c_int, c_int)),
    Symbol("cuDevicePrimaryCtxRetain", (pointer, c_int)),
    Symbol("cuDevicePrimaryCtxRelease", (c_int,)),
    Symbol("cuCtxPushCurrent", (_handle,)),
    Symbol("cuCtxPopCurrent", (pointer,)),
    Symbol("cuCtxSetCurrent", (_handle,)),
    # streams and events
    Symbol("cuStreamCreate", (pointer, c_uint)),
    Symbol("cuStreamDestroy", (_handle,)),
    Symbol("cuStreamSynchronize", (_handle,)),
    Symbol("cuStreamWaitEvent", (_handle, _handle, c_uint)),
    Symbol("cuEventCreate", (pointer, c_uint)),
    Symbol("cuEventDestroy", (_handle,)),
    Symbol("cuEventRecord", (_handle, _handle)),
    Symbol("cuEventSynchronize", (_handle,)),
    Symbol("cuEventElapsedTime", (pointer, _handle, _handle)),
    # memory
    Symbol("cuMemAlloc", (pointer, c_size_t)),
    Symbol("cuMemFree", (_address,)),
    Symbol("cuMemAllocManaged", (pointer, c_size_t, c_uint)),
    Symbol("cuMemPrefetchAsync", (_address, c_size_t, c_int, _handle)),
    Symbol("cuMemHostAlloc", (pointer, c_size_t, c_uint)),
    Symbol("cuMemFreeHost", (pointer,)),
    Symbol("cuMemHostGetDevicePointer", (pointer, pointer, c_uint)),
    Symbol("cuMemHostRegister", (pointer, c_size_t, c_uint)),
    Symbol("cuMemHostUnregister", (pointer,)),
    Symbol("cuMemPoolCreate", (pointer, pointer)),
    Symbol("cuMemPoolDestroy", (_handle,)),
    Symbol("cuMemPoolSetAttribute", (_handle, c_int, pointer)),
    Symbol("cuMemPoolGetAttribute", (_handle, c_int, pointer)),
    Symbol("cuMemPoolTrimTo", (_handle, c_size_t)),
    Symbol("cuMemAllocFromPoolAsync", (pointer, c_size_t, _handle, _handle)),
    Symbol("cuMemFreeAsync", (_address, _handle)),
    # transfers
    Symbol("cuMemcpyHtoDAsync", (_address, pointer, c_size_t, _handle)),
    Symbol("cuMemcpyDtoHAsync", (pointer, _address, c_size_t, _handle)),
    Symbol("cuMemcpyDtoDAsync", (_address, _address, c_size_t, _handle)),
    Symbol("cuMemsetD8Async", (_address, c_ubyte, c_size_t, _handle)),
    Symbol("cuMemsetD16Async", (_address, c_ushort, c_size_t, _handle)),
    Symbol("cuMemsetD32Async", (_address, c_uint, c_size_t, _handle)),
    Symbol("cuMemsetD2D8Async", (_address, c_size_t, c_ubyte, c_size_t, c_size_t, _handle)),
    # modules and kernels
    Symbol("cuModuleLoadDataEx", (pointer, c_char_p, c_uint, pointer, pointer)),
    Symbol("cuModuleUnload", (_handle,)),
    Symbol("cuModuleGetFunction", (pointer, _handle, c_char_p)),
    Symbol("cuFuncSetAttribute", (_handle, c_int, c_int)),
    Symbol("cuLaunchKernel", (_handle, *(c_uint,) * 7, _handle, pointer, pointer)),
    # graphs
    Symbol("cuGraphCreate", (pointer, c_uint)),
    Symbol("cuGraphDestroy", (_handle,)),
    Symbol("cuGraphAddEmptyNode", _nodes),
    Symbol("cuGraphAddKernelNode", (*_nodes, pointer)),
    Symbol("cuGraphAddMemcpyNode", (*_nodes, pointer, _handle)),
    Symbol("cuGraphAddMemsetNode", (*_nodes, pointer, _handle)),
    Symbol("cuGraphInstantiate", (pointer, _handle, pointer, pointer, c_size_t)),
    Symbol("cuGraphExecDestroy", (_handle,)),
    Symbol("cuGraphExecKernelNodeSetParams", _copy_kernel),
    Symbol("cuGraphExecMemcpyNodeSetParams", (*_copy_kernel, _handle)),
    Symbol("cuGraphExecMemsetNodeSetParams", (*_copy_kernel, _handle)),
    Symbol("cuGraphLaunch", (_handle, _handle)),
)

_STATUS: Final[Mapping[int, StatusCode]] = MappingProxyType(
    {
        1: StatusCode.INVALID_ARGUMENT,
        2: StatusCode.RESOURCE_EXHAUSTED,
        3: StatusCode.UNAVAILABLE,  # not initialized
        4: StatusCode.UNAVAILABLE,  # the process ends
        34: StatusCode.UNAVAILABLE,  # a stub library
        46: StatusCode.UNAVAILABLE,  # in exclusive use elsewhere
        100: StatusCode.UNAVAILABLE,  # no device
        101: StatusCode.NOT_FOUND,
        200: StatusCode.INCOMPATIBLE,  # an image of another kind
        209: StatusCode.INCOMPATIBLE,  # no code for this GPU
        218: StatusCode.INCOMPATIBLE,  # PTX that does not compile
        222: StatusCode.INCOMPATIBLE,  # PTX newer than the driver
        500: StatusCode.NOT_FOUND,
        600: StatusCode.DEFERRED,
        700: StatusCode.ABORTED,  # illegal address
        701: StatusCode.RESOURCE_EXHAUSTED,  # registers, threads
        702: StatusCode.ABORTED,  # launch timeout
        **dict.fromkeys((710, *range(714, 720)), StatusCode.ABORTED),  # a kernel failed
        800: StatusCode.PERMISSION_DENIED,
        801: StatusCode.UNIMPLEMENTED,
        **dict.fromkeys((802, 803, 804), StatusCode.UNAVAILABLE),
    }
)

_Function = Callable[..., int]


@final
class CudaLibrary:
    """The functions of one driver library.

    Args:
        path: of the library; empty for the system's.
    Thread-safety: may be used from any thread; calls release the interpreter.
    """

    __slots__ = ("_functions", "path", "version")

    def __init__(self, path: str = "") -> None:
        names = (path,) if path else DEFAULT_NAMES
        library, self.path = open_first(names, "cuda", "no CUDA driver", _HINT)
        self._functions: dict[str, _Function] = _resolve(library, self.path)
        version = c_int()
        self._functions["cuDriverGetVersion"](ctypes.byref(version))
        self.version: int = version.value
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: object) -> None:
        """Call a function.  Raises: DeviceError with what the driver says."""
        result = self._functions[name](*arguments)
        if result:
            raise self.error(name, result)

    def try_call(self, name: str, *arguments: object) -> int:
        """Call a function whose failure the caller deals with; 0 is success."""
        return self._functions[name](*arguments)

    def error(self, function: str, result: int, detail: str = "") -> DeviceError:
        """The exception for a result that is not 0."""
        name = self._text("cuGetErrorName", result) or f"CUDA error {result}"
        text = detail or self._text("cuGetErrorString", result)
        return failure(
            _STATUS.get(result, StatusCode.INTERNAL),
            f"{name}: {text}" if text else name,
            location=function,
        )

    def _text(self, function: str, result: int) -> str:
        found = c_char_p()
        if self._functions[function](result, ctypes.byref(found)) or not found.value:
            return ""
        return found.value.decode("utf-8", "replace")


def open_library() -> CudaLibrary:
    """The library that the knob names, else the system's.

    Raises: DeviceError (UNAVAILABLE) where there is none, or none that is new enough.
    """
    return CudaLibrary(CUDA_LIBRARY.get())


def _resolve(library: ctypes.CDLL, path: str) -> dict[str, _Function]:
    try:
        find = library.cuGetProcAddress
    except AttributeError as error:
        raise failure(
            StatusCode.UNAVAILABLE,
            f"'{path}' has no function 'cuGetProcAddress', expected a CUDA driver of "
            "version 11.3 or newer",
            location="cuda",
            hint=_HINT,
        ) from error
    find.argtypes = [c_char_p, pointer, c_int, c_uint64]
    find.restype = c_int
    return {symbol.name: _bind(find, symbol, path) for symbol in SYMBOLS}


def _bind(find: Callable[..., int], symbol: Symbol, path: str) -> _Function:
    place = pointer()
    result = find(symbol.name.encode(), ctypes.byref(place), symbol.version, 0)
    if result or not place.value:
        raise failure(
            StatusCode.UNAVAILABLE,
            f"the CUDA driver '{path}' has no function '{symbol.name}' of version "
            f"{symbol.version // 1000}.{symbol.version % 1000 // 10}",
            location="cuda",
            hint="update NVIDIA's driver",
        )
    prototype = ctypes.CFUNCTYPE(c_int, *cast("tuple[type[c_int], ...]", symbol.arguments))
    return cast("_Function", prototype(place.value))
