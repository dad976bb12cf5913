"""Mixtures of experts: every row goes through the few experts that were chosen for it.

How many rows an expert gets is read from the data, once for all experts; then each computes its own rows alone and
adds them to the result.  Who chooses, and what an expert is, is the caller's.  Called by the rows of front ends.

Source: Shazeer et al., "Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer", 2017.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit import computed, control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor


def mixture(
    e: NodeMaker,
    x: Tensor,
    chosen: Tensor,
    weights: Tensor,
    experts: int,
    expert: Callable[[Tensor, int], Tensor],
    *,
    shares_first: bool = False,
) -> Tensor:
    """The sum over the experts of what they give for their rows, weighted: f32[rows, width].

    Args:
        e: writes the nodes.
        x: [rows, width].
        chosen: the experts of every row, i64[rows, k].
        weights: of what they give, f32[rows, k].
        experts: how many there are.
        expert: what the expert of a number gives for some rows, [n, width].
        shares_first: weights are of what experts read instead.
    """
    rows = x.shape[0]
    # One truth value for every row, choice and expert.
    hits = e.op("equal", e.unsqueeze(chosen, (2,)), e.iota((1, 1, experts), 2))
    takes = e.op("reduce_max", e.cast(hits, dtypes.i64), axes=(1,), keepdims=False)
    high = rows if isinstance(rows, int) else None
    totals = e.op("reduce_sum", takes, axes=(0,), keepdims=False)
    sizes = control.read_sizes(e, totals, "rows", high)
    weighted = e.op("mul", e.cast(hits, dtypes.f32), e.unsqueeze(weights, (2,)))
    shares = e.op("reduce_sum", weighted, axes=(1,), keepdims=False)
    total = e.full(0, dtypes.f32, x.shape)
    for number, size in enumerate(sizes):
        column = e.squeeze(e.slice(takes, 1, number, 1), (1,))
        mask = e.op("not_equal", column, computed.whole(e, 0))
        places = computed.places_of(e, mask, size)
        read = e.op("gather", x, places, axis=0)
        share = e.op("gather", e.slice(shares, 1, number, 1), places, axis=0)
        if shares_first:
            scaled = e.cast(expert(e.op("mul", read, share), number), dtypes.f32)
        else:
            scaled = e.op("mul", e.cast(expert(read, number), dtypes.f32), share)
        where = e.unsqueeze(places, (1,))
        total = e.op("scatter_nd", total, where, scaled, reduction="add")
    return total


def grouped_product(e: NodeMaker, x: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
    """Rows that lie group by group, each times the matrix of its group: [rows, columns]; 0 behind the last group.

    Args:
        e: writes the nodes.
        x: [rows, depth].
        matrices: [groups, depth, columns], a known number of groups.
        ends: where each group ends, [groups], integers that do not fall.
    """
    rows, groups = x.shape[0], matrices.shape[0]
    if not isinstance(groups, int):
        raise UnsupportedError("how many groups there are depends on a call")
    ends = e.cast(ends, dtypes.i64)
    first = e.full(0, dtypes.i64, (1,))
    begins = e.op("concat", first, e.slice(ends, 0, 0, groups - 1), axis=0)
    high = rows if isinstance(rows, int) else None
    sizes = control.read_sizes(e, e.op("sub", ends, begins), "rows", high)
    total = e.full(0, x.dtype, (rows, matrices.shape[2]))
    for number, size in enumerate(sizes):
        places = e.op("add", e.iota((size,), 0), e.slice(begins, 0, number, 1))
        matrix = e.squeeze(e.slice(matrices, 0, number, 1), (0,))
        own = e.op("matmul", e.op("gather", x, places, axis=0), matrix)
        total = e.op("scatter_nd", total, e.unsqueeze(places, (1,)), own, reduction="add")
    return total
