"""Ranges of buffers as numpy arrays, checked before they are made.

Offsets and strides count elements, as in the module's signatures.  Called by the rows of the
`vmvx` module.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tilewright.base.budget import CURRENT
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.vm.buffer import VmBuffer

Array = npt.NDArray[Any]
_ELEMENTS_PER_STEP: Final = 16
_PIECE_ELEMENTS: Final = 1 << 20


def read_span(
    buffer: VmBuffer,
    dtype: np.dtype[Any],
    offset: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    *,
    distinct: bool = False,
) -> Array:
    """A view to read from; strides may be 0 unless the elements are to be `distinct`.

    Raises: DeviceError when the range leaves the buffer or a number is negative.
    """
    start, length = _bytes(dtype, offset, sizes, strides, distinct=distinct)
    return _view(buffer.range(start, length), dtype, sizes, strides)


def write_span(
    buffer: VmBuffer,
    dtype: np.dtype[Any],
    offset: int,
    sizes: Sequence[int],
    strides: Sequence[int],
) -> Array:
    """A view to write to.

    Raises: DeviceError when the range leaves the buffer, a number is negative, the buffer is
    read-only, or there are more elements than places: that bounds the work by the buffer's size.
    """
    start, length = _bytes(dtype, offset, sizes, strides, distinct=True)
    return _view(buffer.writable(start, length), dtype, sizes, strides)


def _bytes(
    dtype: np.dtype[Any],
    offset: int,
    sizes: Sequence[int],
    strides: Sequence[int],
    *,
    distinct: bool,
) -> tuple[int, int]:
    """First byte and length of a range."""
    if offset < 0 or min(sizes) < 0 or min(strides) < 0:
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            f"offset {offset}, sizes {tuple(sizes)}, strides {tuple(strides)}: "
            "expected no negative numbers",
        )
    if 0 in sizes:
        return 0, 0
    last = sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if distinct and prod(sizes) > last + 1:
        raise failure(
            StatusCode.INVALID_ARGUMENT,
            f"sizes {tuple(sizes)} with strides {tuple(strides)} name elements twice",
        )
    return offset * dtype.itemsize, (last + 1) * dtype.itemsize


def charge(elements: int) -> None:
    """Work on so many elements, for kernels that are not trusted.  Raises: LimitError."""
    account = CURRENT.account
    if account is not None:
        account.spend(1 + elements // _ELEMENTS_PER_STEP)
        account.check_clock()


def pieces(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """A whole matrix; for kernels that are not trusted in pieces that are charged one by one.

    Raises: LimitError.
    """
    if CURRENT.account is None:
        yield slice(None), slice(None)
        return
    width = min(columns, _PIECE_ELEMENTS)
    height = _PIECE_ELEMENTS // max(1, width)
    for row in range(0, rows, height):
        for column in range(0, columns, max(1, width)):
            charge(min(height, rows - row) * min(width, columns - column))
            yield slice(row, row + height), slice(column, column + width)


@contextmanager
def temporary(elements: int, dtype: np.dtype[Any]) -> Generator[None]:
    """Memory for arrays on the way to a result, for the same.  Raises: LimitError."""
    account = CURRENT.account
    if account is None:
        yield
        return
    with account.budget.transient(elements * dtype.itemsize):
        yield


def _view(
    data: memoryview, dtype: np.dtype[Any], sizes: Sequence[int], strides: Sequence[int]
) -> Array:
    if not data.nbytes:
        return np.empty([min(n, 1) if 0 in sizes else n for n in sizes], dtype)
    return np.ndarray(
        tuple(sizes), dtype, data, 0, tuple(stride * dtype.itemsize for stride in strides)
    )
