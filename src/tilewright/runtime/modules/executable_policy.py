"""Which executables a program may bring, and whose budget they are charged to.

Machine code can do anything, so a program that is not trusted gets none: only formats that the
host interprets, where every access is checked.  Such a program is told that the device does not
take the others, so that it picks kernels in bytecode where it has both.  Asked by the modules
`hal` and `hal_loader`; decided by `bytecode_machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.budget import Budget
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.runtime.hal.device import Device
from tilewright.runtime.hal.executable import ExecutableParams

FORMATS_WITHOUT_CODE: Final = frozenset({"vmvx-bytecode-fb"})
FORMAT_CATEGORY: Final = "hal.executable.format"


@final
@dataclass(slots=True)
class ExecutablePolicy:
    """What is decided for one machine.

    Attributes:
        is_trusted: whether machine code may run.
        budget: what interpreted kernels are charged to; None for any number of steps.
        refused: formats with machine code that the program asked for and did not get.
    """

    is_trusted: bool = True
    budget: Budget | None = None
    refused: set[str] = field(default_factory=set[str])

    @property
    def group(self) -> tuple[str, ...]:
        """What stands before the names of channel groups: strangers meet nobody but themselves."""
        return () if self.is_trusted else (f"untrusted-{id(self):x}",)

    def check_provider(self, device: Device) -> None:
        """Raises: DeviceError (PERMISSION_DENIED) for channels that leave this process."""
        if not self.is_trusted and device.channel_provider.spans_processes:
            raise failure(
                StatusCode.PERMISSION_DENIED,
                "the module wants to talk to other processes, which is not trusted",
            )

    def allows(self, format_name: str) -> bool:
        """Whether executables of that format may run; remembers those that may not."""
        if self.is_trusted or format_name in FORMATS_WITHOUT_CODE:
            return True
        self.refused.add(format_name)
        return False

    def params(
        self, format_name: str, data: HostBytes, constants: Sequence[int]
    ) -> ExecutableParams:
        """What an executable is prepared from.

        Raises: DeviceError (PERMISSION_DENIED) for a format that may not run.
        """
        if not self.allows(format_name):
            raise self.refusal()
        return ExecutableParams(
            format=format_name,
            data=data,
            constants=constants,
            budget=self.budget,
        )

    def refusal(self) -> Exception:
        """The error for a program that cannot do without machine code."""
        return failure(
            StatusCode.PERMISSION_DENIED,
            f"the module wants to run machine code ({', '.join(sorted(self.refused))}), "
            "expected kernels in bytecode because it is not trusted",
            hint="load it without untrusted (--untrusted) if you trust where it comes from; kernels "
            "in bytecode come from iree-compile --iree-hal-target-backends=vmvx",
        )


TRUSTED: Final = ExecutablePolicy()
