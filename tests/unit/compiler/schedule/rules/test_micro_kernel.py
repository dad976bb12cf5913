"""Tiles of sums of bytes: what they begin with, what is written out, and what follows them."""

from __future__ import annotations

import pytest

from fakes.contractions import convolution as packed_convolution
from fakes.contractions import product as packed_product
from fakes.loop_nests import assert_same, body_text, emit
from tilewright.base.dtypes import f32, i32
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, LoopKind
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

V4, V3 = (MachineModel.of(Target.level(name)) for name in ("v4", "v3"))
M = symbol("M", 1)


def biased_product(rows: Dim, columns: int, op: str = "add", steps: int = 0) -> Kernel:
    """Bytes in words, a bias of integers, and so many additions of floats behind it."""
    b = KernelBuilder("biased")
    a, w = (
        b.parameter("a", i32, (rows, 3)),
        b.parameter("w", i32, (-(-columns // 32), 3, 32)),
    )
    bias = b.parameter("bias", i32, (columns,))
    t, u, v = (b.temporary(d, (rows, columns)) for d in (i32, i32, f32))
    emit(b, "contract", packed_product(columns, product="bytes"), [a, w], t)
    emit(b, op, {}, [t, bias], u)
    emit(b, "cast", {"dtype": f32}, [u], v)
    r = b.parameter("r", f32, (rows, columns))
    for _ in range(steps):
        more = b.temporary(f32, (rows, columns))
        emit(b, "add", {}, [v, r], more)
        v = more
    y = b.result("y", f32, (rows, columns))
    emit(b, "relu", {}, [v], y)
    return b.build()


@pytest.mark.thinned(5)
@pytest.mark.parametrize("machine", [V4, V3], ids=str)
@pytest.mark.parametrize("op", ["add", "sub"])
@pytest.mark.parametrize("rows", [1, 3, M])
def test_sums_of_bytes_begin_with_their_bias(
    rows: Dim, op: str, machine: MachineModel
) -> None:
    naive = biased_product(rows, 32, op)
    done = schedule(naive, machine)
    assert any("begins with what is added to it" in note for note in done.notes)
    assert "+ bias" not in body_text(done)
    for dims in [{}] if isinstance(rows, int) else [{"M": m} for m in (1, 5)]:
        assert_same(naive, done, dims)


@pytest.mark.parametrize("columns", [1, 31, 33])
def test_a_bias_of_columns_that_panels_fill_up_is_added_behind_their_guard(
    columns: int,
) -> None:
    naive = biased_product(3, columns)
    assert_same(naive, schedule(naive, V4))


@pytest.mark.parametrize(("steps", "waits"), [(3, False), (12, True)])
def test_sums_wait_in_memory_for_what_takes_many_steps(steps: int, waits: bool) -> None:
    naive = biased_product(28, 32, steps=steps)
    done = schedule(naive, V4)
    assert (
        any(local.name.endswith("_c") and len(local.shape) == 3 for local in done.locals)
        is waits
    )
    assert_same(naive, done)


@pytest.mark.parametrize(("stride", "alone"), [(1, True), (2, True), (7, False)])
def test_taps_that_read_what_other_places_read_are_not_written_out(
    stride: int, alone: bool
) -> None:
    b = KernelBuilder("image")
    x = b.parameter("x", i32, (1, 2, 11 * stride + 7, 1))
    w = b.parameter("w", i32, (1, 1, 2, 7, 1, 32))
    y = b.result("y", i32, (1, 1, 12, 32))
    form = packed_convolution(32, strides=(1, stride), product="bytes")
    emit(b, "contract", form, [x, w], y)
    naive = b.build()
    done = schedule(naive, V4)
    steps = [x for x in loops(done.body) if x.reduction]
    assert all(x.kind is LoopKind.SERIAL for x in steps) is alone
    assert_same(naive, done)
