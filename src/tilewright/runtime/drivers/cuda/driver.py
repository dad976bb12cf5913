"""Finds the GPUs of this machine and makes devices of them.

The driver library is opened when somebody asks for devices, never before.  Options of a device
URI: `graphs` (1 or 0: command buffers that run often become CUDA graphs), `pool` (1 or 0: the
GPU's own memory comes from a stream-ordered pool).
"""

from __future__ import annotations

import ctypes
import threading
import uuid
from collections.abc import Mapping
from ctypes import c_int, c_size_t
from typing import Final, final

from tilewright.base.errors import UserError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.knobs import CUDA_LIBRARY
from tilewright.base.text import format_bytes
from tilewright.runtime.drivers.cuda.context import CudaContext, query_attribute
from tilewright.runtime.drivers.cuda.device import CudaDevice, CudaOptions
from tilewright.runtime.drivers.cuda.symbols import CudaLibrary, open_library
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.driver import DeviceInfo, Driver, check_options

_MAJOR, _MINOR = 75, 76  # CUdevice_attribute
_DETAILS: Final = (
    ("multiprocessors", 16),
    ("threads per block", 1),
    ("warp size", 10),
    ("shared memory per block, bytes", 8),
    ("shared memory per block on request, bytes", 97),
    ("L2 cache, bytes", 38),
    ("clock, kHz", 13),
    ("memory clock, kHz", 36),
    ("memory bus, bits", 37),
    ("managed memory used by both at once", 89),
    ("memory pools", 115),
)
_OPTIONS: Final = ("graphs", "pool", "threads")


@final
class CudaDriver(Driver):
    """The driver."""

    def __init__(self) -> None:
        self._libraries: dict[str, CudaLibrary] = {}
        self._lock: threading.RLock = fork_lock(Rank.DRIVERS)

    @property
    def name(self) -> str:
        return "cuda"

    @property
    def summary(self) -> str:
        return "NVIDIA GPUs, through the driver installed on this machine"

    def query_available_devices(self) -> tuple[DeviceInfo, ...]:
        library = self._library()
        count = c_int()
        library.call("cuDeviceGetCount", ctypes.byref(count))
        return tuple(_describe(library, ordinal) for ordinal in range(count.value))

    def dump_device_info(self, device_id: int) -> str:
        library = self._library()
        lines = [super().dump_device_info(device_id)]
        version = library.version
        lines.append(f"  driver {version // 1000}.{version % 1000 // 10} ({library.path})")
        lines += [
            f"  {subject}: {query_attribute(library, device_id, attribute)}"
            for subject, attribute in _DETAILS
        ]
        return "\n".join(lines)

    def create_device_by_id(self, device_id: int, options: Mapping[str, str]) -> Device:
        check_options(options, _OPTIONS, self.name)
        self._info(device_id)
        chosen = CudaOptions(
            uses_graphs=_flag(options, "graphs"), uses_pool=_flag(options, "pool")
        )
        return CudaDevice(CudaContext(self._library(), device_id), chosen)

    def _library(self) -> CudaLibrary:
        path = CUDA_LIBRARY.get()
        with self._lock:
            library = self._libraries.get(path)
            if library is None:
                library = self._libraries[path] = open_library()
            return library


def _describe(library: CudaLibrary, ordinal: int) -> DeviceInfo:
    device = c_int()
    library.call("cuDeviceGet", ctypes.byref(device), ordinal)
    name = ctypes.create_string_buffer(256)
    library.call("cuDeviceGetName", name, len(name), device.value)
    identity = ctypes.create_string_buffer(16)
    library.call("cuDeviceGetUuid", identity, device.value)
    memory = c_size_t()
    library.call("cuDeviceTotalMem", ctypes.byref(memory), device.value)
    major = query_attribute(library, device.value, _MAJOR)
    minor = query_attribute(library, device.value, _MINOR)
    path = f"GPU-{uuid.UUID(bytes=identity.raw)}"
    return DeviceInfo(
        device_id=ordinal,
        path=path,
        name=name.value.decode("utf-8", "replace"),
        uri=f"cuda://{path}",
        summary=f"sm_{major}{minor}, {format_bytes(memory.value)}",
    )


def _flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name, "1")
    if text not in ("0", "1"):
        raise UserError(
            f"got '{text}', expected 0 or 1", location=f"device option '{name}'"
        )
    return text == "1"
