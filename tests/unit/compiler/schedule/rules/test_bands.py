"""Two sums in a row are computed band by band, and what lies between them stays near."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.contractions import depthwise, product
from fakes.loop_nests import assert_same, emit
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, LoopKind, Space
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import Decisions, schedule

PANEL = 16


def with_cache(level: str, size_bytes: int) -> MachineModel:
    """A machine whose first level cache is small, so that small tensors have several bands."""
    machine = MachineModel.of(Target.level(level))
    return replace(machine, l1=replace(machine.l1, size_bytes=size_bytes))


SMALL = with_cache("v3", 512)


def pair(
    images: int,
    rows: int,
    columns: int,
    channels: int,
    filters: int,
    *,
    step: int = 1,
    border: int = 0,
    turned: bool = False,
    has_bias: bool = True,
    activation: str = "relu",
) -> Kernel:
    """A depthwise convolution with bias and activation, and the product behind it, with a border around it."""
    b = KernelBuilder("pair")
    high, wide = ((n - 1) * step + 3 for n in (rows, columns))
    x = b.parameter("x", f32, (images, high, wide, channels))
    taps = b.parameter("taps", f32, (3, 3, channels))
    bias = b.parameter("bias", f32, (channels,))
    weights = b.parameter("weights", f32, (-(-filters // PANEL), channels, PANEL))
    image = (images, rows, columns, channels)
    s, t, u = (b.temporary(f32, image) for _ in range(3))
    emit(b, "contract", depthwise(strides=(step, step)), [x, taps], s)
    if has_bias:
        emit(b, "add", {}, [s, bias], t)
        s = t
    if activation:
        emit(b, activation, {}, [s], u)
        s = u
    u = s
    if turned:
        image = (images, columns, rows, channels)
        other = b.temporary(f32, image)
        emit(b, "transpose", {"perm": (0, 2, 1, 3)}, [u], other)
        u = other
    count = images * rows * columns
    matrix = b.temporary(f32, (count, channels))
    emit(b, "reshape", {"shape": (count, channels)}, [u], matrix)
    if not border:
        y = b.result("y", f32, (count, filters))
        emit(b, "contract", product(filters), [matrix, weights], y)
        return b.build()
    m, v = b.temporary(f32, (count, filters)), b.temporary(f32, (*image[:3], filters))
    emit(b, "contract", product(filters), [matrix, weights], m)
    emit(b, "reshape", {"shape": v.shape}, [m], v)
    shape = (images, rows + 2 * border, columns + 2 * border, filters)
    pads = (0, border, border, 0)
    emit(b, "pad", {"pads": pads * 2}, [v], b.result("y", f32, shape))
    return b.build()


def decided(kernel: Kernel) -> str:
    """What the notes say was decided."""
    (note,) = (n for n in kernel.notes if n.startswith("decided: "))
    return note.removeprefix("decided: ")


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((1, 6, 5, 17, 9), 3),
        ((1, 7, 3, 19, 33), 1),
        ((2, 3, 4, 16, 5), 1),
        ((1, 4, 2, 2, 1), 4),
        ((3, 4, 2, 40, 16), 3),
        ((1, 9, 2, 8, 1), 9),
        ((1, 12, 2, 15, 40), 6),
    ],
    ids=str,
)
@pytest.mark.parametrize("step", [1, 2])
def test_bands_compute_what_the_whole_does(
    shape: tuple[int, ...], rows: int, step: int
) -> None:
    kernel = pair(*shape, step=step)
    changed = schedule(kernel, SMALL)
    assert decided(changed).startswith(f"bands rows={rows}; ")
    assert_same(kernel, changed, exact=False)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("activation", ["", "relu", "silu", "exp"])
@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("has_bias", [False, True])
def test_bands_whatever_stands_between(
    activation: str, images: int, *, has_bias: bool
) -> None:
    """What costs nothing, too, is done where the first sum is finished: the second would read it in another order."""
    kernel = pair(images, 6, 5, 17, 9, has_bias=has_bias, activation=activation)
    changed = schedule(kernel, SMALL)
    assert decided(changed).startswith("bands rows=")
    assert_same(kernel, changed, exact=False)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["v2", "v4"])
def test_bands_on_other_machines(level: str) -> None:
    kernel = pair(1, 10, 7, 33, 24)
    changed = schedule(kernel, with_cache(level, 2048))
    assert decided(changed).startswith("bands rows=2; columns ")
    assert_same(kernel, changed, exact=False)


def test_a_band_is_a_workgroup_and_what_lies_between_is_its_own() -> None:
    changed = schedule(pair(1, 6, 5, 17, 9), SMALL)
    grid = [x.extent for x in loops(changed.body) if x.kind is LoopKind.GRID_X]
    assert grid == [2]
    (between,) = (b for b in changed.locals if b.space is Space.WORKGROUP)
    assert between.shape == (15, 17)
    assert not [b for b in changed.locals if b.space is Space.DEVICE]


@pytest.mark.slow
def test_a_border_around_the_result_is_in_the_same_grid() -> None:
    kernel = pair(1, 6, 5, 17, 9, border=1)
    changed = schedule(kernel, SMALL)
    assert decided(changed).startswith("bands rows=3; columns ")
    assert any("parts in one grid" in note for note in changed.notes)
    assert_same(kernel, changed, exact=False)


@pytest.mark.slow
def test_a_row_that_is_no_band_goes_through_memory() -> None:
    kernel = pair(1, 2, 2, 300, 9)
    changed = schedule(kernel, SMALL)
    assert "bands" not in decided(changed)
    assert_same(kernel, changed, exact=False)


def test_rows_that_are_read_in_another_order_are_no_bands() -> None:
    kernel = pair(1, 4, 3, 17, 9, turned=True)
    changed = schedule(kernel, SMALL)
    assert "bands" not in decided(changed)
    assert_same(kernel, changed, exact=False)


def test_decisions_for_bands_are_read_back_and_carried_out() -> None:
    kernel = pair(1, 6, 5, 17, 9)
    best = schedule(kernel, SMALL)
    decisions = Decisions.parse(decided(best))
    assert decisions.to_text() == decided(best)
    again = schedule(kernel, SMALL, decisions=decisions)
    assert kernel_text(again) == kernel_text(best)


@pytest.mark.parametrize(
    "text", ["bands rows=2", "bands rows=5; columns rows=0; contraction columns=16"]
)
def test_decisions_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match=r"decisions for|does not fit"):
        schedule(pair(1, 6, 5, 17, 9), SMALL, decisions=Decisions.parse(text))


def test_the_expected_time_is_that_of_all_bands() -> None:
    few = schedule(pair(1, 2, 64, 64, 64), with_cache("v3", 16 << 10)).verdict
    many = schedule(pair(1, 16, 64, 64, 64), with_cache("v3", 16 << 10)).verdict
    assert few is not None
    assert many is not None
    assert many.expected_ns == pytest.approx(8 * few.expected_ns, rel=0.1)
