"""Quotients and remainders by sizes that only a call knows are exact for every number."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.lowered import lower
from fakes.native_kernel import NativeKernel, needs_x86, targets_here
from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import Dim, Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Buffer,
    For,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Store,
)
from tilewright.compiler.kernel.rewrite import as_index
from tilewright.compiler.printers.llvm_text.function import emit_kernel

pytestmark = needs_x86

LANES = 8
OUTER, INNER = 3, 23
DIVISORS = (1, 2, 3, 5, 7, 10, 55, 64, 641, 4097, 65535, 2**31 - 1, 2**31, 2**32 - 1)


def numbers() -> np.ndarray:
    """What is near multiples, near ends, and anywhere, below zero and above."""
    generator = np.random.default_rng(0)
    near = [k * d + e for d in DIVISORS for k in (0, 1, 2, 1000) for e in (-1, 0, 1)]
    ends = [2**63 - 1, 2**63 - 2, 2**62, 2**53 + 1, 2**32, 2**32 - 1, 2**31]
    chance = generator.integers(0, 2**63, 200) >> generator.integers(0, 63, 200)
    found = [*near, *ends, *map(int, chance)]
    found += [-n - 1 for n in found]
    return np.array(found[: len(found) // LANES * LANES], np.int64)


def kernel_of(count: int, divisor: Dim, *, lanes: bool) -> Kernel:
    """`q[i] = x[i] // divisor; r[i] = x[i] % divisor`, element by element or in vectors."""
    x, q, r = (Buffer(name, dtypes.i64, (count,)) for name in "xqr")
    size = LANES if lanes else 1
    place = symbol("i") * size + symbol("v")
    number = as_index(Load(x, (place,)))
    body = (
        Store(q, (place,), Index(symbolic.floordiv(number, divisor), dtypes.i64)),
        Store(r, (place,), Index(symbolic.mod(number, divisor), dtypes.i64)),
    )
    kind = LoopKind.VECTOR if lanes else LoopKind.SERIAL
    inner = For(Symbol("v"), size, body, kind)
    parameters = [Parameter(x, AccessMode.READ)]
    parameters += [Parameter(buffer, AccessMode.WRITE) for buffer in (q, r)]
    dims = tuple(sorted(symbolic.symbols(divisor)))
    return Kernel(
        "k", tuple(parameters), dims, (), (For(Symbol("i"), count // size, (inner,)),)
    )


def assert_exact(native: NativeKernel, size: int, dims: dict[str, int]) -> None:
    """Run a kernel and hold its results against Python's integers."""
    given = numbers()
    quotients, remainders = np.empty_like(given), np.empty_like(given)
    native((given, quotients, remainders), dims)
    expected = [divmod(int(n), size) for n in given]
    assert quotients.tolist() == [q for q, _ in expected]
    assert remainders.tolist() == [r for _, r in expected]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("target", targets_here(), ids=str)
@pytest.mark.parametrize("lanes", [False, True])
def test_quotients_of_every_number_by_every_size_are_exact(
    target: Target, lanes: bool
) -> None:
    kernel = kernel_of(len(numbers()), symbol("n", 1), lanes=lanes)
    native = NativeKernel(kernel, target)
    for size in DIVISORS:
        assert_exact(native, size, {"n": size})


@pytest.mark.parametrize("lanes", [False, True])
@pytest.mark.parametrize("sizes", [(2**32 - 1, 2**31 - 1), (65537, 2**31)])
def test_divisors_beyond_32_bits_are_exact(lanes: bool, sizes: tuple[int, int]) -> None:
    kernel = kernel_of(len(numbers()), symbol("m", 1) * symbol("n", 1), lanes=lanes)
    native = NativeKernel(kernel, Target.host())
    assert_exact(native, sizes[0] * sizes[1], dict(zip("mn", sizes, strict=True)))


@pytest.mark.parametrize("lanes", [False, True])
def test_a_size_is_divided_by_once(lanes: bool) -> None:
    target = Target.host()
    kernel = lower(kernel_of(64, symbol("n", 1), lanes=lanes), target)
    entry, loop = emit_kernel(kernel, target).text.split("loop", 1)
    assert entry.count("udiv") == 1
    assert "div" not in loop
    assert "rem" not in loop


def counting_kernel(shift: int) -> Kernel:
    """Three axes of a place that loops count, the two inner ones of open sizes, with what stands in front of them."""
    rows, columns = symbol("n", 1), symbol("m", 1)
    buffers = [Buffer(name, dtypes.i64, (OUTER * INNER,)) for name in "abcd"]
    place = symbol("j") * INNER + symbol("i")
    number = place + shift
    row = symbolic.floordiv(number, columns)
    found = (
        symbolic.mod(number, columns),
        symbolic.mod(row, rows),
        symbolic.floordiv(row, rows),
        symbolic.floordiv(row + symbol("j"), rows),
    )
    body = tuple(
        Store(buffer, (place,), Index(dim, dtypes.i64))
        for buffer, dim in zip(buffers, found, strict=True)
    )
    loop = For(Symbol("j"), OUTER, (For(Symbol("i"), INNER, body),))
    parameters = tuple(Parameter(buffer, AccessMode.WRITE) for buffer in buffers)
    return Kernel("k", parameters, (Symbol("m", 1), Symbol("n", 1)), (), (loop,))


@pytest.mark.parametrize("shift", [0, 5, -7])
def test_places_that_a_loop_counts_are_exact(shift: int) -> None:
    native = NativeKernel(counting_kernel(shift), Target.host())
    outer, inner = (x.ravel() for x in np.indices((OUTER, INNER)))
    number = outer * INNER + inner + shift
    for m in (1, 2, 3, 7, INNER, 1000):
        for n in (1, 2, 5):
            row = number // m
            expected = [number % m, row % n, row // n, (row + outer) // n]
            made = [np.empty(OUTER * INNER, np.int64) for _ in expected]
            native(made, {"m": m, "n": n})
            for one, other in zip(made, expected, strict=True):
                np.testing.assert_array_equal(one, other)


def test_a_loop_that_counts_places_divides_none() -> None:
    target = Target.host()
    kernel = lower(counting_kernel(0), target)
    text = emit_kernel(kernel, target).text
    inside = text.split("\nloop")[-1].partition("\ndone")[0]
    assert inside.count("select") == 3, "a remainder goes on at 0"
    assert not any(word in inside for word in ("div", "rem", "i128"))
