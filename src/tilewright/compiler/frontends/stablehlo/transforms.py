"""Rows for Fourier transforms.

Source: StableHLO specification, "fft".
"""

from __future__ import annotations

from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.call import Call, real
from tilewright.compiler.frontends.stablehlo.held import Complex, Held, shape_of
from tilewright.compiler.frontends.stablehlo.row import Row, row

_KINDS: Final = ("FFT", "IFFT", "RFFT", "IRFFT")
MAX_RANK: Final = 3


def _fft(call: Call) -> Held:
    kind, length = call.keyword("fft_type"), call.integers("fft_length")
    held = call.held(0)
    if kind not in _KINDS:
        raise ModelError(f"transform '{kind}' is unknown")
    sizes = shape_of(held)
    if not 1 <= len(length) <= min(MAX_RANK, len(sizes)):
        raise ModelError(f"a transform of {len(length)} dimensions does not fit {sizes}")
    if isinstance(held, Complex) == (kind == "RFFT"):
        raise ModelError(f"operand of {kind} is of the wrong element type")
    if 0 in (*sizes, *call.shape()):
        return _nothing(call, kind)
    found = _transformed(call, _parts(call, held), kind, length)
    return _of_parts(call, found, kind)


def _nothing(call: Call, kind: str) -> Held:
    zero = call.maker.full(0, call.dtype(), call.shape())
    return zero if kind == "IRFFT" else Complex(zero, zero)


def _parts(call: Call, held: Held) -> Tensor:
    """In f64, the parts side by side on one more axis; of real numbers, one part."""
    e = call.maker
    given = [held.real, held.imaginary] if isinstance(held, Complex) else [real(held)]
    wide = [e.unsqueeze(e.cast(x, dtypes.f64), (x.rank,)) for x in given]
    return e.concat(wide, wide[0].rank - 1)


def _transformed(call: Call, x: Tensor, kind: str, length: tuple[int, ...]) -> Tensor:
    """Axis by axis; the one of real numbers is the first of a transform, the last of an inverse."""
    e, last = call.maker, x.rank - 2
    inverse = kind in ("IFFT", "IRFFT")
    plain = [last - len(length) + 1 + i for i in range(len(length))]
    if kind in ("RFFT", "IRFFT"):
        plain.pop()
    if kind == "RFFT":
        x = e.op("dft", x, axis=last, length=(length[-1],), onesided=True)
    for axis in plain:
        x = e.op("dft", x, axis=axis, length=(), inverse=inverse)
    if kind == "IRFFT":
        size = length[-1]
        x = e.op("dft", x, axis=last, length=(size,), onesided=True, inverse=True)
    return x


def _of_parts(call: Call, x: Tensor, kind: str) -> Held:
    e, last = call.maker, x.rank - 1
    found = [
        e.cast(e.squeeze(e.slice(x, last, i, 1), (last,)), call.dtype())
        for i in range(1 if kind == "IRFFT" else 2)
    ]
    return found[0] if kind == "IRFFT" else Complex(*found)


ROWS: Final[tuple[Row, ...]] = (row("fft", _fft),)
