"""What a command buffer knows of its own recording: enough to name the command that is wrong.

Counts commands, keeps the path of debug groups, what entries of the binding table are used for, and
the order of events.  Called by `command_buffer`; drivers meet it through the checks there.

Source: IREE `hal/command_buffer_validation.c` (which checks there are), `hal/event.h` (events belong
to one command buffer).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from tilewright.base.errors import DeviceError
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.hal.buffer import Buffer, BufferUsage, MemoryAccess, MemoryType
from tilewright.runtime.hal.event import Event

_DEVICE_VISIBLE: Final = int(MemoryType.DEVICE_VISIBLE)
_READ_WRITE: Final = int(MemoryAccess.READ | MemoryAccess.WRITE)


@final
class RecordingLog:
    """The story of one recording.

    Thread-safety: one thread, as recording itself.
    """

    __slots__ = (
        "_commands_since_barrier",
        "_signalled",
        "_stretch",
        "command",
        "command_count",
        "groups",
        "slot_usages",
    )

    def __init__(self) -> None:
        self.command_count: int = 0
        self.command: str = ""
        self.groups: list[str] = []
        self.slot_usages: dict[
            int, set[int]
        ] = {}  # of table entries: each any of these bits
        # Events, by the stretch between barriers that they were signalled in; 0: reached already.
        self._signalled: dict[Event, int] = {}
        self._stretch: int = 1
        self._commands_since_barrier: int = 0

    def begin_command(self, command: str) -> None:
        """The next command, whose checks are about to be made."""
        self.command = command
        self.command_count += 1
        self._commands_since_barrier += 1

    @property
    def place(self) -> str:
        """`command 3 (copy_buffer) in 'layer 1/attention'`."""
        index = max(self.command_count - 1, 0)
        where = f" in '{'/'.join(self.groups)}'" if self.groups else ""
        return f"command {index} ({self.command}){where}"

    def error(self, code: int, message: str) -> DeviceError:
        """The exception for something wrong with the present command."""
        return failure(code, message, location=self.place)

    # --- buffers --------------------------------------------------------------------------------

    def check_buffer(self, buffer: Buffer, subject: str, usage: int, access: int) -> None:
        """Raise unless a buffer may be used so.

        Args:
            buffer: of the command.
            subject: which operand of the command it is.
            usage: bits of `BufferUsage`, any of which will do.
            access: bits of `MemoryAccess`, all of which are needed.
        """
        if not buffer.allowed_usage & usage:
            raise self.error(
                StatusCode.PERMISSION_DENIED,
                f"{subject}: the buffer is for {flag_names(BufferUsage, buffer.allowed_usage)}, "
                f"expected {flag_names(BufferUsage, usage, ' or ')}",
            )
        if access & ~buffer.allowed_access & _READ_WRITE:
            raise self.error(
                StatusCode.PERMISSION_DENIED,
                f"{subject}: the buffer allows {flag_names(MemoryAccess, buffer.allowed_access)}, "
                f"expected {flag_names(MemoryAccess, access)}",
            )
        if not buffer.memory_type & _DEVICE_VISIBLE:
            raise self.error(
                StatusCode.PERMISSION_DENIED,
                f"{subject}: the device does not see the buffer, whose memory is "
                f"{flag_names(MemoryType, buffer.memory_type)}",
            )

    def need_slot(self, slot: int, usage: int) -> None:
        """Remember what an entry of the binding table is used for."""
        self.slot_usages.setdefault(slot, set()).add(usage)

    def check_slot(self, slot: int, buffer: Buffer) -> None:
        """Raise unless the buffer bound to an entry may be used as the commands do."""
        for usage in self.slot_usages.get(slot, ()):
            if not buffer.allowed_usage & usage:
                raise failure(
                    StatusCode.PERMISSION_DENIED,
                    f"the buffer is for {flag_names(BufferUsage, buffer.allowed_usage)}, "
                    f"expected {flag_names(BufferUsage, usage, ' or ')}",
                    location=f"slot {slot} of the binding table",
                )

    # --- order ----------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Commands from here on wait for all before."""
        self._stretch += 1
        self._commands_since_barrier = 0

    def signal_event(self, event: Event) -> None:
        """An event is reached when the commands so far are done."""
        self._own(event, "signal_event")
        self._signalled[event] = self._stretch if self._commands_since_barrier else 0

    def reset_event(self, event: Event) -> None:
        """An event is to be signalled anew."""
        self._own(event, "reset_event")
        self._signalled.pop(event, None)

    def wait_events(self, events: Sequence[Event]) -> bool:
        """Whether it takes a barrier here; not where one stands since the last of the signals.

        Raises: DeviceError (FAILED_PRECONDITION) for an event that nothing signals before.
        """
        for event in events:
            self._own(event, "wait_events")
            if event not in self._signalled:
                raise self._event_error(
                    "wait_events", "waits for an event that no earlier command signals"
                )
        return any(self._signalled[event] == self._stretch for event in events)

    def _own(self, event: Event, command: str) -> None:
        if event.recording is None:
            event.recording = self
        elif event.recording is not self:
            raise self._event_error(
                command, "an event of another command buffer, expected one of this"
            )

    def _event_error(self, command: str, message: str) -> DeviceError:
        where = f" in '{'/'.join(self.groups)}'" if self.groups else ""
        return failure(
            StatusCode.FAILED_PRECONDITION,
            message,
            location=f"{command} after {self.command_count} commands{where}",
        )


def flag_names(
    kind: type[BufferUsage | MemoryAccess | MemoryType], value: int, separator: str = "|"
) -> str:
    """`transfer_source|transfer_target`; `nothing` for no bit."""
    single = [flag for flag in kind if flag.bit_count() == 1 and value & flag]
    return separator.join(str(flag.name).lower() for flag in single) or "nothing"
