"""The element type that operands of different types are brought to.

Source: `torch.result_type`: tensors with axes decide, then tensors without, then numbers; a kind (truth
value, integer, float) that is higher always counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.program import Ref


def promoted(call: Call, names: Sequence[str]) -> DType:
    """The common type of some operands of a call."""
    tensors: list[Tensor] = []
    numbers: list[DType] = []
    for name in names:
        found = call.argument(name)
        if isinstance(found, Ref):
            tensors.append(call.tensor(name))
        elif found is not None:
            numbers.append(_of_number(found))
    return result_type(tensors, numbers)


def result_type(tensors: Iterable[Tensor], numbers: Sequence[DType] = ()) -> DType:
    """The common type of tensors and numbers."""
    held = list(tensors)
    with_axes = _common([x.dtype for x in held if x.rank])
    without = _common([x.dtype for x in held if not x.rank])
    found = _combine(_combine(with_axes, without), _common(numbers))
    if found is None:
        raise UnsupportedError("an operator without operands")
    return found


def _of_number(number: object) -> DType:
    if isinstance(number, bool):
        return dtypes.bool_
    if isinstance(number, complex):
        raise UnsupportedError("complex numbers are not supported")
    return dtypes.f32 if isinstance(number, float) else dtypes.i64


def _common(found: Sequence[DType]) -> DType | None:
    result: DType | None = None
    for dtype in found:
        result = dtype if result is None else promote(result, dtype)
    return result


def _combine(higher: DType | None, lower: DType | None) -> DType | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.is_float:
        return higher
    if higher.is_bool or lower.is_float:
        return lower if higher.is_bool or lower.is_float else promote(higher, lower)
    return higher


def promote(x: DType, y: DType) -> DType:
    """The smallest type that torch lets hold both."""
    if x == y:
        return x
    if x.is_float or y.is_float:
        return _float_of(x, y)
    if x.is_bool or y.is_bool:
        return y if x.is_bool else x
    if x.is_signed == y.is_signed:
        return x if x.bits >= y.bits else y
    signed, unsigned = (x, y) if x.is_signed else (y, x)
    wide = [
        dtype
        for dtype in dtypes.SIGNED_INTEGERS
        if dtype.bits > unsigned.bits and dtype.bits >= signed.bits
    ]
    if not wide:
        raise UnsupportedError(f"{x} and {y} have no common type")
    return wide[0]


def _float_of(x: DType, y: DType) -> DType:
    if not (x.is_float and y.is_float):
        return x if x.is_float else y
    if x.bits == y.bits:
        return dtypes.f32
    return x if x.bits > y.bits else y
