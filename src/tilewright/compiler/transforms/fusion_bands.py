"""Joins a depthwise convolution and the product of matrices behind it, which reads what it makes once.

In one kernel a band of the tensor between them stays near the core that made it, instead of going through memory as a
whole.  Which pairs join is a decision of the back end's cost model; how wide a band is, the schedule's.  Called by
`fuse_kernels` when every group is complete.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Role
from tilewright.compiler.ops.contract import multiplies_rows, shares_no_element
from tilewright.compiler.transforms.fusion_groups import Group, Groups

ChooseBand = Callable[[int, int, int], int]
"""(rows, bytes of a row, bytes of the right operand) of a tensor between two sums to the rows of a band; 0: none."""

_JOINED: Final = (Role.CONTRACTION, Role.POINTWISE, Role.FREE)
"""What a depthwise convolution's kernel may hold, that its results lie as it makes them."""


def join_bands(groups: Groups, choose_band: ChooseBand, most_operands: int) -> None:
    """Let products of matrices take the kernels that make their left operands, where that is decided."""
    for group in list(groups.all):
        product = _anchor(group, groups)
        if product is None or not multiplies_rows(product.attributes):
            continue
        views = _views(product, groups)
        source = _source(views[-1] if views else product, groups)
        if source is None or source is group:
            continue
        operands = {*groups.inputs(source), *groups.inputs(group)}
        if len(operands) > most_operands or not _pays(source, product, choose_band):
            continue
        groups.take(group, views)
        groups.merge(group, source)


def _anchor(group: Group, groups: Groups) -> Node | None:
    """The contraction of a kernel, if it is one of contractions and has one."""
    found = [n for n in group.nodes if groups.role(n) is Role.CONTRACTION]
    return found[0] if group.kind is Role.CONTRACTION and len(found) == 1 else None


def _views(product: Node, groups: Groups) -> list[Node]:
    """The reshapes of its left operand, which nobody else reads and which leave the last axis as it is."""
    found: list[Node] = []
    value = product.operand()
    while _is_read_once(value, groups) and value.node is not None:
        view = value.node
        if groups.role(view) is not Role.VIEW:
            break
        value = view.operand()
        if value.type.shape[-1:] != view.result.type.shape[-1:]:
            break
        found.append(view)
    return found


def _is_read_once(value: Value, groups: Groups) -> bool:
    return groups.edit.sole_user(value) is not None and not groups.is_output(value)


def _source(reader: Node, groups: Groups) -> Group | None:
    """The kernel of the depthwise convolution whose result `reader` alone reads."""
    value = reader.operand()
    source = None if value.node is None else groups.of.get(value.node)
    if source is None or source.output is not value or not _is_read_once(value, groups):
        return None
    first = _anchor(source, groups)
    if first is None or not shares_no_element(first.attributes):
        return None
    is_plain = all(groups.role(node) in _JOINED for node in source.nodes)
    return source if is_plain and first.result.type.shape == value.type.shape else None


def _pays(source: Group, product: Node, choose_band: ChooseBand) -> bool:
    between, right = source.output.type, product.operand(1).type
    shape = [size for size in between.shape if isinstance(size, int)]
    columns = [size for size in right.shape if isinstance(size, int)]
    if len(shape) < between.rank or len(columns) < right.rank or between.rank < 3:
        return False
    *rows, positions, channels = shape
    if positions == 1:
        return False  # rows of both sums would share a loop, and no tile of the product had two of them
    row_bytes = positions * channels * between.dtype.itemsize
    right_bytes = math.prod(columns) * right.dtype.itemsize
    return choose_band(math.prod(rows), row_bytes, right_bytes) > 0
