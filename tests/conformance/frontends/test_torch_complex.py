"""Complex numbers of compiled modules: as arguments, weights and results."""

from __future__ import annotations

import pytest

import tilewright as tw
from tilewright.base.errors import ModelError

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


class Exponential(nn.Module):
    def forward(self, z):
        return torch.exp(z).real


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


def test_functions_without_a_complex_form_are_named() -> None:
    z = torch.randn(3, dtype=torch.complex64)
    with pytest.raises(ModelError, match=r"aten\.exp\.default.*complex"):
        tw.compile(Exponential().eval(), args=(z,))
