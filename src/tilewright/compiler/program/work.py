"""How much arithmetic a node stands for, for reports (GFLOP/s, share of the peak).

Counts what the model asks for, not what a kernel executes: padding, recomputation and index
arithmetic are free.  A multiply-add counts as two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.symbolic import Dim
from tilewright.base.target import Target
from tilewright.compiler.graph.ir import Node
from tilewright.compiler.graph.schema import TensorType, Trait
from tilewright.compiler.schedule.rules import estimate, unscheduled


def arithmetic_work(node: Node) -> Dim:
    """Floating-point operations of a node, the nodes of its regions included."""
    if node.regions:
        total: Dim = 0
        for region in node.regions:
            for inner in region:
                total = total + arithmetic_work(inner)
        return total
    traits = node.schema.traits
    if Trait.CONTRACTION in traits:
        depth = _DEPTHS.get(node.op)
        types = [v.type for v in node.present_operands]
        return 0 if depth is None else 2 * node.results[0].type.element_count * depth(types)
    if Trait.MOVEMENT in traits or Trait.VIEW in traits or Trait.CONSTANT in traits:
        return 0
    if Trait.REDUCTION in traits or Trait.ROWWISE in traits:
        return node.present_operands[0].type.element_count if node.present_operands else 0
    return node.results[0].type.element_count if Trait.ELEMENTWISE in traits else 0


def host_verdict(node: Node, target: Target) -> Verdict:
    """What running `node` on the host takes: each element alone, behind the one before it."""
    values = (*node.present_operands, *node.results)
    elements = max(
        sum(estimate(value.type.element_count) for value in values),
        estimate(arithmetic_work(node)),
    )
    lanes = min((target.vector_lanes(value.type.dtype) for value in values), default=1)
    size_bytes = sum(estimate(value.type.size_bytes) for value in values)
    cost = unscheduled(elements, lanes, size_bytes)
    return Verdict(Outcome.HOST, cost.expected_ns, cost.lanes_ns)


def _product(dims: tuple[Dim, ...]) -> Dim:
    count: Dim = 1
    for dim in dims:
        count = count * dim
    return count


# Terms of the sum behind one result element, from the operand types.
_DEPTHS: Final[dict[str, Callable[[list[TensorType]], Dim]]] = {
    "matmul": lambda types: types[0].shape[-1],
    "matmul_packed": lambda types: types[0].shape[-1],
    "conv": lambda types: _product(types[1].shape[1:]),
    "conv_packed": lambda types: _product(types[1].shape[2:5]),
    "depthwise_conv": lambda types: _product(types[1].shape[:2]),
}
