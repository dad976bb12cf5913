"""What a region on two numbers does, where it is one operation.

Called by the rows whose operations take such regions.
"""

from __future__ import annotations

from typing import Final

from tilewright.compiler.frontends.stablehlo.tree import (
    QuantizedType,
    Region,
    TensorType,
    Value,
)

_OPERATIONS: Final = {
    "stablehlo.add": "add",
    "stablehlo.and": "and",
    "stablehlo.maximum": "max",
    "stablehlo.minimum": "min",
    "stablehlo.multiply": "mul",
    "stablehlo.or": "or",
}


def combination(region: Region) -> str:
    """How a region combines its two arguments: `add`, `max` …, `second` for the latter; empty: otherwise."""
    (block, *others) = region.blocks
    if others or len(block.arguments) != 2 or not block.operations:
        return ""
    if any(_is_quantized(argument) for argument in block.arguments):
        return ""
    *steps, leave = block.operations
    first, second = block.arguments
    if not steps and leave.operands == (second,):
        return "second"
    if len(steps) != 1 or leave.operands != steps[0].results:
        return ""
    both = set(steps[0].operands) == {first, second} and len(steps[0].operands) == 2
    return _OPERATIONS.get(steps[0].name, "") if both else ""


def _is_quantized(value: Value) -> bool:
    """Integers that stand for other numbers are not combined as integers."""
    type_ = value.type
    return isinstance(type_, TensorType) and isinstance(type_.element, QuantizedType)
