"""Fourier transforms, against numpy's."""

from collections.abc import Callable

import numpy as np
import pytest

from fakes.stablehlo_text import joined, run
from tilewright.base.errors import ModelError

CHOOSE = np.random.default_rng(5)


def transform(kind: str, length: list[int], x: np.ndarray, result: str) -> np.ndarray:
    part = "f32" if x.dtype in (np.float32, np.complex64) else "f64"
    element = f"complex<{part}>" if x.dtype.kind == "c" else part
    shape = "".join(f"{n}x" for n in x.shape)
    type_ = f"tensor<{shape}{element}>"
    body = (
        f"%r = stablehlo.fft %x, type = {kind}, length = {length} : ({type_}) -> {result}\n"
        f"return %r : {result}"
    )
    found = run(body, f"%x: {type_}", x)
    return found[0] if len(found) == 1 else found[0] + 1j * found[1]


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 1, 6)])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_transforms_are_those_of_numpy(shape: tuple[int, ...], count: int) -> None:
    if count > len(shape):
        return
    axes, length = list(range(-count, 0)), list(shape[-count:])
    z = CHOOSE.normal(size=shape) + 1j * CHOOSE.normal(size=shape)
    type_ = f"tensor<{''.join(f'{n}x' for n in shape)}complex<f64>>"
    for kind, function in (("FFT", np.fft.fftn), ("IFFT", np.fft.ifftn)):
        found = transform(kind, length, z, type_)
        np.testing.assert_allclose(found, function(z, axes=axes), rtol=1e-12, atol=1e-12)
    half = (*shape[:-1], shape[-1] // 2 + 1)
    type_ = f"tensor<{''.join(f'{n}x' for n in half)}complex<f64>>"
    spectrum = np.fft.rfftn(z.real, axes=axes)
    found = transform("RFFT", length, z.real.copy(), type_)
    np.testing.assert_allclose(found, spectrum, rtol=1e-12, atol=1e-12)
    type_ = f"tensor<{''.join(f'{n}x' for n in shape)}f64>"
    found = transform("IRFFT", length, spectrum, type_)
    np.testing.assert_allclose(found, z.real, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "function"),
    [("FFT", np.fft.fftn), ("IFFT", np.fft.ifftn), ("IRFFT", np.fft.irfftn)],
)
@pytest.mark.parametrize("shape", [(1,), (7,), (128,), (6, 70)])
def test_numbers_that_were_real_are_transformed(
    kind: str, function: Callable[..., np.ndarray], shape: tuple[int, ...]
) -> None:
    x = CHOOSE.normal(size=shape)
    last = 2 * (shape[-1] - 1) if kind == "IRFFT" else shape[-1]
    length = [*shape[:-1], last]
    if 0 in length:
        return
    given, result = (
        f"tensor<{'x'.join(map(str, shape))}x",
        f"tensor<{'x'.join(map(str, length))}x",
    )
    element = "f64>" if kind == "IRFFT" else "complex<f64>>"
    body = f"""
    %c = stablehlo.convert %x : ({given}f64>) -> {given}complex<f64>>
    %r = stablehlo.fft %c, type = {kind}, length = {length} : ({given}complex<f64>>) -> {result}{element}
    return %r : {result}{element}"""
    found = run(body, f"%x: {given}f64>", x)
    whole = found[0] if kind == "IRFFT" else joined(*found)
    expected = function(x, length, axes=range(len(length)))
    np.testing.assert_allclose(whole, expected, rtol=1e-12, atol=1e-12)


def test_a_transform_of_nothing_is_nothing() -> None:
    found = transform("RFFT", [4], np.zeros((0, 4), np.float32), "tensor<0x3xcomplex<f32>>")
    assert found.shape == (0, 3)


def test_a_real_transform_of_complex_numbers_is_refused() -> None:
    with pytest.raises(ModelError, match="RFFT makes"):
        transform("RFFT", [4], np.zeros(4, np.complex64), "tensor<3xcomplex<f32>>")
