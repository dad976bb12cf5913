"""What fusion knows about an op: the part it can play in a kernel.

Decided by traits where traits say enough, by name where the shape of the kernel matters.  One
question per function; no state.  Called by `fuse_kernels` only.
"""

from __future__ import annotations

import enum
from typing import Final

from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import Trait
from tilewright.compiler.ops import catalogue
from tilewright.compiler.transforms.matching import (
    array_splat,
    constant_of,
    dim_groups,
    dims,
    has,
    ints,
    operand,
    optional_operand,
    splat_of,
    word,
)


class Role(enum.Enum):
    """The part of a node in a kernel; the value is the `kind` attribute of an anchor's kernel."""

    FREE = "free"  # costs nothing: repeated wherever it is used
    VIEW = "view"  # the same bytes under another shape
    POINTWISE = "pointwise"
    MAP = "movement"  # reads operand elements at computed places, one nest
    PLACE = "placement"  # writes operand elements at other places, several nests
    CONTRACTION = "contraction"
    ROWS = "rows"
    REDUCTION = "reduction"
    POOLING = "pooling"
    PACKING = "packing"
    ALONE = "alone"  # a kernel of its own
    HOST = "host"  # no kernel
    NONE = "none"  # constants, control flow


ANCHORS: Final = (Role.CONTRACTION, Role.ROWS, Role.POOLING, Role.REDUCTION)

_MAPS: Final = frozenset(
    ("transpose", "broadcast_to", "slice", "gather", "gather_elements", "gather_nd", "tile",
     "reverse_sequence", "trilu", "one_hot", "full", "iota", "eye")
)  # fmt: skip
_POOLS: Final = frozenset(("max_pool", "average_pool", "lp_pool"))
_SUMS: Final = frozenset(
    ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
)
_ROWS: Final = frozenset(
    ("softmax", "log_softmax", "layer_norm", "rms_norm", "group_norm", "instance_norm")
)
_CHEAP: Final = frozenset(
    ("neg", "abs", "floor", "ceil", "round", "sign", "relu", "leaky_relu", "thresholded_relu",
     "add", "sub", "mul", "max", "min", "equal", "less", "less_equal", "greater", "not_equal",
     "greater_equal", "logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and",
     "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right", "where", "clip",
     "cast", "identity", "is_nan", "is_inf", "prelu", "shrink", "hard_sigmoid", "hard_swish")
)  # fmt: skip
# Larger splats would be scanned element by element by whoever builds the kernel.
_LARGEST_SPLAT: Final = 1 << 20


def role_of(node: Node) -> Role:
    """The part that `node` can play."""
    if has(node, Trait.CONSTANT):
        return Role.FREE if is_inline_constant(node) else Role.NONE
    if node.regions:
        return Role.HOST
    if has(node, Trait.VIEW):
        return Role.VIEW
    types = [None if v is None else v.type for v in node.operands]
    if not catalogue.lookup(node.op).supports(types, node.attributes):
        return Role.HOST
    return _kernel_role(node)


def _kernel_role(node: Node) -> Role:
    if len(node.results) != 1:
        return Role.ALONE
    if has(node, Trait.ELEMENTWISE):
        return Role.POINTWISE
    if has(node, Trait.CONTRACTION):
        return Role.CONTRACTION
    if has(node, Trait.GUARD):
        return Role.REDUCTION
    named = {
        **dict.fromkeys(_MAPS, Role.MAP),
        **dict.fromkeys(_SUMS, Role.REDUCTION),
        **dict.fromkeys(_ROWS, Role.ROWS),
        **dict.fromkeys(_POOLS, Role.POOLING),
        "pack_panels": Role.PACKING,
        "concat": Role.PLACE,
        "pad": Role.PLACE,
    }
    role = named.get(node.op, Role.ALONE)
    if role is Role.MAP and _is_free(node):
        return Role.FREE
    return role


def _is_free(node: Node) -> bool:
    """Index arithmetic and repeated scalars."""
    if node.op in ("iota", "eye"):
        return True
    return node.op in ("full", "broadcast_to") and splat_of(operand(node)) is not None


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
    return node.op in ("broadcast_to", "slice") and role is Role.MAP


def is_cheap(node: Node) -> bool:
    """Whether computing an element again costs no more than loading it."""
    return node.op in _CHEAP


# --- places ----------------------------------------------------------------------------------


def splits_axes(node: Node) -> bool:
    """Whether a reshape reads at linear places: each long operand axis becomes whole axes."""
    groups = dim_groups(operand(node).type.shape, node.result.type.shape)
    shape = operand(node).type.shape
    return groups is not None and all(
        sum(shape[a] != 1 for a in mine) <= 1 for mine, _ in groups
    )


def reads_linearly(node: Node, role: Role) -> bool:
    """Whether every operand element is read at indices linear in the result's."""
    if role is Role.VIEW:
        return splits_axes(node)
    return node.op in ("transpose", "slice", "broadcast_to")


def keeps_last_axis(node: Node) -> bool:
    """Whether a transpose leaves the innermost axis where it is."""
    perm = ints(node, "perm") if node.op == "transpose" else ()
    return bool(perm) and perm[-1] == len(perm) - 1


def picks_slices(node: Node) -> bool:
    """Whether data picks slices of the first operand."""
    return node.op in ("gather", "gather_nd")


def is_border(node: Node) -> bool:
    """Whether the node is a pad that adds a constant border."""
    if node.op != "pad" or word(node, "mode") != "constant":
        return False
    value = optional_operand(node, 1)
    if value is not None and splat_of(value) is None:
        return False
    return all(isinstance(p, int) and p >= 0 for p in dims(node, "pads"))


def is_left_operand(node: Node, value: Value) -> bool:
    """Whether a contraction reads `value` as its first operand and nowhere else."""
    return node.operands[0] is value and all(v is not value for v in node.operands[1:])
