"""Exports of the `vmvx` module that work element by element on two dimensions.

Integers wrap.  Shifts use the low five bits of their amount.  `exp` and `log` are computed in
double precision and rounded once, `rsqrt` is a division by a square root, each rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.modules.vmvx.spans import Array, pieces, read_span, write_span
from tilewright.runtime.vm.buffer import VmBuffer
from tilewright.runtime.vm.native_module import NativeFunction

Binary = Callable[[Array, Array], Array]
Unary = Callable[[Array], Array]

_F32: Final = np.dtype(np.float32)
_I32: Final = np.dtype(np.int32)
_U32: Final = np.dtype(np.uint32)
_SHIFT_MASK: Final = np.uint32(31)
_BITS: Final = 32


# --- what they compute ------------------------------------------------------------------------------


def _divide_signed(left: Array, right: Array) -> Array:
    """Toward zero; exact in double precision, whose quotients are far closer than 2**-31."""
    _refuse_zero(right)
    return np.trunc(np.divide(left, right, dtype=np.float64)).astype(np.int64)


def _divide_unsigned(left: Array, right: Array) -> Array:
    _refuse_zero(right)
    return left // right


def _refuse_zero(divisor: Array) -> None:
    if not divisor.all():
        raise failure(StatusCode.INVALID_ARGUMENT, "integer division by zero")


def _shift_left(left: Array, right: Array) -> Array:
    return np.left_shift(left, right & _SHIFT_MASK)


def _shift_right_signed(left: Array, right: Array) -> Array:
    amount = right.view(np.uint32) & _SHIFT_MASK
    return np.right_shift(left, amount.view(np.int32))


def _shift_right_unsigned(left: Array, right: Array) -> Array:
    return np.right_shift(left, right & _SHIFT_MASK)


def _count_leading_zeros(value: Array) -> Array:
    return _BITS - np.frexp(value.astype(np.float64))[1]


def _exponential(value: Array) -> Array:
    return np.exp(value, dtype=np.float64)


def _logarithm(value: Array) -> Array:
    return np.log(value, dtype=np.float64)


def _reciprocal_root(value: Array) -> Array:
    return np.float32(1) / np.sqrt(value)


_BINARY: Final[dict[str, tuple[Binary, np.dtype[Any]]]] = {
    "add.2d.f32": (np.add, _F32),
    "sub.2d.f32": (np.subtract, _F32),
    "mul.2d.f32": (np.multiply, _F32),
    "div.2d.f32": (np.divide, _F32),
    "add.2d.i32": (np.add, _U32),
    "sub.2d.i32": (np.subtract, _U32),
    "mul.2d.i32": (np.multiply, _U32),
    "divs.2d.i32": (_divide_signed, _I32),
    "divu.2d.i32": (_divide_unsigned, _U32),
    "and.2d.i32": (np.bitwise_and, _U32),
    "or.2d.i32": (np.bitwise_or, _U32),
    "xor.2d.i32": (np.bitwise_xor, _U32),
    "shl.2d.i32": (_shift_left, _U32),
    "shrs.2d.i32": (_shift_right_signed, _I32),
    "shru.2d.i32": (_shift_right_unsigned, _U32),
}
_UNARY: Final[dict[str, tuple[Unary, np.dtype[Any]]]] = {
    "abs.2d.f32": (np.abs, _F32),
    "ceil.2d.f32": (np.ceil, _F32),
    "ctlz.2d.i32": (_count_leading_zeros, _U32),
    "exp.2d.f32": (_exponential, _F32),
    "floor.2d.f32": (np.floor, _F32),
    "log.2d.f32": (_logarithm, _F32),
    "neg.2d.f32": (np.negative, _F32),
    "rsqrt.2d.f32": (_reciprocal_root, _F32),
    "copy.2d.x8": (np.positive, np.dtype(np.uint8)),
    "copy.2d.x16": (np.positive, np.dtype(np.uint16)),
    "copy.2d.x32": (np.positive, _U32),
    "copy.2d.x64": (np.positive, np.dtype(np.uint64)),
}


# --- rows -------------------------------------------------------------------------------------------


def _binary(compute: Binary, dtype: np.dtype[Any]) -> Callable[..., None]:
    def function(
        left: VmBuffer,
        left_offset: int,
        left_stride0: int,
        left_stride1: int,
        right: VmBuffer,
        right_offset: int,
        right_stride0: int,
        right_stride1: int,
        out: VmBuffer,
        out_offset: int,
        out_stride0: int,
        out_stride1: int,
        size0: int,
        size1: int,
    ) -> None:
        sizes = size0, size1
        target = write_span(out, dtype, out_offset, sizes, (out_stride0, out_stride1))
        a = read_span(left, dtype, left_offset, sizes, (left_stride0, left_stride1))
        b = read_span(right, dtype, right_offset, sizes, (right_stride0, right_stride1))
        if target.size:
            for piece in pieces(*sizes):
                _store(target[piece], compute(a[piece], b[piece]))

    return _quietly(function)


def _unary(compute: Unary, dtype: np.dtype[Any]) -> Callable[..., None]:
    def function(
        source: VmBuffer,
        offset: int,
        stride0: int,
        stride1: int,
        out: VmBuffer,
        out_offset: int,
        out_stride0: int,
        out_stride1: int,
        size0: int,
        size1: int,
    ) -> None:
        sizes = size0, size1
        target = write_span(out, dtype, out_offset, sizes, (out_stride0, out_stride1))
        value = read_span(source, dtype, offset, sizes, (stride0, stride1))
        if target.size:
            for piece in pieces(*sizes):
                _store(target[piece], compute(value[piece]))

    return _quietly(function)


def _fill(
    value: int, out: VmBuffer, offset: int, row_stride: int, size0: int, size1: int
) -> None:
    target = write_span(out, _U32, offset, (size0, size1), (row_stride, 1))
    for piece in pieces(size0, size1):
        target[piece] = value & 0xFFFF_FFFF


def _store(target: Array, value: Array) -> None:
    """Convert as C does: integers wrap, floats round."""
    np.copyto(target, value, casting="unsafe")


def _quietly(function: Callable[..., None]) -> Callable[..., None]:
    """Division by zero and the like give infinities and NaN, as on any processor."""
    return np.errstate(all="ignore")(function)


ROWS: Final = (
    *(
        NativeFunction(
            name, ("0rIIIrIIIrIIIII_v",), _binary(compute, dtype), "bytes bytes bytes"
        )
        for name, (compute, dtype) in _BINARY.items()
    ),
    *(
        NativeFunction(name, ("0rIIIrIIIII_v",), _unary(compute, dtype), "bytes bytes")
        for name, (compute, dtype) in _UNARY.items()
    ),
    NativeFunction("fill.2d.x32", ("0irIIII_v",), _fill, "bytes"),
)
