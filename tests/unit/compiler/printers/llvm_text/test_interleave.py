"""Long chains of arithmetic side by side: which are computed in turns, and that nothing else changes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fakes.lowered import lower
from fakes.native_kernel import assert_same, needs_x86, targets_here
from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel import expressions
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Body,
    Buffer,
    Expression,
    For,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Statement,
    Store,
)
from tilewright.compiler.printers.llvm_text.function import emit_kernel
from tilewright.compiler.printers.llvm_text.interleave import runs

E = expressions.Expressions
f32 = dtypes.f32
i, u, v = symbol("i"), symbol("u"), symbol("v")
LANES = 8
V3 = Target.level("v3")


def chain(x: Expression) -> Expression:
    """Twelve steps of which each needs the one before."""
    total = x
    for step in range(12):
        total = E.fma(total, x, E.const(0.5 - step / 16, x.dtype, x.lanes))
    return total


def vectors(count: int, *body: Statement) -> For:
    """`body` for every lane of `count` vectors, side by side."""
    inner = For(Symbol("v"), LANES, body, LoopKind.VECTOR)
    return For(Symbol("u"), count, (inner,), LoopKind.UNROLL)


def kernel_of(
    inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...], body: Body
) -> Kernel:
    parameters = [Parameter(b, AccessMode.READ) for b in inputs]
    parameters += [Parameter(b, AccessMode.READ_WRITE) for b in outputs]
    return Kernel("k", tuple(parameters), (), (), body)


def numbers(count: int) -> np.ndarray:
    return np.random.default_rng(count).uniform(-0.9, 0.9, count).astype(np.float32)


def place() -> Dim:
    return i * (4 * LANES) + u * LANES + v


def elementwise(count: int = 4) -> Kernel:
    x, y = Buffer("x", f32, (3 * count * LANES,)), Buffer("y", f32, (3 * count * LANES,))
    at = i * (count * LANES) + u * LANES + v
    body = vectors(count, Store(y, (at,), chain(Load(x, (at,)))))
    return kernel_of((x,), (y,), (For(Symbol("i"), 3, (body,)),))


def in_place_with_sums() -> Kernel:
    """Powers stay where their arguments were, and are added up on the way, as in softmax."""
    x, total = Buffer("x", f32, (12 * LANES,)), Buffer("total", f32, (4 * LANES,))
    at, sums = place(), u * LANES + v
    body = vectors(
        4,
        Store(x, (at,), chain(Load(x, (at,)))),
        Store(total, (sums,), E.add(Load(total, (sums,)), Load(x, (at,)))),
    )
    return kernel_of((), (x, total), (For(Symbol("i"), 3, (body,)),))


def each_from_the_one_before(ahead: int) -> Kernel:
    """A vector is computed from numbers that the vector before may have written."""
    x = Buffer("x", f32, (20 * LANES,))
    at = place()
    return kernel_of(
        (), (x,),
        (For(Symbol("i"), 3, (vectors(4, Store(x, (at + ahead,), chain(Load(x, (at,))))),)),),
    )  # fmt: skip


KERNELS = {
    "elementwise": elementwise(),
    "odd count": elementwise(5),
    "in place, with sums": in_place_with_sums(),
    "from the vector before": each_from_the_one_before(LANES),
    "from lanes that overlap": each_from_the_one_before(LANES + LANES // 2),
}


@pytest.mark.thinned(5)
@needs_x86
@pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("name", KERNELS)
def test_numbers_are_those_of_one_chain_after_the_other(name, target):
    kernel = KERNELS[name]
    arrays = [numbers(int(np.prod(p.buffer.shape))) for p in kernel.parameters]
    assert_same(kernel, arrays, target=target, relative=0.0 if target.has_fma else 1e-5)


def widths(kernel: Kernel, registers: int = 16) -> list[int]:
    """How many chains each run of the innermost loop computes in turns."""
    (loop,) = [s for s in lower(kernel, V3).body if isinstance(s, For)]
    return [len(run.ahead) for run in runs(loop.body, registers)]


def test_as_many_chains_as_registers_hold_are_one_run():
    assert widths(KERNELS["odd count"]) == [3, 2]
    assert widths(KERNELS["odd count"], registers=32) == [5]


def test_a_chain_that_is_left_over_joins_the_ones_before():
    """Alone it would wait for each of its own steps."""
    assert widths(elementwise(4)) == [4]
    assert widths(elementwise(7)) == [3, 4]
    assert widths(elementwise(7), registers=32) == [7]
    assert widths(elementwise(2), registers=8) == [1, 1], "there is room for one"


def test_a_sum_between_two_chains_does_not_part_them():
    assert widths(KERNELS["in place, with sums"]) == [4]


@pytest.mark.parametrize("name", ["from the vector before", "from lanes that overlap"])
def test_a_chain_that_reads_what_a_run_writes_starts_another(name):
    assert widths(KERNELS[name]) == [1, 1, 1, 1]


def test_no_statement_is_lost_or_moved():
    for kernel in KERNELS.values():
        (loop,) = [s for s in lower(kernel, V3).body if isinstance(s, For)]
        again = [s for run in runs(loop.body, 16) for s in run.statements]
        assert all(a is b for a, b in zip(again, loop.body, strict=True))


def test_steps_of_neighbours_alternate_in_the_text():
    text = emit_kernel(lower(KERNELS["elementwise"], V3), V3).text
    kinds = re.findall(r"fma|store <8", text.partition("define")[2])
    first = kinds.index("store <8")
    assert kinds[:first].count("fma") == 4 * 12


def test_short_values_stay_as_they_are():
    x, y = Buffer("x", f32, (4 * LANES,)), Buffer("y", f32, (4 * LANES,))
    at = u * LANES + v
    copies = vectors(4, Store(y, (at,), E.add(Load(x, (at,)), E.const(1.0, f32))))
    body = lower(kernel_of((x,), (y,), (copies,)), V3).body
    assert all(not run.ahead for run in runs(body, 16))
