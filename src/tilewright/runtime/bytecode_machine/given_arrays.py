"""Arrays of callers against the signature of a function, before anything is copied for them.

The bytecode checks its inputs itself, but sees them only as views on the device.  Called by `machine`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.runtime.hal.element_type import Array


def check_shapes(specs: Sequence[TensorSpec], inputs: Sequence[object]) -> None:
    """Refuse arrays of another rank, or of another size where the signature has a number.

    Raises: InputError naming the input.
    """
    for spec, value in zip(specs, inputs, strict=False):
        if isinstance(value, np.ndarray) and not _fits(spec, value.shape):
            wanted = ", ".join(map(str, spec.shape))
            raise InputError(
                f"got {_described(value)}, expected {spec.dtype}[{wanted}]",
                location=f"input '{spec.name}'",
            )


def _described(array: Array) -> str:
    dtype = dtypes.find_numpy(array.dtype)
    name = array.dtype.name if dtype is None else dtype.name
    return f"{name}[{', '.join(map(str, array.shape))}]"


def _fits(spec: TensorSpec, shape: tuple[int, ...]) -> bool:
    return len(shape) == len(spec.shape) and all(
        not isinstance(wanted, int) or wanted == size
        for wanted, size in zip(spec.shape, shape, strict=True)
    )


def check_target(target: Array, made: Array, name: str) -> None:
    """Refuse an array that cannot take a result.  Raises: InputError naming the output."""
    location = f"output '{name}'"
    if (target.dtype, target.shape) != (made.dtype, made.shape):
        raise InputError(
            f"got {target.dtype}{list(target.shape)}, expected {made.dtype}{list(made.shape)}",
            location=location,
        )
    if not target.flags.writeable:
        raise InputError("got an array that is read-only", location=location)
