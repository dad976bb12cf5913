"""Windows and frequencies of signals, taken apart into numbers of a row.

Written in operators that have rows; they run under torch's tracing.  Called by `decompositions`.

Source: `torch.signal.windows`, `torch.fft`, reference pages.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border

# Torch's tensors have no types that we see.
Held = Any


def _torch() -> Any:
    return border.load()


def _in_type(numbers: Held, dtype: Held) -> Held:
    return numbers.to(dtype or _torch().get_default_dtype())


def _steps(length: Held, *, periodic: bool) -> Held:
    """Places from 0 to 1, which is one place more where a window is periodic."""
    places = _torch().arange(length, dtype=_torch().float64)
    # A window of one place has no last one that is another.
    return places / _torch().sym_max(length if periodic else length - 1, 1)


def _window(found: Held, length: Held, dtype: Held) -> Held:
    """The numbers of a window in its type: one place alone is 1, whatever the window, and a call may decide that it is."""
    torch = _torch()
    if not isinstance(length, int):
        found = torch.where(torch.scalar_tensor(length, dtype=torch.int64) == 1, 1.0, found)
    elif length == 1:
        found = torch.ones_like(found)
    return _in_type(found, dtype)


def _cosines(length: Held, periodic: bool, factors: tuple[float, ...], dtype: Held) -> Held:
    angle = _steps(length, periodic=periodic) * (2 * math.pi)
    found = factors[0] - factors[1] * angle.cos()
    if len(factors) > 2:
        found = found + factors[2] * (2 * angle).cos()
    return _window(found, length, dtype)


def _hann(
    window_length: Held, periodic: bool = True, *, dtype: Held = None, **_: Held
) -> Held:
    return _cosines(window_length, periodic, (0.5, 0.5), dtype)


def _hamming(
    window_length: Held, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: Held = None, **_: Held,
) -> Held:  # fmt: skip
    return _cosines(window_length, periodic, (alpha, beta), dtype)


def _blackman(
    window_length: Held, periodic: bool = True, *, dtype: Held = None, **_: Held
) -> Held:
    return _cosines(window_length, periodic, (0.42, 0.5, 0.08), dtype)


def _bartlett(
    window_length: Held, periodic: bool = True, *, dtype: Held = None, **_: Held
) -> Held:
    place = _steps(window_length, periodic=periodic)
    return _window(1 - (2 * place - 1).abs(), window_length, dtype)


def _kaiser(
    window_length: Held, periodic: bool = True, beta: float = 12.0, *,
    dtype: Held = None, **_: Held,
) -> Held:  # fmt: skip
    torch = _torch()
    place = 2 * _steps(window_length, periodic=periodic) - 1
    at_middle = torch.special.i0(torch.full((), beta, dtype=torch.float64))
    inside = (1 - place * place).clamp(min=0).sqrt()
    return _window(torch.special.i0(beta * inside) / at_middle, window_length, dtype)


def _frequencies(n: int, d: float = 1.0, *, dtype: Held = None, **_: Held) -> Held:
    torch = _torch()
    place = torch.arange(n)
    place = torch.where(place < (n + 1) // 2, place, place - n)
    return _in_type(place.to(torch.float64) / (n * d), dtype)


def _half_of_frequencies(n: int, d: float = 1.0, *, dtype: Held = None, **_: Held) -> Held:
    places = _torch().arange(n // 2 + 1, dtype=_torch().float64)
    return _in_type(places / (n * d), dtype)


def _overloads(
    name: str, build: Callable[..., Any], *more: str
) -> dict[str, Callable[..., Any]]:
    return dict.fromkeys((name, *(f"{name}.{overload}" for overload in more)), build)


def line(start: Held, end: Held, steps: Held, dtype: Held, device: Held = None) -> Held:
    """Both halves are counted from their ends, as torch does, so that both ends are exact."""
    torch = _torch()
    places = torch.arange(steps, device=device)
    gap = (end - start) / torch.sym_max(steps - 1, 1)
    low, high = start + gap * places.to(dtype), end - gap * (steps - 1 - places).to(dtype)
    # Of one place there is the first.
    return torch.where(places < torch.sym_max(steps // 2, 1), low, high).to(dtype)


def _powers(
    start: Held, end: Held, steps: Held, base: Held = 10.0, *, dtype: Held = None, layout: Held = None,
    device: Held = None, pin_memory: Held = None,
) -> Held:  # fmt: skip
    """Powers of a base between two exponents; for halves torch rounds these, and how far they are apart."""
    del pin_memory
    torch = _torch()
    is_half, is_known = dtype in (torch.float16, torch.bfloat16), isinstance(steps, int)
    if is_known and (steps == 1 or not is_half):
        reference = border.load("torch._refs").logspace
        options = {"dtype": dtype, "layout": layout or torch.strided, "device": device}
        return reference(start, end, steps, base, **options)
    if not is_half:
        return _in_type(
            torch.pow(base, line(start, end, steps, torch.float64, device)), dtype
        )

    def number(given: Held, held: Held) -> Held:
        is_tensor = border.is_instance(given, "Tensor")
        made = given.to(held) if is_tensor else torch.full((), given, dtype=held)
        return made.float()

    first, last = number(start, dtype), number(end, dtype)
    gap = (last - first).to(dtype).float() / torch.sym_max(steps - 1, 1)
    places = torch.arange(steps)
    low, high = first + gap * places, last - gap * (steps - 1 - places)
    exponents = torch.where(places < torch.sym_max(steps // 2, 1), low, high)
    return torch.pow(number(base, torch.float32), exponents).to(dtype)


OWN: Final[dict[str, Callable[..., Any]]] = {
    **_overloads("bartlett_window", _bartlett, "periodic"),
    **_overloads("blackman_window", _blackman, "periodic"),
    **_overloads("fft_fftfreq", _frequencies),
    **_overloads("fft_rfftfreq", _half_of_frequencies),
    **_overloads(
        "hamming_window", _hamming, "periodic", "periodic_alpha", "periodic_alpha_beta"
    ),
    **_overloads("hann_window", _hann, "periodic"),
    **_overloads("logspace", _powers, "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    **_overloads("kaiser_window", _kaiser, "periodic", "beta"),
}
"""By the names of overloads."""
