"""What fusion knows about an op: the part it can play in a kernel.

What the op's row says, put to one node: its operands may be constants, its types without a kernel.
One question per function; no state.  Called by `fuse_kernels` only.
"""

from __future__ import annotations

from typing import Final

from tilewright.base import symbolic
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Role, Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.transforms.matching import (
    array_splat,
    constant_of,
    is_index,
    source_places,
    splat_of,
)

ANCHORS: Final = (Role.CONTRACTION, Role.ATTENTION, Role.ROWS, Role.POOLING, Role.REDUCTION)

# Larger splats would be scanned element by element by whoever builds the kernel.
_LARGEST_SPLAT: Final = 1 << 20

_USUAL_BYTES: Final = 4  # of a number


def role_of(node: Node) -> Role:
    """The part that `node` can play."""
    if node.has(Trait.CONSTANT):
        return Role.FREE if is_inline_constant(node) else Role.NONE
    if node.has(Trait.PART):
        return Role.NONE
    if node.regions:
        return Role.HOST if node.has(Trait.SEALED) else Role.NONE
    has_body = catalogue.lookup(node.op).supports(node.operand_types, node.attributes)
    if node.has(Trait.VIEW):
        return Role.VIEW if has_body else Role.NONE
    if not has_body:
        return Role.HOST
    if len(node.results) != 1:
        return Role.ALONE
    role = node.schema.role
    return Role.FREE if role is Role.MAP and _is_free(node) else role


def _is_free(node: Node) -> bool:
    """Index arithmetic and repeated scalars."""
    if not node.present_operands:
        return True
    return node.schema.places is not None and splat_of(node.operand()) is not None


def is_inline_constant(node: Node) -> bool:
    """Whether a constant is one repeated element that a kernel holds as an immediate."""
    array = constant_of(node.result)
    return (
        array is not None
        and array.size <= _LARGEST_SPLAT
        and array_splat(array) is not None
    )


def is_repeatable(node: Node, role: Role) -> bool:
    """Whether several kernels may each do this for themselves."""
    if role in (Role.FREE, Role.VIEW):
        return True
    return role is Role.MAP and reads_linearly(node) and permutation(node) is None


def is_cheap(node: Node) -> bool:
    """Whether computing an element again costs no more than loading it."""
    return catalogue.lookup(node.op).is_cheap(node.operand_types, node.attributes)


def operations(node: Node) -> int:
    """What an element takes where it is computed or moved: vectors hold half as many wide numbers."""
    wide = max(1, node.result.type.dtype.itemsize // _USUAL_BYTES)
    count = catalogue.lookup(node.op).operations(node.operand_types, node.attributes)
    return wide * max(1, count)


# --- places ----------------------------------------------------------------------------------


def reads_linearly(node: Node) -> bool:
    """Whether every element of the first operand is read at indices linear in the result's."""
    found = source_places(node)
    return found is not None and not any(
        any(is_index(symbol) for symbol in symbolic.symbols(part))
        for place in found[0]
        for atom in symbolic.atoms(place)
        for part in atom.parts()
    )


def permutation(node: Node) -> tuple[int, ...] | None:
    """The axes of the operand in the order that a move puts all of them in, if it is another."""
    found = source_places(node)
    if found is None or any(isinstance(place, int) for place in found[0]):
        return None
    source, indices = found
    if sorted(map(str, source)) != sorted(map(str, indices)):
        return None
    order = tuple(list(source).index(index) for index in indices)
    return None if order == tuple(range(len(order))) else order


def keeps_last_axis(node: Node) -> bool:
    """Whether the node puts axes in another order and leaves the innermost where it is."""
    order = permutation(node)
    return order is not None and order[-1] == len(order) - 1


def moves_last_axis(node: Node) -> bool:
    """Whether the node puts axes in another order, the innermost too."""
    order = permutation(node)
    return order is not None and order[-1] != len(order) - 1


def is_border(node: Node) -> bool:
    """Whether the node puts a border of one constant around its first operand."""
    adds_border = node.schema.adds_border
    if adds_border is None or not adds_border(node.attributes, node.operand().type.shape):
        return False
    return all(v is None or splat_of(v) is not None for v in node.operands[1:])


def is_left_operand(node: Node, value: Value) -> bool:
    """Whether a contraction reads `value` as its first operand and nowhere else."""
    return node.operands[0] is value and all(v is not value for v in node.operands[1:])
