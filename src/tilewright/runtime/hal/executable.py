"""An executable: kernels of one file, prepared for a device.

Source: IREE `hal/executable.h`.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tilewright.base.budget import Budget
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionInfo:
    """What a dispatch must bring; -1 bindings where the executable does not say."""

    name: str
    constant_count: int
    binding_count: int
    workgroup_size: tuple[int, int, int]


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutableParams:
    """What an executable is prepared from.

    Attributes:
        format: for example `embedded-elf-x86_64`.
        constants: values of its specialisation constants, u32.
        caching: whether the device may keep `data` instead of copying it.
        budget: what kernels that the host interprets are charged to; None where they are trusted.
    """

    format: str
    data: HostBytes
    constants: Sequence[int] = ()
    caching: bool = True
    budget: Budget | None = None

    @property
    def packed_constants(self) -> bytes:
        """The constants as kernels read them: little-endian u32 each."""
        return struct.pack(
            f"<{len(self.constants)}I", *(value & 0xFFFFFFFF for value in self.constants)
        )


class Executable(ABC):
    """Prepared kernels.

    Ownership: holds the code; command buffers hold the executable.
    Thread-safety: immutable.
    """

    __slots__ = ("__weakref__",)

    @property
    @abstractmethod
    def functions(self) -> tuple[FunctionInfo, ...]:
        """The kernels, by ordinal."""

    def lookup_function_by_name(self, name: str) -> int:
        """The ordinal of a kernel.  Raises: DeviceError (NOT_FOUND)."""
        for ordinal, info in enumerate(self.functions):
            if info.name == name:
                return ordinal
        known = ", ".join(info.name for info in self.functions[:8])
        raise failure(
            StatusCode.NOT_FOUND, f"the executable has no function '{name}'; it has {known}"
        )
