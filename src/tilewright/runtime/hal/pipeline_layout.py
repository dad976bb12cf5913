"""Pipeline layouts: how kernels were given operands before dispatches carried them.

A program declared sets of bindings and a number of constants, pushed values into a command buffer
piece by piece, and a dispatch took what was there.  IREE's compilers made such programs until
August 2024 (`hal` versions up to 4); `PushedOperands` turns them into dispatches of today, which
bring their operands with them, so no device knows of layouts.

Source: IREE `hal/pipeline_layout.h`, `hal/local/local_pipeline_layout.c` of release 20240410.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from tilewright.base.status import StatusCode, failure
from tilewright.formats.executable import MAX_CONSTANTS
from tilewright.runtime.hal.command_buffer import BufferRef

MAX_SETS: Final = 4
MAX_SET_BINDINGS: Final = 32
_U32: Final = 0xFFFF_FFFF


class DescriptorBinding(NamedTuple):
    """One binding of a set: its number, 6 (uniform) or 7 (storage), and 1 where it is only read."""

    binding: int
    type: int
    flags: int


class PushedBinding(NamedTuple):
    """What a program pushes for one binding: a range of a buffer or of slot `slot`."""

    binding: int
    ref: BufferRef


@final
class DescriptorSetLayout:
    """The bindings of one set.

    Thread-safety: immutable.
    """

    __slots__ = ("__weakref__", "bindings", "flags")

    def __init__(self, flags: int, bindings: Sequence[DescriptorBinding]) -> None:
        _check("bindings of a set", len(bindings), MAX_SET_BINDINGS)
        for binding in bindings:
            _check("the number of a binding", binding.binding, MAX_SET_BINDINGS - 1)
        self.flags: int = flags
        self.bindings: tuple[DescriptorBinding, ...] = tuple(bindings)


@final
class PipelineLayout:
    """What a kernel takes: `constant_count` u32, and the bindings of its sets.

    Thread-safety: immutable.
    """

    __slots__ = ("__weakref__", "constant_count", "places", "set_layouts")

    def __init__(
        self, constant_count: int, set_layouts: Sequence[DescriptorSetLayout]
    ) -> None:
        _check("push constants", constant_count, MAX_CONSTANTS)
        _check("descriptor sets", len(set_layouts), MAX_SETS)
        self.constant_count: int = constant_count
        self.set_layouts: tuple[DescriptorSetLayout, ...] = tuple(set_layouts)
        # (set, binding) of each of the kernel's operands: kernels see one dense list.
        self.places: tuple[tuple[int, int], ...] = tuple(
            (ordinal, number)
            for ordinal, layout in enumerate(set_layouts)
            for number in sorted({binding.binding for binding in layout.bindings})
        )


@final
class PushedOperands:
    """What a program has pushed into one command buffer so far; later pushes replace earlier ones.

    Ownership: holds the buffers.
    Thread-safety: that of the command buffer.
    """

    __slots__ = ("_bindings", "_constants")

    def __init__(self) -> None:
        self._constants: list[int] = [0] * MAX_CONSTANTS
        self._bindings: dict[tuple[int, int], BufferRef] = {}

    def push_constants(self, offset: int, values: Sequence[int]) -> None:
        """Put u32 values from element `offset` on.  Raises: DeviceError (OUT_OF_RANGE)."""
        if offset < 0 or offset + len(values) > MAX_CONSTANTS:
            raise failure(
                StatusCode.OUT_OF_RANGE,
                f"{len(values)} push constants from {offset} on, expected at most {MAX_CONSTANTS}",
            )
        self._constants[offset : offset + len(values)] = [value & _U32 for value in values]

    def push_descriptor_set(self, ordinal: int, bindings: Sequence[PushedBinding]) -> None:
        """Put buffers at bindings of a set.  Raises: DeviceError (OUT_OF_RANGE)."""
        _check("the number of a descriptor set", ordinal, MAX_SETS - 1)
        for number, _ in bindings:
            _check("the number of a binding", number, MAX_SET_BINDINGS - 1)
        for number, ref in bindings:
            self._bindings[ordinal, number] = ref

    def operands(self, layout: PipelineLayout) -> tuple[Sequence[int], list[BufferRef]]:
        """The constants and bindings of a dispatch whose kernel has this layout.

        Raises: DeviceError (FAILED_PRECONDITION) for a binding that nothing was pushed to.
        """
        refs: list[BufferRef] = []
        for place in layout.places:
            ref = self._bindings.get(place)
            if ref is None:
                ordinal, number = place
                raise failure(
                    StatusCode.FAILED_PRECONDITION,
                    f"nothing was pushed to binding {number} of descriptor set {ordinal}",
                )
            refs.append(ref)
        return self._constants[: layout.constant_count], refs


def _check(subject: str, value: int, limit: int) -> None:
    if not 0 <= value <= limit:
        raise failure(
            StatusCode.OUT_OF_RANGE, f"{subject}: got {value}, expected at most {limit}"
        )
