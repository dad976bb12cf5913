"""What users pass as tensors, seen as numpy arrays: DLPack, buffers, lists, tensors of torch.

Memory on the host is shared, not copied.  Not how arrays reach the C core (`tensors`).  Called by sessions
and by the interfaces above them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InputError
from tilewright.base.foreign_tensors import refuse_mask, unmasked, without_marks
from tilewright.base.text import did_you_mean, printable
from tilewright.runtime.plan_executor.tensors import Array


def as_array(value: object) -> Array:
    """A numpy view of `value` without a copy where its memory is on the host.

    Raises: InputError for what is neither an array nor convertible to one, and for elements below a mask.
    """
    if isinstance(value, np.ndarray):
        refuse_mask(value)
        return cast("Array", value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(without_marks(value))  # pyright: ignore[reportArgumentType]
        except Exception:  # whatever its owner raises
            # Not for numpy, or no tensor at all: a capsule that was taken before, say.
            bits = _through_bits(value)  # read-only, or a type that DLPack or numpy lacks
            if bits is not None:
                return bits
    try:
        array = unmasked(value)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # whatever its `__array__` raises
        is_list = isinstance(value, list | tuple)  # whose rows differ
        reason = "" if is_list else printable(str(error).partition("\n")[0].rstrip("."))
        raise InputError(
            f"got {type(value).__name__}, expected an array{reason and f' ({reason})'}"
        ) from error
    if array.dtype.kind in "OSUMm":  # objects, texts, times
        raise InputError(f"got {type(value).__name__}, expected an array")
    return array


def arrange(
    names: Sequence[str],
    arguments: Sequence[object],
    named: Mapping[str, object] | None = None,
) -> list[Array]:
    """What is given by position, and the rest by name, as arrays in the order of the inputs.

    Raises: InputError naming the input that is given twice, unknown, missing or no array.  How many
    there must be without names is for the executor to say.
    """
    values = list(arguments)
    if named is not None:
        rest = names[len(arguments) :]
        twice = [name for name in names[: len(arguments)] if name in named]
        if twice:
            raise InputError(f"input '{twice[0]}' is given by position and by name")
        unknown = sorted(map(str, set(named) - set(rest)))
        if unknown:
            raise InputError(
                f"there is no {'further ' if arguments else ''}input '{unknown[0]}'",
                hint=did_you_mean(unknown[0], names) or f"inputs: {', '.join(names)}",
            )
        missing = [name for name in rest if name not in named]
        if missing:
            raise InputError(f"inputs {missing} are missing")
        values += [named[name] for name in rest]
    return [_named_array(names, index, value) for index, value in enumerate(values)]


def _named_array(names: Sequence[str], index: int, value: object) -> Array:
    """`as_array`, where errors say which input they are about."""
    try:
        return as_array(value)
    except InputError as error:
        name = f"'{names[index]}'" if index < len(names) else str(index)
        raise InputError(
            error.message, location=f"input {name}", hint=error.hint
        ) from error


# Types that torch has and numpy's DLPack lacks: the integers they travel as, by torch's method.
_BITS_OF: Final[Mapping[str, tuple[str, DType]]] = {
    "bfloat16": ("short", dtypes.bf16),
    "float8_e4m3fn": ("char", dtypes.f8e4m3fn),
    "float8_e5m2": ("char", dtypes.f8e5m2),
    "float8_e4m3fnuz": ("char", dtypes.f8e4m3fnuz),
    "float8_e5m2fnuz": ("char", dtypes.f8e5m2fnuz),
    "float8_e8m0fnu": ("char", dtypes.f8e8m0fnu),
}


def _through_bits(value: object) -> Array | None:
    """A torch tensor of a type that numpy does not know, seen as integers on the way."""
    name = str(getattr(value, "dtype", "")).rpartition(".")[2]
    if name not in _BITS_OF or not hasattr(value, "new_empty"):
        return None  # arrays of JAX, say, give numpy their memory by themselves
    method, dtype = _BITS_OF[name]
    tensor = cast("Any", without_marks(value))
    integers = tensor.view(getattr(tensor.new_empty(0), method)().dtype)
    return np.from_dlpack(integers).view(dtype.numpy)
