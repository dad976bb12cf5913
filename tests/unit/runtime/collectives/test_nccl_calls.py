"""What collectives come to as calls of NCCL, in its numbers (nccl.h)."""

from __future__ import annotations

import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.runtime.collectives.nccl_calls import calls_of, is_supported, make_share
from tilewright.runtime.hal.collective import (
    ELEMENT_TYPES,
    REDUCING,
    CollectiveKind,
    CollectiveOp,
    Reduction,
)

KIND = CollectiveKind
SEND, RECEIVE = 0x1000, 0x2000
NOBODY = 0xFFFF


def calls(op: CollectiveOp, parameter: int, elements: int = 6, rank: int = 1):
    part = make_share(op, rank, 3, (SEND, RECEIVE), elements, parameter)
    return [(call.function, call.arguments) for call in calls_of(op, part)]


def op(kind: CollectiveKind, dtype: DType = dtypes.f32) -> CollectiveOp:
    return CollectiveOp(
        kind, dtype, Reduction.MINIMUM if kind in REDUCING else Reduction.NONE
    )


def test_each_kind_is_its_function() -> None:
    f32, minimum = 7, 3
    assert calls(op(KIND.ALL_GATHER), 0) == [("ncclAllGather", (SEND, RECEIVE, 6, f32))]
    assert calls(op(KIND.ALL_REDUCE), 0) == [
        ("ncclAllReduce", (SEND, RECEIVE, 6, f32, minimum))
    ]
    assert calls(op(KIND.REDUCE), 2) == [
        ("ncclReduce", (SEND, RECEIVE, 6, f32, minimum, 2))
    ]
    assert calls(op(KIND.REDUCE_SCATTER), 0) == [
        ("ncclReduceScatter", (SEND, RECEIVE, 6, f32, minimum))
    ]
    assert calls(op(KIND.SEND), 2) == [("ncclSend", (SEND, 6, f32, 2))]
    assert calls(op(KIND.RECV), 2) == [("ncclRecv", (RECEIVE, 6, f32, 2))]


def test_a_broadcast_leaves_what_the_root_would_receive_alone() -> None:
    assert calls(op(KIND.BROADCAST), 1) == [("ncclBroadcast", (SEND, SEND, 6, 7, 1))]
    assert calls(op(KIND.BROADCAST), 0) == [("ncclBroadcast", (RECEIVE, RECEIVE, 6, 7, 0))]


def test_an_exchange_of_all_is_a_send_and_a_receive_for_each() -> None:
    share = 2
    assert calls(op(KIND.ALL_TO_ALL), 0) == [
        (name, (base + peer * share * 4, share, 7, peer))
        for peer in range(3)
        for name, base in (("ncclSend", SEND), ("ncclRecv", RECEIVE))
    ]


def test_a_shift_may_have_one_side_only() -> None:
    shift = op(KIND.SEND_RECV)
    both = [("ncclSend", (SEND, 6, 7, 2)), ("ncclRecv", (RECEIVE, 6, 7, 0))]
    assert calls(shift, 2 | 0 << 16) == both
    assert calls(shift, 2 | NOBODY << 16) == both[:1]
    assert calls(shift, NOBODY | 0 << 16) == both[1:]


def test_nothing_is_called_for_no_elements() -> None:
    for kind in KIND:
        assert calls(op(kind), 0, elements=0) == []


@pytest.mark.parametrize("dtype", ELEMENT_TYPES, ids=lambda t: t.name)
def test_all_types_move_and_most_reduce(dtype: DType) -> None:
    numbers = {"i8": 0, "u8": 1, "i32": 2, "u32": 3, "i64": 4, "u64": 5, "f16": 6, "f32": 7}
    numbers |= {"f64": 8, "bf16": 9}
    known = dtype.name in numbers
    assert is_supported(op(KIND.ALL_REDUCE, dtype)) == known
    assert is_supported(op(KIND.ALL_GATHER, dtype))
    count, number = (6, numbers[dtype.name]) if known else (12, 1)
    assert calls(op(KIND.ALL_GATHER, dtype), 0) == [
        ("ncclAllGather", (SEND, RECEIVE, count, number))
    ]


def test_reductions_have_the_numbers_of_the_header() -> None:
    numbers = {"SUM": 0, "PRODUCT": 1, "MAXIMUM": 2, "MINIMUM": 3, "AVERAGE": 4}
    for name, number in numbers.items():
        reduce = CollectiveOp(KIND.ALL_REDUCE, dtypes.f32, Reduction[name])
        assert calls(reduce, 0)[0][1][-1] == number
