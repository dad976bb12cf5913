"""Operations on values: the words in which expressions, indices and memory accesses are written."""

from __future__ import annotations

from typing import final

from tilewright.base import dtypes
from tilewright.base.dtypes import HALVES, DType
from tilewright.compiler.printers.c_text.definitions import Definitions
from tilewright.compiler.printers.c_text.types import Value, bare, literal, value_type


@final
class Values:
    """Prints operations; what they need is defined in `definitions`."""

    def __init__(self, definitions: Definitions) -> None:
        self.definitions: Definitions = definitions

    def splat(self, value: Value, lanes: int) -> Value:
        """A scalar in every lane; vectors pass through."""
        if value.lanes == lanes:
            return value
        width = 8 if value.dtype.is_bool else 0
        function = self.definitions.splat(value.dtype, lanes, width)
        return Value(f"{function}({value.text})", value.dtype, lanes, width)

    def mask(self, value: Value, width: int) -> Value:
        """A mask whose lanes have `width` bits."""
        if value.width == width or value.lanes == 1:
            return value
        function = self.definitions.mask_of(value.width, value.lanes, width)
        return value._replace(text=f"{function}({value.text})", width=width)

    def apply(self, op: str, dtype: DType, *operands: Value) -> Value:
        """An operator of one or two operands."""
        function = self.definitions.operator(op, dtype, operands[0].lanes)
        texts = ", ".join(bare(x.text) for x in operands)
        return Value(f"{function}({texts})", dtype, operands[0].lanes)

    def iota(self, dtype: DType, lanes: int, stride: int) -> Value:
        """The vector `0, stride, 2 * stride, …`."""
        type_ = self.definitions.vector(dtype, lanes)
        items = ", ".join(literal(lane * stride, dtype) for lane in range(lanes))
        return Value(f"(({type_}){{{items}}})", dtype, lanes)

    def compared(self, sign: str, left: Value, right: Value) -> Value:
        """A comparison: in lanes a mask as wide as the operands."""
        text = f"({left.text} {sign} {right.text})"
        width = 0
        if left.lanes > 1:
            width = left.width or left.dtype.itemsize * 8
            text = f"({self.definitions.vector(dtypes.bool_, left.lanes, width)}){text}"
            text = f"({text})"
        return Value(text, dtypes.bool_, left.lanes, width)

    def cast(self, value: Value, target: DType) -> Value:
        """`value` as `target`."""
        if value.dtype is target:
            return value
        if target.is_bool:
            wide = self.cast(value, dtypes.f32) if value.dtype in HALVES else value
            zero = self.splat(Value(literal(0, wide.dtype), wide.dtype), value.lanes)
            return self.compared("!=", wide, zero)
        if value.dtype.is_bool:
            return self._of_bool(value, target)
        function = self.definitions.convert(value.dtype, target, value.lanes)
        return Value(f"{function}({bare(value.text)})", target, value.lanes)

    def _of_bool(self, value: Value, target: DType) -> Value:
        if value.lanes == 1:
            number = Value(f"(({value_type(dtypes.i8)}){value.text})", dtypes.i8)
            return self.cast(number, target)
        narrow = self.mask(value, 8)
        type_ = self.definitions.vector(dtypes.i8, value.lanes)
        return self.cast(
            Value(f"(({type_})({narrow.text} & 1))", dtypes.i8, value.lanes), target
        )

    def reinterpret(self, value: Value, dtype: DType, lanes: int) -> Value:
        """The bits of a scalar, or as a scalar."""
        function = self.definitions.bits(value, dtype, lanes)
        return Value(f"{function}({bare(value.text)})", dtype, lanes)

    def choose(self, condition: Value, if_true: Value, if_false: Value) -> Value:
        """A choice, in every lane of its own; both sides are of one type."""
        if if_true.lanes == 1:
            text = f"({condition.text} ? {if_true.text} : {if_false.text})"
            return if_true._replace(text=text)
        if if_true.dtype.is_bool:
            if_true, if_false = self.mask(if_true, 8), self.mask(if_false, 8)
        width = if_true.width or if_true.dtype.itemsize * 8
        function = self.definitions.select(if_true, width)
        operands = (self.mask(condition, width), if_true, if_false)
        texts = ", ".join(bare(x.text) for x in operands)
        return if_true._replace(text=f"{function}({texts})", first="")

    def any_lane(self, mask: Value) -> str:
        """Whether a lane of a mask is set."""
        if mask.first:
            return f"{mask.first} > 0"
        return f"{self.definitions.any_lane(mask)}({mask.text})"
