"""Threads get shares of a product that are alike, and near to what one of them would take at a time."""

from __future__ import annotations

import math

import pytest

from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.shares import even_shares
from tilewright.compiler.schedule.rules.tilings import ContractionShape, Tiling

TARGETS = (
    Target.level("v4"),
    Target.level("v3"),
    Target.parse("x86_64 -mcpu=znver4"),
    Target.parse("x86_64 -mcpu=znver3"),
)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("rows", "taken", "threads", "wanted"),
    [
        (56, 31, 2, 28),  # 31 and 25
        (14, 6, 2, 7),  # 6, 6 and 2: one thread has 8
        (14, 2, 2, 1),  # seven workgroups
        (88, 36, 2, 44),
        (56, 28, 2, 28),  # even as it is
        (7, 7, 2, 7),  # one workgroup: too little work for two
        (14, 6, 1, 6),
        (1000, 7, 2, 7),  # many workgroups
        (12, 5, 4, 4),  # fewer workgroups than threads: more would not be worth their start
        (9, 5, 16, 5),
    ],
)
def test_blocks_of_rows_are_cut_so_that_threads_get_as_many(rows, taken, threads, wanted):
    found = even_shares(3, rows, (3, taken), threads, shared_panels=True)
    assert found == (3, wanted)


@pytest.mark.parametrize(
    ("panels", "rows", "taken", "wanted"),
    [
        (5, 4, (1, 4), (1, 2)),  # an odd number of panels: rows are parted, too
        (40, 4, (3, 4), (2, 4)),
        (10, 4, (1, 4), (1, 4)),
        (5, 1, (1, 1), (1, 1)),  # nothing to part
    ],
)
def test_panels_are_cut_so_that_threads_get_as_many(panels, rows, taken, wanted):
    assert even_shares(panels, rows, taken, 2, shared_panels=False) == wanted


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize("rows", [(49,), (196,), (784,), (7, 7), (14, 14), (55, 57)])
def test_no_thread_of_two_gets_much_more_than_half(target, rows) -> None:
    for depth, columns in ((384, 64), (576, 160), (960, 320), (96, 576)):
        shape = ContractionShape(
            machine=MachineModel.of(target), dtype=f32, rows=rows, width=columns,
            depth=depth, threads=2,
        )  # fmt: skip
        tiling = shape.space().best()
        panels, tiles = shape.panel_count(tiling), shape.tile_count(tiling)
        line = tiles if len(rows) == 1 else tiles // math.ceil(rows[0] / _tall(tiling))
        step = tiling.tiles if len(rows) == 1 else line * max(1, tiling.tiles // line)
        loads = [0, 0]
        for row in range(0, tiles, step):
            for panel in range(0, panels, tiling.panels):
                size = min(tiling.panels, panels - panel) * min(step, tiles - row)
                loads[loads.index(min(loads))] += size
        if max(loads) < panels * tiles:  # enough work for two
            assert max(loads) <= 0.62 * panels * tiles


def _tall(tiling: Tiling) -> int:
    """Lines of an image in a tile."""
    return tiling.rows[-2] if len(tiling.rows) > 1 else 1


@pytest.mark.parametrize("rows", [(0,), (3, 0), (0, 3), (1, 1)])
def test_products_of_hardly_any_rows_have_a_tiling(rows) -> None:
    shape = ContractionShape(
        machine=MachineModel.of(TARGETS[0]), dtype=f32, rows=rows, width=64, depth=384,
        threads=2,
    )  # fmt: skip
    tiling = shape.space().best()
    assert min(tiling.panels, tiling.tiles) >= 1


def test_one_thread_and_open_sizes_take_what_they_took() -> None:
    machine = MachineModel.of(TARGETS[0])
    for rows, threads in (((196,), 1), ((symbol("n", 1),), 2)):
        shape = ContractionShape(
            machine=machine, dtype=f32, rows=rows, width=64, depth=384, threads=threads
        )
        tiling = shape.space().best()
        assert shape._evenly(tiling) == tiling


def test_what_is_taken_may_be_more_than_there_is() -> None:
    panels, blocks = even_shares(57, 13, (52, 171), 3, shared_panels=True)
    assert (panels, blocks) == (52, 171)
