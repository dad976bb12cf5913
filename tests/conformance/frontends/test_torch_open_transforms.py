"""Fourier transforms, histograms and factors of matrices along axes that calls decide, against torch."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from fakes.torch_programs import module_of, same

torch = pytest.importorskip("torch")
AUTO = torch.export.Dim.AUTO
COLUMNS = ({1: AUTO},)
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


def rows(*lengths: int) -> list[tuple[Any, ...]]:
    return [(torch.randn(3, length),) for length in lengths]


def spectra(x: Any) -> Any:
    """Sums, over the root and over the number; of real and of complex numbers, whole and half."""
    whole, half = torch.fft.fft(x), torch.fft.rfft(x, norm="ortho")
    back = torch.fft.irfft(half, n=x.shape[1], norm="ortho")
    return (
        torch.view_as_real(whole), half.abs(), back, torch.fft.ifft(whole).real, torch.fft.hfft(half, n=x.shape[1]),
        torch.fft.fft(whole, norm="forward").imag, torch.fft.fft(x.T, dim=0).real,
    )  # fmt: skip


def test_transforms_of_open_lengths() -> None:
    same(spectra, rows(8, 7, 2, 5, 30, 64), COLUMNS)


def of_a_line(x: Any) -> Any:
    return torch.view_as_real(torch.fft.rfft(x)), torch.fft.fft(torch.complex(x, x)).abs()


def test_a_line_is_transformed() -> None:
    lines = [(torch.randn(length),) for length in (8, 5, 1, 100)]
    same(of_a_line, lines, ({0: AUTO},))


def of_images(x: Any) -> Any:
    whole = torch.fft.fft2(x)
    return whole.real, torch.fft.ifft2(whole).real, torch.fft.rfft2(x).abs()


def test_images_of_open_sizes_are_transformed() -> None:
    images = [(torch.randn(2, *sides),) for sides in ((6, 8), (5, 4), (2, 9))]
    same(of_images, images, ({1: AUTO, 2: AUTO},))


def real(x: Any) -> Any:
    return torch.fft.rfft(x)


def test_a_compiled_transform_is_right_and_refuses_what_its_matrix_would_not_hold() -> None:
    model = tw.compile(module_of(real), args=rows(8)[0], dynamic_shapes=COLUMNS)
    for (x,) in rows(8, 2, 33, 200):
        torch.testing.assert_close(model(x), torch.fft.rfft(x), rtol=1e-5, atol=1e-5)
        if x.shape[1] % 2 == 0:
            assert not model(x)[:, [0, -1]].imag.any()  # their own conjugates
    with pytest.raises(tw.InputError, match="4096"):
        model(torch.zeros(3, 4097))
    with pytest.raises(tw.InputError):
        model(torch.zeros(3, 0))


def histograms(x: Any, weight: Any) -> Any:
    edges = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    return (
        *torch.histogram(x, 5, range=(-1.0, 1.0)), *torch.histogram(x, 4), x.histogram(edges).hist,
        *torch.histogram(x, 3, weight=weight, density=True), torch.histc(x, 5, -1, 1),
    )  # fmt: skip


@pytest.mark.parametrize("sides", [None, ({0: AUTO}, {0: AUTO})])
def test_histograms_of_open_lines(sides: Any) -> None:
    lengths = (10, 7, 100, 1) if sides else (10,)
    same(histograms, [(torch.randn(n), torch.rand(n)) for n in lengths], sides)


def grid(x: Any) -> Any:
    counts, edges = torch.histogramdd(x, [3, 4])
    given = torch.histogramdd(x, edges, density=True)
    return (
        counts,
        *edges,
        given.hist,
        torch.histogramdd(x, 2, range=[-1.0, 1.0, -2.0, 2.0]).hist,
    )


@pytest.mark.slow
@pytest.mark.parametrize("sides", [None, ({0: AUTO},)])
def test_histograms_of_open_rows(sides: Any) -> None:
    same(grid, [(torch.randn(n, 2),) for n in ((10, 7, 100) if sides else (10,))], sides)


def factors(x: Any) -> Any:
    reflectors = torch.geqrf(x)
    return *torch.linalg.qr(x), *reflectors, torch.linalg.qr(x, mode="r").R


def test_matrices_of_open_sizes_have_factors() -> None:
    """Of more rows than columns, as many and fewer."""
    same(factors, [(torch.randn(n, 4),) for n in (6, 4, 2, 9)], ({0: AUTO},))
    same(factors, [(torch.randn(n, 5, 3),) for n in (4, 2)], ({0: AUTO},))


def reflected(x: Any, y: Any) -> Any:
    reflectors = torch.geqrf(x)
    left = [torch.ormqr(*reflectors, y, transpose=turned) for turned in (False, True)]
    return *left, torch.ormqr(*reflectors, y.mT, left=False)


@pytest.mark.parametrize(("rows", "columns"), [(6, 4), (4, 4), (2, 5), (1, 3)])
def test_matrices_are_multiplied_by_factors_of_tall_and_wide_ones(
    rows: int, columns: int
) -> None:
    """Of those with fewer rows than columns it was refused."""
    same(reflected, [(torch.randn(rows, columns), torch.randn(rows, 3))])
    same(reflected, [(torch.randn(2, rows, columns), torch.randn(2, rows, 2))])


def test_factors_of_tall_square_and_wide_ones_multiply_in_one_artifact() -> None:
    calls = [(torch.randn(n, 4), torch.randn(n, 3)) for n in (6, 4, 2, 1)]
    same(reflected, calls, ({0: AUTO}, {0: AUTO}))
