"""The `hal_inline` module: buffers and views for programs that run without queues.

Such programs come from `iree-compile --iree-execution-model=inline-static` (everything is
bytecode) and `inline-dynamic` (kernels through `hal_loader`).  They see the bytes of device
buffers as `!vm.buffer`.  What it has in common with the `hal` module are that module's rows.

Source: IREE `modules/hal/inline/exports.inl`, the same 15 functions from 3.0 to 3.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.allocator import held
from tilewright.runtime.hal.buffer import READ, WRITE, Buffer, BufferUsage, MemoryType
from tilewright.runtime.hal.buffer_view import BufferView
from tilewright.runtime.hal.device import Device
from tilewright.runtime.modules.executable_policy import TRUSTED, ExecutablePolicy
from tilewright.runtime.modules.hal.buffers import ROWS as BUFFER_ROWS
from tilewright.runtime.modules.hal.state import HalState, ViewTracer
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction, NativeModule, metered

_ACCESS: Final = READ | WRITE
_MEMORY_TYPE: Final = int(MemoryType.HOST_LOCAL | MemoryType.DEVICE_VISIBLE)
_USAGE: Final = int(BufferUsage.DEFAULT | BufferUsage.MAPPING)
_SHARED: Final = ("buffer.length", "buffer.subspan")
_SHARED_PREFIX: Final = "buffer_view."


def create_hal_inline_module(
    device: Device,
    tracer: ViewTracer | None = None,
    policy: ExecutablePolicy = TRUSTED,
) -> NativeModule:
    """The module for one device whose memory the host sees.

    Args:
        device: allocates, and answers queries.
        tracer: hears of `buffer_view.trace`; default: prints to the error stream.
        policy: whose budget pays.
    """
    shared = [
        row
        for row in BUFFER_ROWS
        if row.name in _SHARED or row.name.startswith(_SHARED_PREFIX)
    ]
    rows: Sequence[NativeFunction] = (*shared, *_ROWS)
    if policy.budget is not None:
        rows = [metered(row) for row in rows]
    return NativeModule(
        "hal_inline",
        rows,
        types={"buffer": Buffer, "bytes": VmBuffer, "view": BufferView},
        create_state=lambda: HalState([device], tracer, policy),
    )


def _allocate(
    state: HalState, minimum_alignment: int, size: int
) -> tuple[Buffer, VmBuffer]:
    del minimum_alignment  # devices align for any kernel
    allocator = state.devices[0].allocator
    buffer = held(size, lambda: allocator.allocate(_MEMORY_TYPE, _USAGE, size))
    return buffer, _storage(state, buffer)


def _allocate_initialized(
    state: HalState, minimum_alignment: int, source: VmBuffer, offset: int, length: int
) -> tuple[Buffer, VmBuffer]:
    data = source.range(offset, length)
    buffer, storage = _allocate(state, minimum_alignment, length)
    buffer.write(data)
    return buffer, storage


def _storage(state: HalState, buffer: Buffer) -> VmBuffer:
    """The bytes in place; read-only where the buffer is."""
    del state
    return VmBuffer(buffer.map_range(buffer.allowed_access & _ACCESS))


def _wrap(state: HalState, source: VmBuffer, offset: int, length: int) -> Buffer:
    memory = source.range(offset, length)
    wrapped = state.devices[0].allocator.import_host(_MEMORY_TYPE, _USAGE, memory)
    if wrapped is None:
        raise failure(StatusCode.UNAVAILABLE, "the device cannot use these bytes in place")
    return wrapped


def _query(state: HalState, category: VmBuffer, key: VmBuffer) -> tuple[int, int]:
    value = state.devices[0].query_i64(category.text, key.text)
    return int(value is not None), value or 0


_ROWS: Final = (
    NativeFunction("buffer.allocate", ("0iI_rr",), _allocate),
    NativeFunction(
        "buffer.allocate.initialized", ("0irII_rr",), _allocate_initialized, "bytes"
    ),
    NativeFunction("buffer.storage", ("0r_r",), _storage, "buffer"),
    NativeFunction("buffer.wrap", ("0rII_r",), _wrap, "bytes"),
    NativeFunction("device.query.i64", ("0rr_iI",), _query, "bytes bytes"),
)
