"""Executables whose kernels the host interprets, and dispatches of them in a command buffer.

Loaders of interpreted formats implement `HostExecutable`.  Command buffers keep such dispatches
between their command lists.  Not here: kernels of machine code (`executable`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from tilewright.runtime.hal.buffer import WRITE, Buffer
from tilewright.runtime.hal.command_buffer import BindingTable
from tilewright.runtime.hal.executable import Executable

Grid = tuple[int, int, int]


class HostExecutable(Executable):
    """Interpreted kernels.

    Thread-safety: `run` may be called from several threads at once.
    """

    __slots__ = ()

    @abstractmethod
    def run(
        self,
        function: int,
        workgroup_count: Grid,
        constants: Sequence[int],
        bindings: Sequence[memoryview],
        thread_count: int,
        *,
        is_inline: bool = False,
    ) -> None:
        """Run a kernel over a grid of workgroups, on up to `thread_count` threads.

        Args:
            function: ordinal of the kernel.
            workgroup_count: the grid.
            constants: push constants, u32.
            bindings: the bytes of each binding, read-only where nothing may write them.
            thread_count: how many the device has.
            is_inline: it runs as the caller's thread is; otherwise denormals are taken as zero.

        Raises: DeviceError when a kernel fails.
        """


@final
@dataclass(frozen=True, slots=True)
class HostDispatch:
    """A dispatch whose bindings are ranges of buffers, or of entries of a binding table."""

    executable: HostExecutable
    function: int
    constants: tuple[int, ...]
    bindings: tuple[tuple[Buffer | None, int, int, int], ...]  # entry, offset, length

    @property
    def name(self) -> str:
        """Of the kernel."""
        return self.executable.functions[self.function].name

    def run(self, workgroup_count: Grid, table: BindingTable, thread_count: int) -> None:
        """Run now.  Raises: DeviceError when a range leaves its buffer or a kernel fails."""
        views = [
            binding_view(buffer, entry, offset, length, table)
            for buffer, entry, offset, length in self.bindings
        ]
        self.executable.run(
            self.function, workgroup_count, self.constants, views, thread_count
        )


def binding_view(
    buffer: Buffer | None, entry: int, offset: int, length: int, table: BindingTable
) -> memoryview:
    """The bytes of a range of a buffer, or of an entry of the binding table."""
    if buffer is None:
        bound = table[entry]
        assert bound.buffer is not None, "the command buffer has checked the table"
        buffer = bound.buffer.subspan(bound.offset, bound.length)
    view = buffer.storage.map(
        buffer.byte_offset + offset, buffer.check_range(offset, length, "binding")
    )
    return view if buffer.allowed_access & WRITE else view.toreadonly()
