"""What collectives come to on a GPU: calls of NCCL, addresses put in.

Calls of one collective form a group: NCCL runs them as one.  Not here: communicators.

Source: NCCL API reference, version 2.14 (collective and point to point functions).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.runtime.hal.collective import (
    REDUCING,
    CollectiveKind,
    CollectiveOp,
    Reduction,
    send_recv_peers,
)

_BYTE: Final = 1  # ncclUint8
_TYPES: Final[Mapping[DType, int]] = MappingProxyType(
    {
        dtypes.i8: 0,
        dtypes.u8: _BYTE,
        dtypes.i32: 2,
        dtypes.u32: 3,
        dtypes.i64: 4,
        dtypes.u64: 5,
        dtypes.f16: 6,
        dtypes.f32: 7,
        dtypes.f64: 8,
        dtypes.bf16: 9,
    }
)
_REDUCTIONS: Final[Mapping[Reduction, int]] = MappingProxyType(
    {
        Reduction.SUM: 0,
        Reduction.PRODUCT: 1,
        Reduction.MAXIMUM: 2,
        Reduction.MINIMUM: 3,
        Reduction.AVERAGE: 4,
    }
)


@final
class NcclCall(NamedTuple):
    """A function, and its arguments up to the communicator and the stream."""

    function: str
    arguments: tuple[int, ...]


@final
class Share(NamedTuple):
    """One rank's part in a collective, as NCCL counts.

    Attributes:
        rank: of `ranks`.
        send: an address; 0 where this rank sends nothing.
        receive: an address; 0 where it receives nothing.
        elements: of the type with NCCL's number `dtype`, which has `size` bytes.
        parameter: the root or the peer.
        reduction: NCCL's number.
    """

    rank: int
    ranks: int
    send: int
    receive: int
    elements: int
    dtype: int
    size: int
    parameter: int
    reduction: int


def is_supported(op: CollectiveOp) -> bool:
    """Whether NCCL has the operation: it does not reduce integers of 16 bits."""
    return op.kind not in REDUCING or op.dtype in _TYPES


def make_share(
    op: CollectiveOp,
    rank: int,
    count: int,
    addresses: tuple[int, int],
    elements: int,
    parameter: int,
) -> Share:
    """A rank's part; types that NCCL does not know move as bytes."""
    size = op.dtype.bits // 8
    number = _TYPES.get(op.dtype)
    if number is None:
        number, elements, size = _BYTE, elements * size, 1
    reduction = _REDUCTIONS.get(op.reduction, 0)
    return Share(rank, count, *addresses, elements, number, size, parameter, reduction)


def _all_gather(p: Share) -> list[NcclCall]:
    return [NcclCall("ncclAllGather", (p.send, p.receive, p.elements, p.dtype))]


def _all_reduce(p: Share) -> list[NcclCall]:
    arguments = (p.send, p.receive, p.elements, p.dtype, p.reduction)
    return [NcclCall("ncclAllReduce", arguments)]


def _all_to_all(p: Share) -> list[NcclCall]:
    share = p.elements // p.ranks
    calls: list[NcclCall] = []
    for peer in range(p.ranks):
        offset = peer * share * p.size
        calls.append(NcclCall("ncclSend", (p.send + offset, share, p.dtype, peer)))
        calls.append(NcclCall("ncclRecv", (p.receive + offset, share, p.dtype, peer)))
    return calls


def _broadcast(p: Share) -> list[NcclCall]:
    """In place at the root, whose own range for results stays as it is."""
    memory = p.send if p.rank == p.parameter else p.receive
    arguments = (memory, memory, p.elements, p.dtype, p.parameter)
    return [NcclCall("ncclBroadcast", arguments)]


def _reduce(p: Share) -> list[NcclCall]:
    arguments = (p.send, p.receive, p.elements, p.dtype, p.reduction, p.parameter)
    return [NcclCall("ncclReduce", arguments)]


def _reduce_scatter(p: Share) -> list[NcclCall]:
    arguments = (p.send, p.receive, p.elements, p.dtype, p.reduction)
    return [NcclCall("ncclReduceScatter", arguments)]


def _send(p: Share) -> list[NcclCall]:
    return [NcclCall("ncclSend", (p.send, p.elements, p.dtype, p.parameter))]


def _recv(p: Share) -> list[NcclCall]:
    return [NcclCall("ncclRecv", (p.receive, p.elements, p.dtype, p.parameter))]


def _send_recv(p: Share) -> list[NcclCall]:
    target, source = send_recv_peers(p.parameter)
    calls: list[NcclCall] = []
    if target is not None:
        calls.append(NcclCall("ncclSend", (p.send, p.elements, p.dtype, target)))
    if source is not None:
        calls.append(NcclCall("ncclRecv", (p.receive, p.elements, p.dtype, source)))
    return calls


_CALLS: Final[Mapping[CollectiveKind, Callable[[Share], list[NcclCall]]]] = (
    MappingProxyType(
        {
            CollectiveKind.ALL_GATHER: _all_gather,
            CollectiveKind.ALL_REDUCE: _all_reduce,
            CollectiveKind.ALL_TO_ALL: _all_to_all,
            CollectiveKind.BROADCAST: _broadcast,
            CollectiveKind.REDUCE: _reduce,
            CollectiveKind.REDUCE_SCATTER: _reduce_scatter,
            CollectiveKind.SEND: _send,
            CollectiveKind.RECV: _recv,
            CollectiveKind.SEND_RECV: _send_recv,
        }
    )
)


def calls_of(op: CollectiveOp, part: Share) -> Sequence[NcclCall]:
    """The calls of one rank; none where nothing moves."""
    return _CALLS[op.kind](part) if part.elements else ()
