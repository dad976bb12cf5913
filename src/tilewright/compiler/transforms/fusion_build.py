"""Turns groups of nodes into `fused` nodes with a region each.

The last step of `fuse_kernels`: views at the border of a group are put out of it, every other
node is copied into the region, kernels that are equal get the same name.
"""

from __future__ import annotations

import itertools
from typing import Final

from tilewright.compiler.graph.compare import fingerprint
from tilewright.compiler.graph.copy import graph_of
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Role
from tilewright.compiler.ops import control
from tilewright.compiler.transforms.fusion_groups import Group, Groups

_NAMED_OPS: Final = 4
_QUIET: Final = (Role.FREE, Role.VIEW)


def build_kernels(groups: Groups) -> int:
    """Replace every group by one node; returns how many kernels there are."""
    names: dict[str, str] = {}
    taken: dict[str, int] = {}
    for group in groups.all:
        _strip_views(group, groups)
    count = 0
    for group in sorted(groups.all, key=lambda g: groups.place[g.root]):
        if not group.nodes:
            continue
        count += 1
        if len(group.nodes) > 1:
            _replace(group, groups, names, taken)
    return count


def _strip_views(group: Group, groups: Groups) -> None:
    """Put views out whose operand comes from outside, or whose result is all that leaves."""
    changed = True
    while changed and group.nodes:
        changed = False
        for node in groups.ordered(group.nodes):
            if groups.role(node) is not Role.VIEW:
                continue
            if node is group.root and node.operands[0] is not None:
                source = node.operands[0].node
                if source is not None and source in group.nodes:
                    group.root = source
                group.nodes.discard(node)
                changed = True
            elif not any(v.node in group.nodes for v in node.present_operands if v.node):
                group.nodes.discard(node)
                changed = True


def _replace(
    group: Group, groups: Groups, names: dict[str, str], taken: dict[str, int]
) -> None:
    inputs = groups.inputs(group)
    region = _region(group, groups, inputs)
    key = fingerprint(region)
    if key not in names:
        base = _base_name(group, groups)
        number = taken.get(base, -1) + 1
        taken[base] = number
        names[key] = f"{base}_{number}"
    region.name = names[key]
    attributes = {"name": names[key], "kind": _kind(group, groups)}
    output = group.output
    node = Node(
        control.fused.schema,
        inputs,
        attributes,
        [output.type],
        regions=[region],
        location=_location_node(group, groups).location,
        names=[output.name],
    )
    edit = groups.edit
    edit.insert_before(group.root, node)
    edit.replace_uses(output, node.result)
    makers = [v.node for v in group.root.present_operands]
    edit.erase(group.root)
    for maker in makers:
        edit.erase_dead(maker)


def _region(group: Group, groups: Groups, inputs: list[Value]) -> Graph:
    names = (f"x{index}" for index in itertools.count())
    return graph_of(groups.canonical(group), inputs, [group.output], names)


def _location_node(group: Group, groups: Groups) -> Node:
    """The anchor, or else the root: where the kernel's work comes from."""
    for node in groups.ordered(group.nodes):
        if groups.role(node) is group.kind:
            return node
    return group.root


def _base_name(group: Group, groups: Groups) -> str:
    ops = [
        node.title for node in groups.canonical(group) if groups.role(node) not in _QUIET
    ]
    shown = [op for index, op in enumerate(ops) if index == 0 or ops[index - 1] != op]
    return "_".join(shown[:_NAMED_OPS])


def _kind(group: Group, groups: Groups) -> str:
    roles = {groups.role(node) for node in group.nodes}
    if group.kind in (Role.POINTWISE, Role.MAP, Role.PLACE, Role.FREE, Role.PACKING):
        return "pointwise" if Role.POINTWISE in roles else "movement"
    return group.kind.value
