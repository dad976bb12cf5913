"""What rules choose for images and sounds whose sizes, or filters, only a call counts."""

from __future__ import annotations

import pytest

from fakes.contractions import convolution
from fakes.loop_nests import assert_same, op_kernel
from tilewright.base.dtypes import f32
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim, ceildiv, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.grid import grid_loops
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule, space_of
from tilewright.compiler.transforms.contract_forms import convolution_along_rows

V4, V3 = (MachineModel.of(Target.level(name)) for name in ("v4", "v3"))
ZEN4, ZEN3 = (MachineModel.of(Target.parse(f"x86_64 -mcpu=znver{n}")) for n in (4, 3))
M, N = (symbol(name, 1) for name in "MN")


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
def test_what_tiles_leave_of_a_row_of_an_image_is_half_a_tile_and_one_more(
    machine: MachineModel,
) -> None:
    shapes: list[tuple[Dim, ...]] = [(1, 3, M + 1, 2), (1, 1, 2, 2, 2, 32)]
    naive = op_kernel("contract", shapes, (1, 2, M, 32), convolution(32))
    done = schedule(naive, machine)
    sums = [b for b in done.locals if b.name.startswith("acc")]
    rows = sorted({n for b in sums if isinstance(n := b.shape[0], int)})
    *rest, whole = rows
    half = -(-whole // 2)
    assert rest == [*range(1, whole if whole <= 5 else half + 1)], "few have each its own"
    for width in (1, half, whole - 1, whole, whole + 1, 2 * whole + half + 1):
        assert_same(naive, done, {"M": width})


@pytest.mark.thinned(2)
@pytest.mark.parametrize("machine", [V4, ZEN3], ids=str)
def test_an_open_number_of_filters_fills_lanes(machine: MachineModel) -> None:
    panel = 2 * machine.lanes(f32)
    shapes: list[tuple[Dim, ...]] = [
        (1, 4, M + 1, 3),
        (1, ceildiv(N, panel), 2, 2, 3, panel),
    ]
    naive = op_kernel("contract", shapes, (1, 3, M, N), convolution(N))
    done = schedule(naive, machine)
    assert done.verdict is not None
    assert done.verdict.outcome is Outcome.TILED
    for filters in (1, panel // 2, panel // 2 + 1, panel, 2 * panel + 1):
        assert_same(naive, done, {"M": 7, "N": filters})


@pytest.mark.thinned(2)
@pytest.mark.parametrize("machine", [V4, ZEN4], ids=str)
def test_lines_of_an_image_that_are_little_work_share_a_workgroup(
    machine: MachineModel,
) -> None:
    filters, image = (1, 3, 3, 4), (1, 1, M + 2, N + 2)
    form = convolution_along_rows(filters, image, (M, N), (1, 1))
    shapes: list[tuple[Dim, ...]] = [filters, image]
    naive = op_kernel("contract", shapes, (1, 4, M, N), lambda _: form)
    done = schedule(naive, machine)
    assert all(grid.extent != M for grid in grid_loops(done))
    for height, width in ((1, 1), (3, 17), (40, 5), (2, 70)):
        assert_same(naive, done, {"M": height, "N": width})


@pytest.mark.thinned(2)
@pytest.mark.parametrize("machine", [V4, ZEN3], ids=str)
def test_sounds_side_by_side_are_no_lines_of_an_image(machine: MachineModel) -> None:
    """A sound is long: its tile is that of one of known length, not of a row of an image."""
    filters = (64, 3, 128)

    def decided(count: Dim, length: Dim) -> object:
        form = convolution_along_rows(filters, (count, 64, length + 2), (length,), (1,))
        shapes: list[tuple[Dim, ...]] = [filters, (count, 64, length + 2)]
        naive = op_kernel("contract", shapes, (count, 128, length), lambda _: form)
        best = space_of(naive, machine).nests[0].best()
        return best.columns, best.rows

    assert decided(M, N) == decided(2, N) == decided(2, 8000)
