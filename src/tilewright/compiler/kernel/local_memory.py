"""Where the local buffers of a kernel lie: the same for every printer, since one table says how much there is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from tilewright.base.errors import InternalError
from tilewright.compiler.kernel.ir import Buffer, Kernel, Space

STACK_LIMIT_BYTES: Final = 32 << 10
_ALIGNMENT_BYTES: Final = 64


def local_elements(kernel: Kernel, buffer: Buffer) -> int:
    """How many elements a local buffer has.  Raises: InternalError for one of unknown size."""
    extents = [e for e in buffer.shape if isinstance(e, int)]
    if len(extents) < len(buffer.shape):
        raise InternalError(
            f"kernel '{kernel.name}': local buffer '{buffer.name}' has the shape "
            f"{buffer.shape}, expected constant dimensions"
        )
    return math.prod(extents)


def workgroup_layout(kernel: Kernel) -> tuple[dict[Buffer, int], int]:
    """Where each WORKGROUP buffer begins, and the bytes of all."""
    offsets: dict[Buffer, int] = {}
    end = 0
    for buffer in kernel.locals:
        if buffer.space is Space.WORKGROUP:
            offsets[buffer] = end
            size = local_elements(kernel, buffer) * buffer.dtype.itemsize
            end += -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
    return offsets, end


def check_stack(kernel: Kernel, buffers: Iterable[Buffer]) -> None:
    """Raise InternalError if REGISTER buffers that stay in memory are too large for the stack."""
    size = sum(local_elements(kernel, b) * b.dtype.itemsize for b in buffers)
    if size > STACK_LIMIT_BYTES:
        raise InternalError(
            f"kernel '{kernel.name}' needs {size} bytes of stack, expected at most "
            f"{STACK_LIMIT_BYTES}: register buffers are indexed by loops not unrolled"
        )
