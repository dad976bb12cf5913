"""Packed functions bound to the types of their tensors: what can be worked out before a call, is.

Called by whoever replays or interprets a program that calls functions of modules (the plan executor, the
virtual machine's `tilewright` module).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from tilewright.base.dtypes import DType
from tilewright.base.errors import TilewrightError, UserError
from tilewright.runtime.native import PackedCall
from tilewright.runtime.packed.functions import function_at, packed_function

_BYTE_BITS: Final = 8

TensorType: TypeAlias = tuple[DType, Sequence[int]]

AS_BYTES: Final = "cast it to i8 or u8 in the model"
"""What to do about a type that is not passed."""


def why_not_passed(dtype: DType) -> str | None:
    """What errors say of elements of less than a byte: read one as the other, a tensor ends too early."""
    if dtype.bits >= _BYTE_BITS:
        return None
    return f"a tensor of {dtype} is not passed: its elements have a byte each, those of DLPack are packed"


def bind_tensors(
    function: Callable[..., Any], types: Sequence[TensorType], where: str
) -> PackedCall:
    """The function, to be called with one buffer per tensor, dense and in row-major order.

    Args:
        function: a packed function, or a Python callable, which gets `tvm_ffi.Tensor`s.
        types: element type and shape of each tensor.
        where: what errors of the function call the place.

    Returns: what runs the function, without the GIL.  ValueError for a buffer of another size; errors of
        the function as what they were.
    Raises: UserError for elements of less than a byte, which DLPack has packed and programs have not.
    """
    for dtype, _ in types:
        if problem := why_not_passed(dtype):
            raise UserError(problem, location=where, hint=AS_BYTES)
    packed = packed_function(function)
    fail_again = function_at(PackedCall.fail_again())

    def fail() -> None:
        try:
            fail_again()
        except TilewrightError as error:
            error.location = error.location or where
            raise
        except Exception as error:
            error.add_note(f"in {where}")
            raise

    rows = tuple((*dtype.dlpack, dtype.itemsize, tuple(shape)) for dtype, shape in types)
    return PackedCall(packed.__chandle__(), rows, packed, fail)
