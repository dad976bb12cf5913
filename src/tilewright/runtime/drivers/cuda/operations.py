"""What commands come to on a GPU: copies, fills and launches, addresses put in.

A stream runs them one after the other, a graph has a node for each.  Equal operations compare
equal: so a graph knows what to update.  Not here: how commands become operations (`lowering`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, final

from tilewright.runtime.drivers.cuda.executable import CudaKernel

_NATIVE_ELEMENTS: Final = (1, 2, 4)


@final
@dataclass(frozen=True, slots=True)
class DeviceCopy:
    """Copy between addresses of the GPU."""

    target: int
    source: int
    size_bytes: int


@final
@dataclass(frozen=True, slots=True)
class HostCopy:
    """Copy bytes of the host to the GPU; they must stay until it is done."""

    target: int
    data: bytes


@final
@dataclass(frozen=True, slots=True)
class MemoryFill:
    """Fill `height` rows, `pitch` bytes apart, with `width` elements each."""

    target: int
    value: int
    element_bytes: int
    width: int
    height: int = 1
    pitch: int = 0


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """Run a kernel: addresses of its bindings, then its constants."""

    kernel: CudaKernel
    grid: tuple[int, int, int]
    pointers: tuple[int, ...]
    constants: tuple[int, ...]


Operation: TypeAlias = "DeviceCopy | HostCopy | MemoryFill | Launch"


def fill_operations(target: int, size_bytes: int, pattern: bytes) -> list[MemoryFill]:
    """Fills that repeat a pattern of 1, 2, 4 or 8 bytes.

    The GPU fills with up to 4 bytes at an address that is a multiple; what is longer, or lies
    elsewhere, becomes a column of single bytes for each byte of the pattern.
    """
    if size_bytes == 0:
        return []
    pattern = _shortest(pattern)
    width = len(pattern)
    if width in _NATIVE_ELEMENTS and target % width == 0:
        value = int.from_bytes(pattern, "little")
        return [MemoryFill(target, value, width, size_bytes // width)]
    rows = size_bytes // width
    return [
        MemoryFill(target + index, byte, 1, 1, rows, width)
        for index, byte in enumerate(pattern)
    ]


def _shortest(pattern: bytes) -> bytes:
    while len(pattern) > 1 and pattern[: len(pattern) // 2] == pattern[len(pattern) // 2 :]:
        pattern = pattern[: len(pattern) // 2]
    return pattern
