"""Which executables a program may bring, and what one dispatch of them may take.

Machine code can do anything, so a program that is not trusted gets none: only formats that the
host interprets, where every access is checked.  Such a program is told that the device does not
take the others, so that it picks kernels in bytecode where it has both.  Asked by the modules
`hal` and `hal_loader`; decided by `virtual_machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, final

from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import Buffer as HostBytes
from tilewright.runtime.hal.executable import ExecutableParams

FORMATS_WITHOUT_CODE: Final = frozenset({"vmvx-bytecode-fb"})
FORMAT_CATEGORY: Final = "hal.executable.format"


@final
@dataclass(slots=True)
class ExecutablePolicy:
    """What is decided for one machine.

    Attributes:
        is_trusted: whether machine code may run.
        max_steps: of interpreted kernels, per dispatch; None for any number.
        deadline_s: seconds, likewise.
        refused: formats with machine code that the program asked for and did not get.
    """

    is_trusted: bool = True
    max_steps: int | None = None
    deadline_s: float | None = None
    refused: set[str] = field(default_factory=set[str])

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
            max_steps=self.max_steps,
            deadline_s=self.deadline_s,
        )

    def refusal(self) -> Exception:
        """The error for a program that cannot do without machine code."""
        return failure(
            StatusCode.PERMISSION_DENIED,
            f"the module wants to run machine code ({', '.join(sorted(self.refused))}), "
            "expected kernels in bytecode because it is not trusted",
            hint="compile it for vmvx, or leave out --untrusted (untrusted=True) if you trust "
            "where it comes from",
        )


TRUSTED: Final = ExecutablePolicy()
