"""What users pass as tensors, seen as numpy arrays: DLPack, buffers, lists, tensors of torch.

Memory on the host is shared, not copied.  Not how arrays reach the C core (`tensors`).  Called by sessions
and by the interfaces above them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InputError
from tilewright.runtime.graph_executor.tensors import Array


def as_array(value: object) -> Array:
    """A numpy view of `value` without a copy where its memory is on the host.

    Raises: InputError for what is neither an array nor convertible to one.
    """
    if isinstance(value, np.ndarray):
        return cast("Array", value)
    if hasattr(value, "__dlpack__"):
        detach = getattr(value, "detach", None)
        try:
            return np.from_dlpack(detach() if callable(detach) else value)  # pyright: ignore[reportArgumentType]
        except (BufferError, TypeError, RuntimeError):
            bits = _through_bits(value)  # read-only, or a type that DLPack or numpy lacks
            if bits is not None:
                return bits
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"got {type(value).__name__}, expected an array") from error
    if array.dtype.kind in "OSUMm":  # objects, texts, times
        raise InputError(f"got {type(value).__name__}, expected an array")
    return array


# Types that torch has and numpy's DLPack lacks: the integers they travel as, by torch's method.
_BITS_OF: Final[Mapping[str, tuple[str, DType]]] = {
    "bfloat16": ("short", dtypes.bf16),
    "float8_e4m3fn": ("char", dtypes.f8e4m3fn),
    "float8_e5m2": ("char", dtypes.f8e5m2),
}


def _through_bits(value: object) -> Array | None:
    """A torch tensor of a type that numpy does not know, seen as integers on the way."""
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]
    if name not in _BITS_OF:
        return None
    method, dtype = _BITS_OF[name]
    tensor = cast("Any", value).detach()
    integers = tensor.view(getattr(tensor.new_empty(0), method)().dtype)
    return np.from_dlpack(integers).view(dtype.numpy)
