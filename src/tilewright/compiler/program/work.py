"""How much arithmetic and traffic a node stands for, for reports (GFLOP/s, GB/s, shares of the peak).

Counts what the model asks for, not what a kernel executes: padding, recomputation and index
arithmetic are free.  A multiply-add counts as two.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.outcome import Outcome, Verdict
from tilewright.base.symbolic import Dim, minimum
from tilewright.base.target import Target
from tilewright.compiler.analysis.sizes import estimate
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.schedule.machine_model import MachineModel


def arithmetic_work(node: Node) -> Dim:
    """Floating-point operations of a node, the nodes of its regions included."""
    if node.regions:
        return sum(arithmetic_work(inner) for region in node.regions for inner in region)
    traits, work = node.schema.traits, node.schema.work
    if work is not None:
        types = [v.type for v in node.present_operands]
        return work(types, [v.type for v in node.results], node.attributes)
    if Trait.MOVEMENT in traits or Trait.VIEW in traits or Trait.CONSTANT in traits:
        return 0
    if Trait.REDUCTION in traits or Trait.ROWWISE in traits:
        return node.present_operands[0].type.element_count if node.present_operands else 0
    return node.results[0].type.element_count if Trait.ELEMENTWISE in traits else 0


def bytes_moved(node: Node) -> Dim:
    """What a kernel reads and writes at least, every tensor once.

    Of an operand that is only moved, no more is read than what is made of it: a gather takes rows, not the
    table.
    """
    read = sum(_bytes_read(node, value) for value in dict.fromkeys(node.present_operands))
    return read + sum(value.type.size_bytes for value in node.results)


def _bytes_read(node: Node, value: Value) -> Dim:
    """The bytes of `value`, an operand of `node`, that the node reads."""
    whole = value.type.size_bytes
    taken: Dim = 0
    for user, read in _readers(node, value):
        if Trait.MOVEMENT not in user.schema.traits or read is not user.operands[0]:
            return whole  # indices of a movement are read one by one
        for result in user.results:
            taken = taken + result.type.element_count
    return minimum(whole, taken * value.type.dtype.itemsize)


def _readers(node: Node, value: Value) -> Iterator[tuple[Node, Value]]:
    """Who reads an operand, and as which value: the node itself, or the nodes of its region."""
    if not node.regions:
        yield node, value
        return
    (region,) = node.regions
    inner = {
        argument
        for argument, operand in zip(region.inputs, node.operands, strict=True)
        if operand is value
    }
    for user in region:
        for operand in user.present_operands:
            if operand in inner:
                yield user, operand


def nodes_of(node: Node) -> tuple[str, ...]:
    """The nodes of the model that a node computes, by name, in order."""
    inner = [
        n
        for region in node.regions
        for n in region
        if Trait.CONSTANT not in n.schema.traits
    ]
    names = [n.location.name for n in inner or [node]]
    return tuple(dict.fromkeys(name for name in names if name))


def host_verdict(node: Node, target: Target) -> Verdict:
    """What running `node` on the host takes: each element alone, behind the one before it."""
    values = (*node.present_operands, *node.results)
    elements = max(
        sum(estimate(value.type.element_count) for value in values),
        estimate(arithmetic_work(node)),
    )
    machine = MachineModel.of(target)
    lanes = min((machine.lanes(value.type.dtype) for value in values), default=1)
    size_bytes = sum(estimate(value.type.size_bytes) for value in values)
    with LATE_IMPORTS:  # most models run nothing on the host
        from tilewright.compiler.schedule.rules.verdict import unscheduled  # noqa: PLC0415

    cost = unscheduled(elements, lanes, size_bytes, machine)
    return Verdict(Outcome.HOST, cost.expected_ns, cost.lanes_ns)
