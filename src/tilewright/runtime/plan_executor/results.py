"""The arrays that calls return: large ones lie in blocks of the device's heap.

An array of the C library of that size is pages fresh from the system, zeroed when each is first touched and given
back with the array; a decoder that returns its caches spends a tenth of a call or more on that.  Blocks of the heap
that nobody holds any more hold the results of later calls.  Called by executors, `flow` and bindings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np

from tilewright.base.errors import InputError
from tilewright.base.foreign_tensors import masked_arrays
from tilewright.base.separate_arrays import check_apart
from tilewright.base.status import StatusCode, failure
from tilewright.runtime import native
from tilewright.runtime.plan_executor.tensors import (
    Array,
    TensorType,
    describe,
    describe_array,
)

LEAST_BLOCK_BYTES: Final = 128 << 10
"""Smaller arrays stay in the C library's own heap, which does not give them back to the system."""


def result_array(
    heap: native.Heap | None, shape: Sequence[int], dtype: np.dtype[np.generic]
) -> Array:
    """A dense array with undefined contents that nobody else sees.

    It holds its block, as does every view of it; the block goes back with the last of them.  A heap with a cap
    gives none: its caller counts outputs only until the call returns.

    Raises: DeviceError (RESOURCE_EXHAUSTED) for more than the heap or the system has.
    """
    size_bytes = math.prod(shape) * dtype.itemsize
    capacity_bytes = None if heap is None else heap.capacity_bytes
    if heap is None or size_bytes < LEAST_BLOCK_BYTES:
        return _array(shape, dtype)
    if capacity_bytes is not None and size_bytes <= capacity_bytes:
        return _array(shape, dtype)
    block = heap.lease(size_bytes, native.MemoryUse.TRANSIENT)
    return cast("Array", np.ndarray(shape, dtype, memoryview(block)))


def result_for(
    heap: native.Heap | None, type_: TensorType, given: Array | None, name: str
) -> Array:
    """The array that takes an output: the caller's, or a fresh one, as `result_array` makes it.

    Raises: InputError for a given one of another type, another layout, or memory that is not for writing; DeviceError
    (RESOURCE_EXHAUSTED) for more than the heap or the system has.
    """
    dtype, shape = type_
    if given is None:
        return result_array(heap, shape, dtype.numpy)
    _check_fits(given, type_, name)
    return given


def check_places(
    names: Sequence[str],
    types: Sequence[TensorType | None],
    places: Sequence[Array | None],
) -> None:
    """Refuse arrays that do not take the outputs, as far as their types are known.

    Raises: InputError for one that does not fit, before one that another output is written to.
    """
    for name, type_, place in zip(names, types, places, strict=True):
        if type_ is not None and place is not None:
            _check_fits(place, type_, name)
    check_apart(names, places)


def places_of(outputs: object, names: Sequence[str]) -> list[Array | None]:
    """The arrays that results are written to, in order.  Raises: InputError."""
    if not isinstance(outputs, Mapping):
        raise InputError(
            f"got {type(outputs).__name__} for outputs, expected a mapping from names to arrays"
        )
    given = cast("Mapping[object, object]", outputs)
    for name, array in given.items():
        if name not in names:
            known = ", ".join(names) or "none"
            raise InputError(f"got output '{name}', expected some of: {known}")
        if not _takes_results(array):
            raise InputError(
                f"got {type(array).__name__}, expected an array of numpy to write to",
                location=f"output '{name}'",
            )
    return [cast("Array | None", given.get(name)) for name in names]


def _takes_results(array: object) -> bool:
    """Whether it is nothing or an array of numpy, whose mask, if it had one, would hide what is written."""
    if array is None or type(array) is np.ndarray:
        return True
    return isinstance(array, np.ndarray) and not isinstance(array, masked_arrays())


def _array(shape: Sequence[int], dtype: np.dtype[np.generic]) -> Array:
    """One of numpy's own, which refuses some shapes of no elements, too."""
    try:
        return np.empty(shape, dtype)
    except (ValueError, MemoryError) as error:
        raise failure(
            StatusCode.RESOURCE_EXHAUSTED,
            f"no memory for a result of shape {list(shape)}: {error}",
            hint="look at the inputs that decide its size",
        ) from error


def _check_fits(array: Array, type_: TensorType, name: str) -> None:
    """Refuse an array that cannot take an output.  Raises: InputError."""
    dtype, shape = type_
    wanted = describe(dtype, shape)
    if array.dtype != dtype.numpy or array.shape != shape:
        problem = f"got {describe_array(array)}, expected {wanted}"
        raise InputError(problem, location=f"output '{name}'")
    if not array.flags.c_contiguous or not array.flags.writeable:
        problem = f"expected a dense array of {wanted} in row-major order, for writing"
        raise InputError(problem, location=f"output '{name}'")
