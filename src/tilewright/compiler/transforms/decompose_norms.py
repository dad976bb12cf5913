"""Group norms become instance norms of folded groups, scaled per channel afterwards.

A group lies in one piece of memory, so its positions are one long row, which has a schedule in
lanes; a scale that changes every so many positions of that row has none.  The scale is an
elementwise product, which fuses with what follows.  It is the form in which torch exports them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

from tilewright.base import dtypes
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.shapes import element_count
from tilewright.compiler.passes import Emitter, RewritePass, Rule
from tilewright.compiler.transforms.matching import number, operand, optional_operand


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class DecomposeNorms(RewritePass):
    """Write `group_norm` as `instance_norm` between reshapes, a product and a sum.

    Requires: nothing.  Ensures: no `group_norm` on channels-first tensors is left.
    """

    lookup: ClassVar = staticmethod(catalogue.schema)
    level: ClassVar[int] = 1

    def rules(self) -> Mapping[str, Sequence[Rule]]:
        """One rule."""
        return {"group_norm": (decompose_groups,)}


def decompose_groups(node: Node, emit: Emitter) -> Value | None:
    """group_norm(x, s, b) is fold⁻¹(instance_norm(fold(x))) · s + b."""
    x, groups = operand(node), number(node, "groups")
    if node.attributes["layout"] != "NCHW" or not groups:
        return None
    batch, channels, *places = x.type.shape
    narrow = x.type.dtype.bits < dtypes.f32.bits
    wide = emit.op("cast", [x], {"dtype": dtypes.f32}) if narrow else x
    row = channels // groups * element_count(places)
    folded = emit.op("reshape", [wide], {"shape": (batch, groups, row)})
    epsilon = node.attributes["epsilon"]
    normal = emit.op("instance_norm", [folded, None, None], {"epsilon": epsilon})
    result = emit.op("reshape", [normal], {"shape": x.type.shape})
    for op, place in (("mul", 1), ("add", 2)):
        vector = optional_operand(node, place)
        if vector is None:
            continue
        if vector.type.dtype is not wide.type.dtype:
            vector = emit.op("cast", [vector], {"dtype": wide.type.dtype})
        spread = (channels, *([1] * len(places)))
        result = emit.op(op, [result, emit.op("reshape", [vector], {"shape": spread})])
    return emit.op("cast", [result], {"dtype": x.type.dtype}) if narrow else result
