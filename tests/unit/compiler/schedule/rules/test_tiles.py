from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tilewright.base.dtypes import f32, f64
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules.tiles import (
    Tile,
    aliasing,
    choose_tile,
    most_rows,
    panel_cycles,
    row_gap,
    row_sizes,
    tile_counts,
)
from tilewright.compiler.schedule.rules.tilings import ContractionShape, contraction_panel

ZEN4 = MachineModel.of(Target.parse("x86_64 -mcpu=znver4"))
MESH = MachineModel.of(Target.parse("x86_64 -mcpu=cascadelake"))
V3, V2 = (MachineModel.of(Target.level(name)) for name in ("v3", "v2"))
SIZES = [
    (1024, 1024, 1024),
    (128, 768, 3072),
    (197, 768, 768),
    (49, 2048, 512),
    (3136, 64, 576),
]


@pytest.mark.parametrize(
    "machine", [ZEN4, V3, V2, MachineModel.of(Target.parse("aarch64"))], ids=str
)
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_accumulators_and_operands_fit_the_registers(
    machine: MachineModel, m: int, n: int, k: int
) -> None:
    lanes = machine.lanes(f32)
    tile = choose_tile(machine, (m,), n, k, lanes, row_bytes=4 * k)
    vectors = tile.columns // lanes
    assert tile.columns % lanes == 0
    assert tile.rows * vectors + vectors + 1 <= machine.vector_registers


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_the_model_expects_tiles_to_reach_nine_tenths_of_the_peak(
    m: int, n: int, k: int
) -> None:
    tile = choose_tile(ZEN4, (m,), n, k, 16, row_bytes=4 * k)
    assert m * n * k / 16 / tile.cost > 0.9


def test_rows_a_power_of_two_apart_are_few() -> None:
    assert aliasing(ZEN4, 12, 4096)
    assert not aliasing(ZEN4, 6, 4096)
    assert not aliasing(ZEN4, 12, 2048)
    assert aliasing(ZEN4, 14, 2048)
    assert not aliasing(ZEN4, 14, 3072 + 64)
    assert choose_tile(ZEN4, (1024,), 1024, 1024, 16, row_bytes=4096).rows <= 6


def test_a_line_between_rows_spreads_them_over_the_sets() -> None:
    assert row_gap(ZEN4, 49, 4096) == row_gap(ZEN4, 49, 2048, 2) == ZEN4.line_bytes
    assert row_gap(ZEN4, 49, 1024) == row_gap(ZEN4, 1, 4096) == 0
    assert row_gap(V3, 49, 4096) == 0  # six rows find room


def test_a_panel_costs_what_the_memory_that_it_stays_in_takes() -> None:
    short, near, far = (panel_cycles(MESH, 4, depth, 12.0) for depth in (32, 1024, 3072))
    assert short == 12.0 < near < far
    assert far > 4 * 64 / MESH.core.third_level  # a line in each of four vectors
    assert panel_cycles(ZEN4, 4, 3072, 24.0) == 24.0  # its third level cache keeps up


def test_panels_stay_in_the_second_level_cache_where_the_third_is_slow() -> None:
    for columns, depth in ((768, 3072), (1024, 4096), (512, 4608), (2048, 8192)):
        tile = choose_tile(MESH, (128,), columns, depth, 16, row_bytes=4 * depth + 64)
        stays = depth * tile.columns * f32.itemsize <= 0.65 * MESH.l2.size_bytes
        assert stays or tile.columns == 16, (columns, depth, tile)


@pytest.mark.parametrize(("rows", "outer"), [(49, "panels"), (196, "rows"), (784, "rows")])
def test_panels_of_few_rows_are_fetched_one_after_the_other(rows: int, outer: str) -> None:
    """49 rows multiply a right operand of 64 KiB in six times what memory takes to bring it: nothing else hides that."""
    shape = ContractionShape(
        machine=MESH, dtype=f32, rows=(rows,), width=128, panels=(), batches=36, depth=128
    )
    tiling = shape.space().best()
    assert tiling.outer == outer
    if outer == "panels":
        assert tiling.tiles == shape.tile_count(tiling)  # a panel is brought once


@pytest.mark.parametrize("machine", [MESH, ZEN4], ids=str)
def test_rows_that_meet_in_one_set_have_gaps_and_tall_tiles(machine: MachineModel) -> None:
    for depth in (1024, 2048, 3072, 4096, 8192, 11008):
        gap = row_gap(machine, 128, 4 * depth)
        assert aliasing(machine, 14, 4 * depth) == (gap > 0), depth
        assert not aliasing(machine, 14, 4 * depth + gap)
    gap = row_gap(machine, 128, 4 * 3072)
    assert choose_tile(machine, (128,), 768, 3072, 16, row_bytes=4 * 3072 + gap).rows > 6


def test_panels_are_as_narrow_as_tall_tiles_want_them() -> None:
    whole = contraction_panel(MESH, [128], 768, 3072, f32)
    apart = contraction_panel(MESH, [128], 768, 3072, f32, row=3072 + 16)
    assert apart < whole


def test_rows_that_are_one_tile_read_a_panel_once_wherever_it_lies() -> None:
    fast = replace(MESH, core=replace(MESH.core, fill=0.0, third_level=1e9))
    for machine in (MESH, fast):
        tile = choose_tile(machine, (6,), 768, 3072, 16, row_bytes=12288)
        assert tile == choose_tile(fast, (6,), 768, 3072, 16, row_bytes=12288)


