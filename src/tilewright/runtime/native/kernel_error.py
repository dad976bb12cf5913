"""What a run that a kernel ended raises; made by the C core and by its Python twin.

Not here: when that is.  Callers turn it into the error for users (`for_user`).
"""

from __future__ import annotations

from typing import final

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure


@final
class KernelError(RuntimeError):
    """A run ended before its last command.

    Args:
        command: the ordinal of the command.
        name: of its kernel; empty where whoever recorded it gave none.
        code: what the kernel returned, where it ran.
        scratch_bytes: how much workgroup memory it asked for in vain; 0 where it ran.
    """

    def __init__(self, command: int, name: str, code: int, scratch_bytes: int = 0) -> None:
        self.command: int = command
        self.name: str = name
        self.code: int = code
        self.scratch_bytes: int = scratch_bytes
        self.reason: str = (
            f"no memory for {scratch_bytes} bytes of workgroup memory"
            if scratch_bytes
            else f"the kernel returned {code}"
        )
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
            hint="every thread that runs kernels needs as much: use fewer threads, or raise "
            "the limit of memory of this process",
        )
