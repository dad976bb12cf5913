"""Collective operations: what they are called, and what they compute.

The vocabulary of IREE's HAL and the arithmetic on host memory.  Not here: how participants meet
(`channel`).

Numbers: integers wrap; averages of integers are truncated towards zero; f16 and bf16 are summed in
f32 and rounded once; ranks are taken in order, so results do not depend on who arrives first.

Source: IREE `hal/command_buffer.h` (`iree_hal_collective_op_t`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.status import StatusCode, failure
from tilewright.formats.byte_view import view_bytes

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


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


_STEPS: Final[Mapping[Reduction, Callable[[Array, Array], Array]]] = {
    Reduction.SUM: np.add,
    Reduction.AVERAGE: np.add,
    Reduction.PRODUCT: np.multiply,
    Reduction.MINIMUM: np.minimum,
    Reduction.MAXIMUM: np.maximum,
}


def reduce_arrays(op: CollectiveOp, parts: Sequence[Array]) -> Array:
    """One array from those of all ranks, in the order of the ranks."""
    narrow = op.dtype.bits == 16 and op.dtype in dtypes.FLOATS
    wide = [np.asarray(p, np.float32) if narrow else p for p in parts]
    total = wide[0].copy()
    step = _STEPS[op.reduction]
    with np.errstate(all="ignore"):
        for part in wide[1:]:
            total = step(total, part)
        if op.reduction is Reduction.AVERAGE:
            total = _divided(total, len(parts))
        return total.astype(op.dtype.numpy)


def _divided(total: Array, count: int) -> Array:
    if total.dtype.kind == "f":
        return np.divide(total, total.dtype.type(count))
    divisor = total.dtype.type(count)
    downward = np.logical_and(np.remainder(total, divisor) != 0, np.less(total, 0))
    return np.add(np.floor_divide(total, divisor), downward.astype(total.dtype))


def perform(ranks: Sequence[Contribution]) -> None:
    """Move and reduce: everything is read before anything is written, so in place is fine.

    Raises: DeviceError when the ranks do not want the same.
    """
    check_same(ranks)
    op = ranks[0].op
    values = [read_array(op, rank.send) for rank in ranks]
    results: list[Array | None] = _RESULTS[op.kind](op, ranks, values)
    for rank, result in zip(ranks, results, strict=True):
        if result is not None and rank.receive is not None:
            rank.receive[:] = view_bytes(np.ascontiguousarray(result).view(np.uint8))


def transfer(sender: Contribution, receiver: Contribution) -> None:
    """A send and its receive.  Raises: DeviceError when they do not want the same."""
    check_same((sender, receiver))
    if sender.send is not None and receiver.receive is not None:
        receiver.receive[:] = sender.send


def check_same(ranks: Sequence[Contribution]) -> None:
    """Raise unless all want the same.  Raises: DeviceError (INVALID_ARGUMENT) with both views."""
    problem = disagreement(ranks)
    if problem:
        raise failure(StatusCode.INVALID_ARGUMENT, problem)


def disagreement(ranks: Sequence[Contribution]) -> str:
    """Who wants something else than others; empty where all want the same.

    Args:
        ranks: what each brings; where two make a pair, the sender first.
    """
    first = ranks[0]
    for index, rank in enumerate(ranks):
        problem = difference(0, first, index, rank)
        if problem:
            return problem
    return _unrequited(ranks) if first.op.kind is CollectiveKind.SEND_RECV else ""


def difference(first: int, wanted: Contribution, second: int, other: Contribution) -> str:
    """In what two ranks differ; empty where both want the same, or are a pair."""
    same = (wanted.op.dtype, wanted.op.reduction, wanted.element_count) == (
        other.op.dtype,
        other.op.reduction,
        other.element_count,
    )
    kinds = {wanted.op.kind, other.op.kind}
    paired = kinds == {CollectiveKind.SEND, CollectiveKind.RECV}
    alike = len(kinds) == 1 and (
        CollectiveKind.SEND_RECV in kinds or wanted.parameter == other.parameter
    )
    if same and (paired or alike):
        return ""
    return (
        f"rank {second} wants {other.op}, {other.element_count} elements, parameter "
        f"{other.parameter}; rank {first} {wanted.op}, {wanted.element_count}, "
        f"{wanted.parameter}"
    )


def _unrequited(ranks: Sequence[Contribution]) -> str:
    """Who receives from a rank that sends to another."""
    for index, rank in enumerate(ranks):
        _, source = send_recv_peers(rank.parameter)
        if source is None:
            continue
        actual, _ = send_recv_peers(ranks[source].parameter)
        if actual != index:
            return (
                f"send_recv: rank {index} receives from {source}, which sends to "
                f"{'nobody' if actual is None else actual}"
            )
    return ""


def read_array(op: CollectiveOp, view: memoryview | None) -> Array:
    """A copy of what a rank sends: another one may write where this one reads."""
    bytes_ = np.frombuffer(view if view is not None else b"", np.uint8).copy()
    return bytes_.view(op.dtype.numpy)


Result = list["Array | None"]


def _all_gather(
    op: CollectiveOp, ranks: Sequence[Contribution], v: Sequence[Array]
) -> Result:
    del op
    whole = np.concatenate(v)
    return [whole] * len(ranks)


def _all_reduce(
    op: CollectiveOp, ranks: Sequence[Contribution], v: Sequence[Array]
) -> Result:
    total = reduce_arrays(op, v)
    return [total] * len(ranks)


def _all_to_all(
    op: CollectiveOp, ranks: Sequence[Contribution], v: Sequence[Array]
) -> Result:
    del op
    blocks = [np.split(array, len(ranks)) for array in v]
    return [np.concatenate([parts[i] for parts in blocks]) for i in range(len(ranks))]


def _broadcast(
    op: CollectiveOp, ranks: Sequence[Contribution], v: Sequence[Array]
) -> Result:
    del op
    root = ranks[0].parameter
    return [None if i == root else v[root] for i in range(len(ranks))]


def _reduce(op: CollectiveOp, ranks: Sequence[Contribution], v: Sequence[Array]) -> Result:
    total = reduce_arrays(op, v)
    return [total if i == ranks[0].parameter else None for i in range(len(ranks))]


def _reduce_scatter(
    op: CollectiveOp, ranks: Sequence[Contribution], v: Sequence[Array]
) -> Result:
    return list(np.split(reduce_arrays(op, v), len(ranks)))


def _send_recv(
    op: CollectiveOp, ranks: Sequence[Contribution], v: Sequence[Array]
) -> Result:
    """Target in the low half of the parameter, source in the high; from nobody come zeros."""
    results: Result = []
    for rank in ranks:
        _, source = send_recv_peers(rank.parameter)
        nothing = np.zeros(rank.element_count, op.dtype.numpy)
        results.append(nothing if source is None else v[source])
    return results


_RESULTS: Final[Mapping[CollectiveKind, Callable[..., Result]]] = {
    CollectiveKind.ALL_GATHER: _all_gather,
    CollectiveKind.ALL_REDUCE: _all_reduce,
    CollectiveKind.ALL_TO_ALL: _all_to_all,
    CollectiveKind.BROADCAST: _broadcast,
    CollectiveKind.REDUCE: _reduce,
    CollectiveKind.REDUCE_SCATTER: _reduce_scatter,
    CollectiveKind.SEND_RECV: _send_recv,
}
