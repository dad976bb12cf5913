"""Convolutions go into Winograd's domain, and long sums into parts, where the model of time gains by it."""

from __future__ import annotations

import pytest

from tilewright.base.dtypes import DType, f32, i32
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import algorithms
from tilewright.compiler.schedule.rules.algorithms import (
    Layer,
    joined_band,
    reduction_parts,
)

MACHINES = [
    MachineModel.of(Target.parse(text))
    for text in ("x86_64-v2", "x86_64-v3", "x86_64 -mcpu=znver4", "aarch64")
]


MESH = MachineModel.of(Target.parse("x86_64 -mcpu=cascadelake"))


def winograd_tile(machine, *sizes, others=(), **more):
    return algorithms.winograd_tile(machine, Layer(*sizes, **more), others=others)


def test_filters_that_memory_brings_slowly_are_not_made_larger() -> None:
    """As measured on a Cascade Lake: 16.8 MB of filters for 7 x 7 places take longer than the direct sum."""
    layers = {56: 64, 28: 128, 14: 256, 7: 512}
    chosen = {
        size: winograd_tile(MESH, (1, size, size), channels, channels, 3)
        for size, channels in layers.items()
    }
    assert chosen == {56: 4, 28: 4, 14: 2, 7: 0}


def test_filters_that_several_machines_read_have_the_form_that_none_loses_much_by() -> None:
    """4 x 4 is best for AVX2 code at 14 x 14, and takes 1.4 of the time of 2 x 2 where memory is slower."""
    levels = [MachineModel.of(Target.level(name)) for name in ("v2", "v3", "v4")]
    layers = {56: 64, 28: 128, 14: 256, 7: 512}

    def chosen(dtype: DType, *machines: MachineModel) -> dict[int, int]:
        machine, *others = machines
        return {
            size: winograd_tile(
                machine, (1, size, size), channels, channels, 3, 1, dtype, others=others
            )
            for size, channels in layers.items()
        }

    assert chosen(f32, levels[1]) == {56: 4, 28: 4, 14: 4, 7: 2}
    assert chosen(f32, levels[2]) == {56: 4, 28: 4, 14: 2, 7: 0}
    shared = {56: 4, 28: 4, 14: 2, 7: 2}
    assert chosen(f32, *levels) == chosen(f32, *reversed(levels)) == shared
    assert chosen(i32, levels[1], levels[0], levels[2]) == chosen(i32, levels[1])


def test_images_of_any_size_have_filters_that_no_usual_one_loses_much_by() -> None:
    """Beside 512 channels a Cascade Lake would wait for filters of 4 x 4 tiles at 7 x 7 places."""
    height, width = symbol("H", 1), symbol("W", 1)
    chosen = {n: winograd_tile(MESH, (1, height, width), n, n, 3) for n in (64, 256, 512)}
    assert chosen == {64: 4, 256: 4, 512: 2}
    assert winograd_tile(MACHINES[2], (1, height, width), 512, 512, 3) == 4
    assert winograd_tile(MESH, (1, 7, 7), 512, 512, 3) == 0, "of a known size"


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_large_images_take_large_tiles(machine: MachineModel) -> None:
    assert winograd_tile(machine, (1, 56, 56), 64, 64, 3) == 4


def test_weights_that_are_large_beside_the_image_are_not_made_larger() -> None:
    """7 x 7 places: four times the weights would come from main memory for two by two tiles."""
    assert winograd_tile(MACHINES[2], (1, 7, 7), 512, 512, 3) != 4


@pytest.mark.parametrize(
    ("channels", "filters", "taps"), [(64, 64, 1), (64, 64, 5), (3, 64, 3), (64, 1, 3)]
)
def test_other_filters_and_few_channels_are_summed_directly(
    channels: int, filters: int, taps: int
) -> None:
    for machine in MACHINES:
        assert winograd_tile(machine, (1, 56, 56), channels, filters, taps) == 0


@pytest.mark.parametrize(("channels", "filters"), [(64, 4), (12, 12)])
def test_levels_that_share_filters_sum_few_channels_directly(
    channels: int, filters: int
) -> None:
    first, *others = MACHINES
    shape = (1, 56, 56)
    assert winograd_tile(first, shape, channels, filters, 3, others=others) == 0


