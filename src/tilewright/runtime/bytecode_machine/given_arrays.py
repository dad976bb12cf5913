"""Arrays of callers against the signature of a function, before anything is copied for them.

The bytecode checks its inputs itself, but sees them only as views on the device.  Called by `machine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import InputError, UserError
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.hal.element_type import Array, bit_count, element_type_of

_ELEMENT_TYPES: Final[dict[np.dtype[np.generic], int]] = {}
"""What was asked before: finding out takes longer than a small call."""


def known_element_type(dtype: np.dtype[np.generic]) -> int | None:
    """The element type of whole bytes of a numpy type that was asked for before; None for any other."""
    return _ELEMENT_TYPES.get(dtype)


def find_element_type(dtype: np.dtype[np.generic]) -> int:
    """The element type of a numpy type.  Raises: InputError."""
    try:
        found = element_type_of(dtype)
    except UserError as error:
        name = dtype.newbyteorder("=").name
        hint = "" if dtype.isnative else f"convert it with .astype('{name}')"
        raise InputError(error.message, hint=hint or None) from error
    if bit_count(found) >= 8:  # the others are packed first
        _ELEMENT_TYPES[dtype] = found
    return found


def check_types(names: Sequence[str], inputs: Sequence[object]) -> None:
    """Refuse arrays of elements that tensors do not have.  Raises: InputError naming the input."""
    for name, value in zip(names, inputs, strict=False):
        if isinstance(value, np.ndarray) and value.dtype not in _ELEMENT_TYPES:
            try:
                find_element_type(value.dtype)
            except InputError as error:
                location = f"input '{name}'"
                raise InputError(
                    error.message, location=location, hint=error.hint
                ) from error


def check_shapes(specs: Sequence[TensorSpec], inputs: Sequence[object]) -> None:
    """Refuse arrays of another rank, or of another size where the signature has a number.

    Raises: InputError naming the input.
    """
    for spec, value in zip(specs, inputs, strict=False):
        if isinstance(value, np.ndarray) and not spec.fits(value.shape):
            wanted = ", ".join(map(str, spec.shape))
            raise InputError(
                f"got {_described(value)}, expected {spec.dtype}[{wanted}]",
                location=f"input '{spec.name}'",
            )


def _described(array: Array) -> str:
    dtype = dtypes.find_numpy(array.dtype)
    name = array.dtype.name if dtype is None else dtype.name
    if dtype is None and not array.dtype.isnative:
        name += " of the other byte order "
    return f"{name}[{', '.join(map(str, array.shape))}]"


def check_target(target: Array, made: Array, name: str) -> None:
    """Refuse an array that cannot take a result.  Raises: InputError naming the output."""
    location, wanted = f"output '{name}'", _described(made)
    if (target.dtype, target.shape) != (made.dtype, made.shape):
        raise InputError(f"got {_described(target)}, expected {wanted}", location=location)
    if not target.flags.c_contiguous or not target.flags.writeable:
        problem = f"expected a dense array of {wanted} in row-major order, for writing"
        raise InputError(problem, location=location)