@pytest.mark.parametrize(("m", "n", "k"), [*SIZES, (128, 768, 3072), (49, 512, 4608)])
def test_vectors_of_256_bits_take_so_long_that_the_third_level_keeps_up(
    m: int, n: int, k: int
) -> None:
    fast = replace(V3, core=replace(V3.core, third_level=1e9))
    for depth in (k, 4096):
        tile, same = (
            choose_tile(each, (m,), n, depth, 8, row_bytes=4 * depth) for each in (V3, fast)
        )
        assert tile == same


def test_few_rows_are_cut_without_a_rest_where_that_pays() -> None:
    tile = choose_tile(ZEN4, (7,), 512, 512, 16, row_bytes=2048)
    assert tile.rows in (4, 7)


def test_one_row_reads_wide_panels() -> None:
    assert contraction_panel(ZEN4, [1], 4096, 4096, f32) == 64
    assert contraction_panel(ZEN4, [1], 10, 256, f32) == 16
    assert contraction_panel(V3, [1], 4096, 4096, f32) == 32
    assert contraction_panel(ZEN4, [0], 4096, 4096, f32) == 64, (
        "no row is not fewer than one"
    )


def test_the_tile_of_one_row_has_one() -> None:
    shape = ContractionShape(
        machine=ZEN4, dtype=f32, rows=(1,), width=4096, depth=4096, packs=True
    )
    tile = shape.best_tile(None)
    assert (tile.rows, tile.columns) == (1, 64)


def test_panels_are_whole_vectors_for_any_size() -> None:
    for n in (0, 1, 7, 16, 17, 33, 1000):
        for machine in (ZEN4, V3, V2):
            for dtype in (f32, f64):
                panel = contraction_panel(machine, [symbol("M", 1)], n, 64, dtype)
                assert panel % machine.lanes(dtype) == 0
                assert panel <= 4 * machine.lanes(dtype)


def test_more_vectors_leave_fewer_rows() -> None:
    assert [most_rows(ZEN4, v) for v in (1, 2, 3, 4)] == [30, 14, 9, 6]
    assert [most_rows(V3, v) for v in (1, 2, 3)] == [14, 6, 4]


def test_numbers_made_of_words_serve_many_rows() -> None:
    assert [most_rows(ZEN4, v, 8) for v in (1, 2, 4)] == [15, 7, 3]
    tile = choose_tile(ZEN4, (128,), 3072, 96, 16, row_bytes=3072, products=8)
    assert tile.columns == 16
    assert tile.rows >= 12


@pytest.mark.parametrize("machine", [ZEN4, V3], ids=str)
def test_panels_of_a_sequence_divide_usual_lengths(machine: MachineModel) -> None:
    panel = contraction_panel(machine, [symbol("S", 1)], symbol("T", 1), 64, f32)
    assert 128 % panel == 0


def test_a_tile_goes_on_to_the_next_loop_only_where_it_has_all_of_the_inner_one() -> None:
    assert row_sizes([7, 7], 5) == (4,)
    assert row_sizes([7, 7], 14) == (2, 7)
    assert row_sizes([5, 7], 7) == (7,)
    assert row_sizes([9, 1, 40], 6) == (6,)
    assert row_sizes([symbol("N", 1), 3], 6) == (2, 3)
    assert row_sizes([3, symbol("N", 1)], 6) == (6,)


@pytest.mark.parametrize("extents", [[7, 7], [49], [2, 5, 3], [1, 1], [13]])
@pytest.mark.parametrize("most", [1, 2, 4, 6, 14])
def test_tiles_and_rests_have_every_row_once(extents: list[int], most: int) -> None:
    sizes = row_sizes(extents, most)
    counts = tile_counts(extents, sizes)
    assert sum(rows * count for rows, count in counts.items()) == math.prod(extents)
    assert max(counts) <= most
    again = row_sizes(extents, math.prod(sizes))
    assert math.prod(again) == math.prod(sizes)


@pytest.mark.parametrize("machine", [MESH, ZEN4, V3, V2], ids=str)
def test_tiles_of_images_of_any_width_leave_few_places_of_usual_ones(
    machine: MachineModel,
) -> None:
    height, width = symbol("H", 1), symbol("W", 1)

    def tile(*rows: Dim) -> Tile:
        shape = ContractionShape(
            machine=machine.for_sums_of(f32), dtype=f32, rows=rows, width=256, depth=2304, packs=True,
        )  # fmt: skip
        return shape.best_tile(None)

    chosen, long = tile(1, height, width), tile(1, height, 1024)
    assert chosen.columns == long.columns

    def tiles(rows: int) -> int:
        return sum(-(-n // rows) for n in (7, 14, 28, 56))

    share = chosen.rows / long.rows
    assert tiles(chosen.rows) * share <= tiles(long.rows)
    assert MESH is not machine or (chosen.rows, long.rows) == (14, 13)


@pytest.mark.parametrize("machine", [MESH, ZEN4], ids=str)
@pytest.mark.parametrize("filters", [6, 8])
def test_tiles_along_lines_of_any_length_leave_few_lanes_empty(
    machine: MachineModel, filters: int
) -> None:
    """28 places are two vectors, not half of a tile of four, and 65 five, not six."""
    height, width = symbol("H", 1), symbol("W", 1)
    machine, lanes = machine.for_sums_of(f32), machine.lanes(f32)
    lines = ContractionShape(
        machine=machine, dtype=f32, rows=(filters,), width=width, panels=(height,), depth=27, has_lines=True,
    )  # fmt: skip
    assert lines.best_tile(None).columns == 2 * lanes


def test_panels_fit_the_tiles_that_loops_over_an_image_leave() -> None:
    """Seven positions are tiles of four and three rows: eight sums each wait for none in three
    vectors, and six sums in two vectors would."""
    assert contraction_panel(V3, [1, 7, 7], 512, 4608, f32) == 24
    assert contraction_panel(V3, [49], 512, 4608, f32) == 16
