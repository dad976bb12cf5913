"""Convolutions go into Winograd's domain where the model of time gains by it."""

from __future__ import annotations

import pytest

from tilewright.base.target import Target
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import winograd_tile

MACHINES = [
    MachineModel.of(Target.parse(text))
    for text in ("x86_64-v2", "x86_64-v3", "x86_64 -mcpu=znver4", "aarch64")
]


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


def test_many_images_pay_for_larger_weights() -> None:
    for machine in MACHINES:
        assert winograd_tile(machine, (64, 7, 7), 512, 512, 3) > 0