def test_groups_gain_as_convolutions_of_their_own_do() -> None:
    for machine in MACHINES:
        assert winograd_tile(machine, (1, 28, 28), 64, 64, 3, 3) == 4
        # Products of so few channels wait for their operands, and the transforms cost as before.
        assert winograd_tile(machine, (1, 28, 28), 4, 4, 3, 48) == 0


def test_weights_of_many_groups_are_not_made_larger_either() -> None:
    assert winograd_tile(MACHINES[2], (1, 7, 7), 64, 64, 3, 17) != 4


def test_tiles_whose_pixels_crowd_one_set_of_the_cache_are_smaller() -> None:
    """512 channels lie 2 KiB apart: 36 pixels would share two sets of the first level cache, 16 fill them."""
    machine = MACHINES[2]
    assert winograd_tile(machine, (1, 14, 14), 64, 64, 3, 8) == 2
    assert winograd_tile(machine, (1, 14, 14), 64, 64, 3, 9) == 4


def test_filters_of_bytes_are_kept_in_the_domain_where_that_saves_much_for_what_it_adds() -> (
    None
):
    machine = MACHINES[1]
    chosen = {
        size: winograd_tile(machine, (1, size, size), filters, filters, 3, dtype=i32)
        for size, filters in ((56, 64), (28, 128), (14, 256), (7, 512))
    }
    assert chosen == {56: 4, 28: 4, 14: 2, 7: 0}
    assert winograd_tile(machine, (1, 14, 14), 256, 256, 3) > 0  # of floats


def test_many_images_pay_for_larger_weights() -> None:
    for machine in MACHINES:
        assert winograd_tile(machine, (64, 7, 7), 512, 512, 3) > 0


def test_long_sums_are_cut_where_their_number_keeps_few_cores_busy() -> None:
    for machine in MACHINES:
        assert reduction_parts(machine, 1, 1, 4_000_000, products=False) >= 8
        assert reduction_parts(machine, 16, 16, 100_000, products=True) >= 2
        assert 2 <= reduction_parts(machine, 3, 1, 4_000_000, products=False) <= 5


@pytest.mark.parametrize(
    ("rows", "columns", "steps", "products"),
    [
        (1, 1, 50_000, False),  # over before another core is awake
        (64, 1, 100_000, False),
        (1, 2048, 100_000, False),
        (1, 768, 3072, True),  # a row of a decoder: columns are many
        (128, 768, 768, True),
        (0, 5, 1_000_000, True),
        (5, 0, 1_000_000, False),
    ],
)
def test_sums_that_are_many_or_short_are_not_cut(
    rows: int, columns: int, steps: int, products: bool
) -> None:
    for machine in MACHINES:
        assert reduction_parts(machine, rows, columns, steps, products=products) < 2


# --- bands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_a_tensor_that_no_cache_of_a_core_holds_goes_in_bands(
    machine: MachineModel,
) -> None:
    row_bytes = 112 * 32 * 4
    rows = joined_band(machine, 512, row_bytes, 32 * 16 * 4)
    assert 512 % rows == 0
    assert row_bytes <= rows * row_bytes <= 2 * machine.l1.size_bytes


@pytest.mark.parametrize(
    ("rows", "row_bytes", "right_bytes"),
    [
        (14, 14 * 512 * 4, 512 * 512 * 4),  # the second level holds it
        (512, 1 << 20, 32 * 16 * 4),  # a row is no band
        (64, 1 << 16, 64 << 20),  # the weights would come from main memory for each row
        (0, 64, 64),
        (8, 0, 64),
    ],
)
@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_other_tensors_go_through_memory_as_a_whole(
    machine: MachineModel, rows: int, row_bytes: int, right_bytes: int
) -> None:
    assert joined_band(machine, rows, row_bytes, right_bytes) == 0


def test_taps_that_skip_places_are_in_the_domain_where_enough_places_are_together():
    chosen = {
        (size, step): winograd_tile(
            MACHINES[1], (1, size, size), 128, 128, 3, steps=(step, step)
        )
        for size, step in ((56, 2), (33, 12), (13, 12))
    }
    assert chosen[56, 2] == chosen[33, 12] == 4
    assert not chosen[13, 12], "images of 2 x 2 are mostly what completes tiles"
