"""Functions of torch whose whole numbers its schemas want to be known, for numbers that calls decide.

`linspace(0, 1, x.shape[1])`, `one_hot(y, n)`, `max_pool1d(x, x.shape[2])`: torch makes a number of such an argument,
which fixes the size.  Each function here gives the same from functions that take sizes, and leaves known numbers to
torch's own.  Called by `traceable`.

Source: the functions' pages in `torch`'s reference.
"""

# ruff: noqa: A002 - the first parameter has the name that torch gives it

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import tilewright.compiler.frontends.torch.border as border
from tilewright.compiler.frontends.torch.decomposed_signals import OWN as SIGNALS
from tilewright.compiler.frontends.torch.decomposed_signals import line
from tilewright.compiler.frontends.torch.decompositions import ones_of_classes

# Torch's tensors and open numbers have no types that we see.
Held = Any


def open_counts() -> dict[Any, Callable[..., Any]]:
    """By what modules call; NotImplemented where all numbers are known."""
    torch = border.load()
    function = torch.nn.functional
    pools = {
        getattr(function, f"{kind}_pool{rank}d"): functools.partial(_pooled, f"{kind}_pool{rank}d", rank)
        for kind in ("avg", "max")
        for rank in (1, 2, 3)
    }  # fmt: skip
    made = {
        **{getattr(torch, name): _by_length(name) for name in _LENGTHS},
        torch.linspace: _line,
        torch.logspace: _powers,
    }
    return {
        **pools,
        **{torchs: _made_anew(build) for torchs, build in made.items()},
        function.one_hot: _ones,
    }


_LENGTHS: Final = (
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window",
)  # fmt: skip


def _is_open(number: Held) -> bool:
    return border.is_instance(number, "SymInt")


def _made_anew(build: Callable[..., Held]) -> Callable[..., Held]:
    """What is written into a tensor that is given is left to torch."""

    def found(*args: Held, out: Held = None, **options: Held) -> Held:
        return build(*args, **options) if out is None else NotImplemented

    return found


def _is_complex(number: Held) -> bool:
    is_tensor = border.is_instance(number, "Tensor")
    return number.is_complex() if is_tensor else isinstance(number, complex)


def _by_length(name: str) -> Callable[..., Held]:
    """A window of as many places as a call decides."""

    def build(window_length: Held, *args: Held, **kwargs: Held) -> Held:
        if not _is_open(window_length):
            return NotImplemented
        return SIGNALS[name](window_length, *args, **kwargs)

    return build


def _ones(tensor: Held, num_classes: Held = -1) -> Held:
    return ones_of_classes(tensor, num_classes) if _is_open(num_classes) else NotImplemented


def _line(
    start: Held, end: Held, steps: Held, *, dtype: Held = None, device: Held = None, **_: Held
) -> Held:  # fmt: skip
    held = _type_of_line(steps, dtype, start, end)
    return NotImplemented if held is None else line(start, end, steps, held, device)


def _powers(
    start: Held, end: Held, steps: Held, base: Held = 10.0, *, dtype: Held = None, device: Held = None, **_: Held
) -> Held:  # fmt: skip
    held = _type_of_line(steps, dtype, start, end, base)
    if held is None:
        return NotImplemented
    return SIGNALS["logspace"](start, end, steps, base, dtype=held, device=device)


def _type_of_line(steps: Held, dtype: Held, *numbers: Held) -> Held:
    """The type of so many places along real numbers; None for what is left to torch."""
    held = dtype or border.load().get_default_dtype()
    is_own = _is_open(steps) and held.is_floating_point
    return held if is_own and not any(map(_is_complex, numbers)) else None


def _pooled(
    name: str, rank: int, input: Held, kernel_size: Held, stride: Held = None, padding: Held = 0, *args: Held,
    **kwargs: Held,
) -> Held:  # fmt: skip
    """Where windows are as large as the picture along axes of open size, the largest or the mean along these."""
    kind = name[:3]
    options = dict(zip(_OPTIONS[kind], args, strict=False)) | kwargs
    windows, borders = _each(kernel_size, rank), _each(padding, rank)
    whole = [axis for axis, n in enumerate(windows) if _is_open(n)]
    is_spread = any(n != 1 for n in _each(options.get("dilation", 1), rank))
    if is_spread or options.get("return_indices") or options.get("divisor_override"):
        return NotImplemented
    if not whole or any(borders[axis] for axis in whole):
        return NotImplemented
    shape = input.shape[-rank:]
    same = border.load("torch.fx.experimental.symbolic_shapes").statically_known_true
    if not all(same(windows[axis] == shape[axis]) for axis in whole):
        return NotImplemented
    axes = [axis - rank for axis in whole]
    reduced = input.amax(axes, True) if kind == "max" else input.mean(axes, True)
    if len(whole) == rank:
        return reduced

    def known(numbers: Held, instead: int) -> tuple[Held, ...]:
        return tuple(
            instead if axis in whole else n for axis, n in enumerate(_each(numbers, rank))
        )

    steps = known(windows if stride is None or stride == [] else stride, 1)
    pool = getattr(border.load().nn.functional, name)
    return pool(reduced, known(windows, 1), steps, known(padding, 0), **options)


_OPTIONS: Final = {
    "avg": ("ceil_mode", "count_include_pad", "divisor_override"),
    "max": ("dilation", "ceil_mode", "return_indices"),
}
"""What else poolings are given, in order."""


def _each(given: Held, rank: int) -> Sequence[Held]:
    """One number for every axis."""
    numbers = tuple(given) if isinstance(given, Sequence) else (given,)
    return numbers * rank if len(numbers) == 1 else numbers
