"""The tensors of a parameter file as numpy arrays, in place."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError
from tilewright.formats.byte_view import Buffer
from tilewright.formats.parameters.entries import SplatEntry
from tilewright.formats.parameters.read import read_parameters

_SAFETENSORS = {"F64": "f64", "F32": "f32", "F16": "f16", "BF16": "bf16", "BOOL": "bool"}


def read_arrays(data: Buffer, location: str = "parameters") -> dict[str, npt.NDArray[Any]]:
    """All tensors of a file of parameters, of TVM's (`save_param_dict`) or safetensors.

    Args:
        data: the whole file, which must stay unchanged; the arrays are views of it.
        location: how errors call it.
    Raises: ArchiveError for a damaged file, and for a tensor whose type or shape it does not say.
    """
    index = read_parameters(data, location)
    found: dict[str, npt.NDArray[Any]] = {}
    for name, entry in index.entries.items():
        where = f"{location}: parameter '{name:.80}'"
        if isinstance(entry, SplatEntry):
            raise ArchiveError("is a pattern, expected a tensor", location=where)
        dtype = _type(entry.element_type)
        if dtype is None or math.prod(entry.shape) * dtype.itemsize != entry.length:
            raise ArchiveError(
                f"is of type '{entry.element_type}', which tensors do not have",
                location=where,
                hint="known are files of TVM (save_param_dict) and .safetensors",
            )
        raw = np.frombuffer(index.bytes_of(entry), dtype.numpy)
        try:
            found[name] = raw.reshape(entry.shape)
        except (ValueError, OverflowError) as error:  # of extents beside one of 0
            raise ArchiveError(
                f"has extents that no array has: {list(entry.shape)}", location=where
            ) from error
    return found


def _type(name: str) -> dtypes.DType | None:
    """A type by TVM's name (`float32`) or that of safetensors (`F32`, `I64`)."""
    by_tvm = dtypes.find_numpy_name(name)
    if by_tvm is not None or not name.isupper():
        return by_tvm
    ours = _SAFETENSORS.get(name, name.lower())  # I64 is i64
    return next((one for one in dtypes.ALL if one.name == ours), None)
