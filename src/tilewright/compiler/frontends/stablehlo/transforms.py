"""Rows for Fourier transforms.

Source: StableHLO specification, "fft".
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit import fourier
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.assumed_sizes import assumed_equal
from tilewright.compiler.frontends.stablehlo.call import Call, part_of, real
from tilewright.compiler.frontends.stablehlo.demands import (
    elements,
    kind_of,
    takes,
    tensor_of,
)
from tilewright.compiler.frontends.stablehlo.held import Complex, Held, dims_of
from tilewright.compiler.frontends.stablehlo.row import Row, row

MAX_RANK: Final = 3


def _fft(call: Call) -> Held:
    kind, length = call.keyword("fft_type"), call.integers("fft_length")
    held = call.held(0)
    sizes = dims_of(held)
    if not 1 <= len(length) <= min(MAX_RANK, len(sizes)):
        raise ModelError(f"a transform of {len(length)} dimensions does not fit {sizes}")
    if call.is_empty:
        return _nothing(call, kind)
    if 0 in (*sizes, *length):
        raise ModelError(f"a transform of {list(sizes)} gives no elements")
    e, dtype = call.maker, call.dtype()
    before = (*length[:-1], length[-1] // 2 + 1 if kind == "IRFFT" else length[-1])
    pairs = zip(sizes[-len(length) :], before, strict=True)
    if not all(assumed_equal(e, *pair) for pair in pairs):
        raise ModelError(f"lengths {list(length)} do not fit {list(sizes)}")
    last = length[-1] // 2 + 1 if kind == "RFFT" else length[-1]
    shape = (*sizes[: -len(length)], *length[:-1], last)
    parts = _transformed(call, held, kind, length)
    found = [e.reshape(e.cast(x, dtype), shape) for x in parts]
    return found[0] if kind == "IRFFT" else Complex(*found)


def _nothing(call: Call, kind: str) -> Held:
    zero = call.maker.full(0, call.dtype(), call.shape())
    return zero if kind == "IRFFT" else Complex(zero, zero)


def _transformed(
    call: Call, held: Held, kind: str, length: tuple[int, ...]
) -> list[Tensor]:
    """Axis by axis, in f64; the one of real numbers is the first of a transform, the last of an inverse."""
    e = call.maker
    x, y = (held.real, held.imaginary) if isinstance(held, Complex) else (real(held), None)
    y = None if y is not None and _is_zero(y) else y
    re, im = e.cast(x, dtypes.f64), None if y is None else e.cast(y, dtypes.f64)
    last, sign = x.rank - 1, 1 if kind in ("IFFT", "IRFFT") else -1
    plain = list(enumerate(length, x.rank - len(length)))
    if kind in ("RFFT", "IRFFT"):
        plain.pop()
    size = length[-1]
    if kind == "RFFT":
        re, im = fourier.of_real(e, re, last, size, size // 2 + 1)
    for axis, n in plain:
        if im is None and sign < 0:
            re, im = fourier.of_real(e, re, axis, n, n)
        else:
            scale = 1 / n if sign > 0 else 1.0
            re, im = fourier.transform(e, (re, im), axis, n, sign, scale)
    im = e.full(0, re.dtype, re.shape) if im is None else im
    if kind == "IRFFT":
        return [fourier.to_real(e, (re, im), last, size, 1 / size)]
    return [re, im]


def _is_zero(x: Tensor) -> bool:
    """Whether all elements are known to be 0, as the imaginary parts of what was real before."""
    return x.array is not None and not np.any(x.array)


_ELEMENTS: Final = {"FFT": "cc", "IFFT": "cc", "IRFFT": "cf", "RFFT": "fc"}


def _types_fit(call: Call) -> None:
    """Complex numbers, or real ones on the side that the transform says, of one precision."""
    values = (call.operation.operands[0], call.operation.results[0])
    found = [tensor_of(value.type, "a value").element for value in values]
    kind = call.keyword("fft_type")
    kinds, parts = "".join(map(kind_of, found)), {str(part_of(each)) for each in found}
    if kind not in _ELEMENTS:
        raise ModelError(f"transform '{kind}' is unknown")
    if kinds != _ELEMENTS[kind] or len(parts) > 1:
        raise ModelError(f"{kind} makes {found[1]} of {found[0]}")


ROWS: Final[tuple[Row, ...]] = (
    row("fft", _fft, demands=(takes(1), elements("fc"), _types_fit)),
)
