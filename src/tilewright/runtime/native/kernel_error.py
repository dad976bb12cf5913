"""What a run that a kernel ended raises; made by the C core and by its Python twin.

Not here: when that is.  Callers turn it into the error for users (`for_user`).
"""

from __future__ import annotations

from typing import final

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.native.memory_report import MORE


@final
class KernelError(RuntimeError):
    """A run ended before its last command.

    Args:
        command: the ordinal of the command.
        name: of its kernel; empty where whoever recorded it gave none.
        code: what the kernel returned, where it ran.
        scratch_bytes: how much workgroup memory it asked for in vain; 0 where it ran.
        in_use_bytes: what calls had of the heap, where the heap's capacity was the reason.
        capacity_bytes: of the heap then; 0 where the system refused.
    """

    def __init__(
        self,
        command: int,
        name: str,
        code: int,
        scratch_bytes: int = 0,
        in_use_bytes: int = 0,
        capacity_bytes: int = 0,
    ) -> None:
        self.command: int = command
        self.name: str = name
        self.code: int = code
        self.scratch_bytes: int = scratch_bytes
        self.capacity_bytes: int = capacity_bytes
        self.reason: str = f"the kernel returned {code}"
        if scratch_bytes:
            self.reason = f"no memory for {scratch_bytes} bytes of workgroup memory"
        if capacity_bytes:
            self.reason += f": {in_use_bytes} of {capacity_bytes} bytes are in use"
        super().__init__(f"command {command}: {self.reason}")

    @property
    def for_user(self) -> DeviceError:
        """The same as a device says it."""
        where = f"kernel '{self.name}'" if self.name else f"command {self.command}"
        if not self.scratch_bytes:
            return failure(StatusCode.ABORTED, self.reason, location=where)
        return failure(
            StatusCode.RESOURCE_EXHAUSTED,
            self.reason,
            location=where,
            hint="every thread that runs kernels needs as much: use fewer threads, or "
            + (
                MORE if self.capacity_bytes else "raise the limit of memory of this process"
            ),
        )
