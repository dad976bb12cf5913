"""Complex numbers of compiled modules: as arguments, weights and results."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tilewright as tw
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.torch import Captured, load
from tilewright.compiler.graph.evaluator import evaluate

torch = pytest.importorskip("torch")
nn = torch.nn
pytestmark = [
    pytest.mark.needs_torch,
    pytest.mark.filterwarnings("ignore"),  # torch's own about its internals
]


class Rotation(nn.Module):
    """Places of a language model as turns of pairs of features."""

    def __init__(self) -> None:
        super().__init__()
        angles = torch.outer(torch.arange(7.0), 100.0 ** -torch.arange(0, 1, 0.25))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x):
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[: x.shape[1]]).flatten(-2)


class Filter(nn.Module):
    def forward(self, spectrum, x):
        found = torch.fft.rfft(x) * spectrum
        return found.conj(), torch.fft.irfft(found, n=x.shape[-1]), found.abs()


class LargestOfAll(nn.Module):
    def forward(self, z):
        return z.max().real


class Arithmetic(nn.Module):
    """Tensors and numbers, real and complex, on either side."""

    def forward(self, z, w, x):
        sums = (z + 1, 1 - z, z - x, w + 2j, z * 1j, z * w, z * x)
        quotients = (z / w, z / 2, 1 / w, z / (2 - 3j), w.reciprocal())
        joined = (torch.cat([z, x], -1), torch.stack([z, w], 1))
        products = (z @ w.transpose(-1, -2), torch.bmm(z, w.transpose(-1, -2)))
        return *sums, *quotients, *joined, *products, torch.exp(z * 0.1)


def test_turns_that_are_weights_are_two_constants() -> None:
    module, x = Rotation().eval(), torch.randn(2, 5, 8)
    model = tw.compile(module, args=(x,))
    torch.testing.assert_close(model(x), module(x))


def test_complex_tensors_go_in_and_come_out() -> None:
    module = Filter().eval()
    spectrum, x = torch.randn(5, dtype=torch.complex64), torch.randn(3, 9)
    model = tw.compile(module, args=(spectrum, x))
    for ours, theirs in zip(model(spectrum, x), module(spectrum, x), strict=True):
        torch.testing.assert_close(ours, theirs.resolve_conj())
    arrays = model(spectrum.numpy(), x.numpy())
    assert arrays[0].dtype == "complex64"


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 1, 1), (2, 0, 3)])
def test_arithmetic_of_complex_numbers_is_what_torch_says(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    z, w = (torch.randn(shape, dtype=torch.complex64) for _ in range(2))
    x = torch.randn(shape)
    module = Arithmetic().eval()
    graph = load(Captured(module, args=(z, w, x))).graph
    given = [part for t in (z, w) for part in (t.real.numpy(), t.imag.numpy())]
    found = iter(evaluate(graph, [*given, x.numpy()]))
    for theirs in module(z, w, x):
        ours = torch.complex(*(torch.from_numpy(next(found)) for _ in range(2)))
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_quotients_of_very_large_and_very_small_numbers_are_finite() -> None:
    class Quotient(nn.Module):
        def forward(self, z, w):
            return z / w

    z = torch.tensor([1e30 + 1e30j, 1e-30 - 2e-30j], dtype=torch.complex64)
    graph = load(Captured(Quotient().eval(), args=(z, z))).graph
    real, imaginary = evaluate(graph, [part.numpy() for part in (z.real, z.imag) * 2])
    assert real.tolist() == [1, 1]
    assert imaginary.tolist() == [0, 0]


class Edges(nn.Module):
    def forward(self, z, w):
        return z / w, torch.exp(z), torch.reciprocal(w), z.abs()


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_edges_of_complex_numbers_are_those_of_torch(dtype: torch.dtype) -> None:
    inf, nan = float("inf"), float("nan")
    parts = (0.0, -0.0, 1.0, -2.5, 1000.0, -1000.0, inf, -inf, nan)
    numbers = torch.tensor([complex(a, b) for a in parts for b in parts], dtype=dtype)
    z, w = (t.flatten() for t in torch.meshgrid(numbers, numbers, indexing="ij"))
    module = Edges().eval()
    graph = load(Captured(module, args=(z, w))).graph
    found = iter(
        evaluate(graph, [part.numpy() for t in (z, w) for part in (t.real, t.imag)])
    )
    for theirs in module(z, w):
        for part in (theirs.real, theirs.imag) if theirs.is_complex() else (theirs,):
            ours = torch.from_numpy(next(found))
            torch.testing.assert_close(ours, part, equal_nan=True, rtol=1e-5, atol=1e-7)


def test_functions_without_a_complex_form_are_named() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    with pytest.raises(ModelError, match=r"aten\.max\.default.*complex"):
        tw.compile(LargestOfAll().eval(), args=(z,))


class Spectral(nn.Module):
    """A layer of a Fourier neural operator: low frequencies are written into a spectrum of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, 5, 4, dtype=torch.complex64))

    def forward(self, x):
        spectrum = torch.fft.rfft2(x)
        size = (x.shape[0], 4, x.shape[2], x.shape[3] // 2 + 1)
        found = torch.zeros(size, dtype=torch.complex64)
        low = torch.einsum("bixy,ioxy->boxy", spectrum[:, :, :5, :4], self.weight)
        found[:, :, :5, :4] = low
        found[:, 0, 5] = x[:, 0, 5, : size[3]]
        found[:, :, torch.tensor([8, 7])] = found[:, :, torch.tensor([0, 2])]
        return torch.fft.irfft2(found, s=x.shape[-2:])


@pytest.mark.parametrize("batch", [2, 3])
def test_a_spectrum_of_zeros_is_filled(batch: int) -> None:
    torch.manual_seed(0)
    module = Spectral().eval()
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    graph = load(Captured(module, args=(torch.randn(2, 3, 12, 9),), dynamic_shapes=shapes))
    x = torch.randn(batch, 3, 12, 9)
    (found,) = evaluate(graph.graph, [x.numpy()])
    torch.testing.assert_close(torch.from_numpy(found), module(x), rtol=1e-5, atol=1e-5)


class Parts(nn.Module):
    def forward(self, z):
        chosen = torch.where(z.real > 0, z, torch.full_like(z, 2 - 1j))
        return (
            torch.angle(z),
            torch.view_as_real(chosen),
            torch.angle(torch.ones_like(z) * z),
        )


@pytest.mark.parametrize("shape", [(2, 5), (1,), (0, 3)])
def test_angles_and_choices_of_complex_numbers(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    z = torch.randn(shape, dtype=torch.complex64)
    if z.numel() > 4:
        edges = (-0.0, complex("inf"), complex("nan"), complex(-1, -0.0))
        z.view(-1)[:4] = torch.tensor(edges)
    graph = load(Captured(Parts().eval(), args=(z,))).graph
    found = evaluate(graph, [z.real.numpy(), z.imag.numpy()])
    for ours, theirs in zip(found, Parts()(z), strict=True):
        torch.testing.assert_close(torch.from_numpy(ours), theirs, equal_nan=True)


class Moved(nn.Module):
    """What moves elements moves both parts."""

    def forward(self, z: Any, x: Any) -> Any:
        turned = z.mT, z.mH, z.adjoint(), z.swapaxes(0, 1), z.movedim(0, -1)
        parts = *z.chunk(2, 1), *z.tensor_split(2, 2), z.tril(), z.tile(2, 1, 1), z.ravel()
        joined = torch.concat([z, x], 1), torch.concatenate([x, z], 1)
        added = z[0].index_add(0, torch.tensor([1, 1]), z[1, :2]), z.cumsum(1)
        return (
            *turned,
            *parts,
            *joined,
            *added,
            z.unflatten(2, (2, 2)),
            z.take(torch.tensor([3, -1])),
        )


def test_what_is_moved_and_turned_keeps_both_parts() -> None:
    z, x = torch.randn(2, 3, 4, dtype=torch.complex64), torch.randn(2, 3, 4)
    module = Moved().eval()
    graph = load(Captured(module, args=(z, x))).graph
    given = [z.real, z.imag, x]
    found = iter(evaluate(graph, [part.contiguous().numpy() for part in given]))
    for theirs in module(z, x):
        for part in (theirs.real, theirs.imag):
            torch.testing.assert_close(torch.from_numpy(next(found)), part)


class Turning(nn.Module):
    """Complex numbers as an argument, a buffer and results, one of them a view."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(4), torch.arange(4.0)))

    def forward(self, z: Any) -> Any:
        found = z * self.turns
        return found, found.t(), z.conj(), found.abs(), torch.view_as_real(found)


def test_graphs_of_torch_take_and_give_complex_numbers() -> None:
    module = Turning().eval()
    compiled = torch.compile(module, backend="tilewright")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*run in eager mode.*")
        for rows in (3, 5):
            z = torch.randn(rows, 4, dtype=torch.complex64)
            for found, wanted in zip(compiled(z), module(z), strict=True):
                torch.testing.assert_close(found, wanted)
                assert found.stride() == wanted.stride()


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 3)])
def test_complex_results_may_have_no_elements(shape: tuple[int, ...]) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(lambda z: z * 2, backend="tilewright")
    for dtype in (torch.complex64, torch.complex128):
        z = torch.zeros(shape, dtype=dtype)
        with torch.no_grad():
            torch.testing.assert_close(compiled(z), z)
