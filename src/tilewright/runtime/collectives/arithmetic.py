"""What collectives compute, on the memory of the host.

Numbers: integers wrap; averages of integers are truncated towards zero; f16 and bf16 are summed in
f32 and rounded once; ranks are taken in order, so results do not depend on who arrives first.

Source: IREE `hal/command_buffer.h` (`iree_hal_collective_op_t`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.formats.byte_view import view_bytes
from tilewright.runtime.collectives.agreement import check_same
from tilewright.runtime.hal.collective import (
    CollectiveKind,
    CollectiveOp,
    Contribution,
    Reduction,
    send_recv_peers,
)

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]

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
    wide = (
        np.int64 if total.dtype.kind == "i" else np.uint64
    )  # ranks may be more than i8 counts
    sums, divisor = total.astype(wide), wide(count)
    downward = np.logical_and(np.remainder(sums, divisor) != 0, np.less(sums, 0))
    return np.add(np.floor_divide(sums, divisor), downward.astype(wide))


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
