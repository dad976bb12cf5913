"""Row for routers that choose groups of experts first: sigmoid scores, a bias for the choice alone.

Source: onnxruntime ContribOperators.md (MoEGroupRouter); DeepSeek-AI, DeepSeek-V3, 2024, section 2.1.2.
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.contraction import swap_last
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row
from tilewright.compiler.ops.shapes import element_count

_LEAST: Final = 1e-20
"""Of a score whose logarithm is taken."""


def _group_router(call: Call) -> list[Tensor | None]:
    e, scores, bias = call.maker, _scores(call), call.tensor(1)
    experts = scores.shape[1]
    if not isinstance(experts, int):
        raise UnsupportedError(
            "a dynamic number of experts is not supported", hint=FIXED_SIZE
        )
    biased, count = e.op("add", scores, bias), call.integer("top_k")
    if call.wants(1) or call.wants(2):
        return [None, biased, scores]
    groups, active = call.integer("n_group", 1), call.integer("topk_group", 1)
    wanted = call.integer("group_topk", 2)
    if groups < 1 or experts % groups or not 1 <= active <= groups:
        raise ModelError(f"{active} of {groups} groups of {experts} experts")
    if wanted < 1 or not 1 <= count <= experts // groups * active:
        raise ModelError(f"{count} experts of {active} groups of {experts // groups}")
    chosen = _highest(e, _in_groups(e, biased, (groups, active, wanted)), count)
    least = e.scalar(_LEAST, dtypes.f32)
    logarithms = e.op("log", e.op("max", scores, least))
    sentinel = e.scalar(call.float("router_sentinel", -1e4), dtypes.f32)
    found = e.op("where", chosen, logarithms, sentinel)
    return [e.cast(found, call.tensor(0).dtype), None, None]


def _scores(call: Call) -> Tensor:
    """`[tokens, experts]` in f32, from 0 to 1."""
    e, x, weights = call.maker, call.tensor(0), call.optional(2)
    x = e.cast(x, dtypes.f32)
    if weights is not None:
        if not (call.wants(1) or call.wants(2)):
            raise ModelError(
                "projection_weight is for whole scores, which are not asked for"
            )
        x = e.op("matmul", x, swap_last(e, e.cast(weights, dtypes.f32)))
    return e.op("sigmoid", e.reshape(x, (element_count(x.shape[:-1]), x.shape[-1])))


def _in_groups(e: NodeMaker, scores: Tensor, numbers: tuple[int, int, int]) -> Tensor:
    """The scores in the best groups; elsewhere none is as low."""
    groups, active, wanted = numbers
    tokens, experts = scores.shape
    size = symbolic.floordiv(experts, groups)
    assert isinstance(size, int)
    if active == groups:
        return scores
    apart = e.reshape(scores, (tokens, groups, size))
    best, _ = e.ops("top_k", apart, k=(min(wanted, size),), axis=2)
    sums = e.op("reduce_sum", best, axes=(2,), keepdims=False)
    is_active = e.unsqueeze(_highest(e, sums, active), (2,))
    kept = e.op("where", is_active, apart, e.scalar(-math.inf, dtypes.f32))
    return e.reshape(kept, (tokens, experts))


def _highest(e: NodeMaker, scores: Tensor, count: int) -> Tensor:
    """Where the highest of each row stand, of equals the first."""
    tokens, _ = scores.shape
    _, places = e.ops("top_k", scores, k=(count,), axis=1)
    nowhere = e.full(0, dtypes.i32, scores.shape)
    ones = e.full(1, dtypes.i32, (tokens, count))
    marked = e.op("scatter_elements", nowhere, places, ones, axis=1)
    return e.op("greater", marked, e.scalar(0, dtypes.i32))


ROWS: Final[tuple[Row, ...]] = (row("MoEGroupRouter", _group_router, domain=MICROSOFT),)
