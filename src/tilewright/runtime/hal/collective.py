"""Collective operations: what they are called, and what a rank brings to one.

Not here: how participants meet (`channel`), and what is computed then (`collectives.arithmetic`).

Source: IREE `hal/command_buffer.h` (`iree_hal_collective_op_t`).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.status import StatusCode, failure


class CollectiveKind(enum.IntEnum):
    """What the participants do together."""

    ALL_GATHER = 0
    ALL_REDUCE = 1
    ALL_TO_ALL = 2
    BROADCAST = 3
    REDUCE = 4
    REDUCE_SCATTER = 5
    SEND = 6
    RECV = 7
    SEND_RECV = 8


class Reduction(enum.IntEnum):
    """How values of several ranks become one."""

    NONE = 0
    SUM = 1
    PRODUCT = 2
    MINIMUM = 3
    MAXIMUM = 4
    AVERAGE = 5


ELEMENT_TYPES: Final[tuple[DType, ...]] = (
    dtypes.i8,
    dtypes.u8,
    dtypes.i16,
    dtypes.u16,
    dtypes.i32,
    dtypes.u32,
    dtypes.i64,
    dtypes.u64,
    dtypes.f16,
    dtypes.f32,
    dtypes.f64,
    dtypes.bf16,
)
"""By the number that operations carry."""

REDUCING: Final = frozenset(
    (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE, CollectiveKind.REDUCE_SCATTER)
)
NOBODY: Final = 0xFFFF


def send_recv_peers(parameter: int) -> tuple[int | None, int | None]:
    """To whom a rank of a `SEND_RECV` sends, and from whom it receives; None for nobody."""
    target, source = parameter & 0xFFFF, parameter >> 16 & 0xFFFF
    return (None if target == NOBODY else target, None if source == NOBODY else source)


@final
@dataclass(frozen=True, slots=True)
class CollectiveOp:
    """An operation: kind, reduction where there is one, element type."""

    kind: CollectiveKind
    dtype: DType
    reduction: Reduction = Reduction.NONE

    def __str__(self) -> str:
        reduction = f" {self.reduction.name.lower()}" if self.reduction else ""
        return f"{self.kind.name.lower()}{reduction} of {self.dtype.name}"

    @staticmethod
    def unpack(packed: int) -> CollectiveOp:
        """From the u32 that programs carry: kind, reduction, element type, a byte each.

        Raises: DeviceError (INVALID_ARGUMENT).
        """
        kind, reduction, element = packed & 0xFF, packed >> 8 & 0xFF, packed >> 16 & 0xFF
        try:
            op = CollectiveOp(
                CollectiveKind(kind), ELEMENT_TYPES[element], Reduction(reduction)
            )
        except (ValueError, IndexError) as error:
            raise failure(
                StatusCode.INVALID_ARGUMENT, f"there is no collective 0x{packed:08X}"
            ) from error
        if (op.kind in REDUCING) != (op.reduction is not Reduction.NONE):
            raise failure(
                StatusCode.INVALID_ARGUMENT,
                f"{op.kind.name.lower()} with the reduction {op.reduction.name.lower()}",
            )
        return op

    @property
    def packed(self) -> int:
        """The u32 that programs carry."""
        element = ELEMENT_TYPES.index(self.dtype)
        return self.kind | self.reduction << 8 | element << 16

    def peers(self, parameter: int) -> tuple[int, ...]:
        """The ranks that a parameter names."""
        match self.kind:
            case CollectiveKind.SEND_RECV:
                return tuple(r for r in send_recv_peers(parameter) if r is not None)
            case (
                CollectiveKind.BROADCAST
                | CollectiveKind.REDUCE
                | CollectiveKind.SEND
                | CollectiveKind.RECV
            ):
                return (parameter,)
            case _:
                return ()

    def byte_counts(self, rank: int, count: int, parameter: int, elements: int) -> Counts:
        """Bytes that a rank sends and receives; 0 where it has no part in that.

        Args:
            rank: the participant.
            count: of participants.
            parameter: the root or the peer; of `SEND_RECV` target and source, 16 bits each.
            elements: the element count of the command.
        """
        size = elements * self.dtype.bits // 8
        root = parameter == rank
        sends = send_recv_peers(parameter)[0] is not None
        both = Counts(size, size)
        table: Mapping[CollectiveKind, Counts] = {
            CollectiveKind.ALL_GATHER: Counts(size, size * count),
            CollectiveKind.ALL_REDUCE: both,
            CollectiveKind.ALL_TO_ALL: both,
            CollectiveKind.BROADCAST: Counts(size if root else 0, 0 if root else size),
            CollectiveKind.REDUCE: Counts(size, size if root else 0),
            CollectiveKind.REDUCE_SCATTER: Counts(size * count, size),
            CollectiveKind.SEND: Counts(size, 0),
            CollectiveKind.RECV: Counts(0, size),
            CollectiveKind.SEND_RECV: Counts(size if sends else 0, size),
        }
        return table[self.kind]


@final
@dataclass(frozen=True, slots=True)
class Counts:
    """Bytes of one participant."""

    send: int
    receive: int


@final
@dataclass(frozen=True, slots=True)
class Contribution:
    """What one rank brings to an operation: its memory, and its root or peer."""

    op: CollectiveOp
    parameter: int
    element_count: int
    send: memoryview | None
    receive: memoryview | None
