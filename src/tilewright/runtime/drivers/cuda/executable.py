"""Executables of the format `cuda-nvptx-fb` on a GPU: modules compiled by its driver.

Not here: the format itself (`formats.cuda_executable`).
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_void_p
from dataclasses import dataclass
from typing import Final, final

from tilewright.base.errors import ArchiveError
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.formats.cuda_executable import (
    FORMAT,
    CudaExport,
    is_cuda_executable,
    read_cuda_executable,
)
from tilewright.runtime.drivers.cuda.context import CudaContext, drop, out_handle
from tilewright.runtime.drivers.cuda.resource import Resource
from tilewright.runtime.hal.executable import Executable, ExecutableParams, FunctionInfo
from tilewright.runtime.hal.executable_loaders import ExecutableLoader

_LOG_BYTES: Final = 8192
_ERROR_LOG, _ERROR_LOG_BYTES = 5, 6  # CUjit_option
_MAX_DYNAMIC_SHARED: Final = 8  # CUfunction_attribute
_MAX_SHARED_OPT_IN: Final = 97  # CUdevice_attribute


@final
@dataclass(frozen=True, slots=True)
class CudaKernel:
    """A kernel on a GPU.  Ownership: its executable keeps the code."""

    handle: int
    name: str
    block: tuple[int, int, int]
    shared_bytes: int


@final
class CudaModule:
    """An image, compiled and loaded.

    Raises: DeviceError with the compiler's log where the driver refuses it.
    """

    __slots__ = ("_resource", "context", "handle")

    def __init__(self, context: CudaContext, image: bytes, subject: str) -> None:
        self.context: CudaContext = context
        self._resource: Resource | None = None
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_ERROR_LOG, _ERROR_LOG_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        module = c_void_p()
        library = context.library
        with context:
            result = library.try_call(
                "cuModuleLoadDataEx", ctypes.byref(module), image, 2, options, values
            )
        if result:
            text = log.value.decode("utf-8", "replace").strip()
            error = library.error("cuModuleLoadDataEx", result)
            error.add_note(f"  {subject}: {text or 'the driver gave no reason'}")
            raise error
        self.handle: int = module.value or 0
        self._resource = context.own("cuModuleUnload", self.handle)

    def __del__(self) -> None:
        drop(self._resource)

    def function(self, name: str) -> int:
        """The handle of an entry."""
        with self.context:
            return out_handle(
                self.context.library, "cuModuleGetFunction", self.handle, name.encode()
            )


@final
class CudaExecutable(Executable):
    """Kernels of one executable on one GPU.

    Raises: ArchiveError, DeviceError.
    """

    __slots__ = ("_functions", "_modules", "context", "kernels")

    def __init__(self, context: CudaContext, data: HostBytes) -> None:
        definition = read_cuda_executable(data)
        self.context: CudaContext = context
        self._modules: tuple[CudaModule, ...] = tuple(
            CudaModule(context, image, f"module {index} of the executable")
            for index, image in enumerate(definition.images)
        )
        self.kernels: tuple[CudaKernel, ...] = tuple(map(self._kernel, definition.exports))
        self._functions: tuple[FunctionInfo, ...] = tuple(
            FunctionInfo(
                name=export.name,
                constant_count=export.constant_count,
                binding_count=len(export.binding_flags),
                workgroup_size=export.block,
            )
            for export in definition.exports
        )

    @property
    def functions(self) -> tuple[FunctionInfo, ...]:
        return self._functions

    def _kernel(self, export: CudaExport) -> CudaKernel:
        handle = self._modules[export.module].function(export.kernel_name)
        shared_bytes = export.shared_bytes
        if shared_bytes:
            limit = self.context.query_attribute(_MAX_SHARED_OPT_IN)
            if shared_bytes > limit:
                raise failure(
                    StatusCode.INCOMPATIBLE,
                    f"kernel '{export.name}' takes {shared_bytes} bytes of shared memory, "
                    f"this GPU has {limit} for a block",
                )
            self.context.call(
                "cuFuncSetAttribute", handle, _MAX_DYNAMIC_SHARED, shared_bytes
            )
        return CudaKernel(handle, export.name, export.block, shared_bytes)


@final
class CudaExecutableLoader(ExecutableLoader):
    """Loads executables onto one GPU."""

    __slots__ = ("_context",)

    def __init__(self, context: CudaContext) -> None:
        self._context: CudaContext = context

    def query_support(self, format_name: str) -> bool:
        return format_name == FORMAT

    def infer_format(self, data: HostBytes) -> str | None:
        return FORMAT if is_cuda_executable(data) else None

    def load(self, params: ExecutableParams) -> Executable:
        if params.constants:
            raise ArchiveError(
                f"got {len(params.constants)} specialisation constants, expected 0",
                location="executable",
            )
        return CudaExecutable(self._context, params.data)
