"""Nests of which several stand in each iteration of a loop, one of them a sum along an outer axis."""

from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, emit, op_kernel
from tilewright.base.dtypes import f32
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, LoopKind
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

V3, V4 = (MachineModel.of(Target.level(level)) for level in ("v3", "v4"))
LAST = {"epsilon": 1e-5, "layout": "NHWC"}


def norm(*shape: Dim) -> Kernel:
    return op_kernel("instance_norm", [shape], shape, LAST)


def norm_with_border(*shape: int) -> Kernel:
    """`relu(norm(x))` with zeros around, as the convolution behind it wants them."""
    b = KernelBuilder("norm")
    images, height, width, channels = shape
    x = b.parameter("x", f32, shape)
    y = b.result("y", f32, (images, height + 2, width + 2, channels))
    t, u = (b.temporary(f32, shape) for _ in range(2))
    emit(b, "instance_norm", LAST, [x, None, None], t)
    emit(b, "relu", {}, [t], u)
    emit(b, "pad", {"pads": (0, 1, 1, 0, 0, 1, 1, 0), "mode": "constant"}, [u], y)
    return b.build()


@pytest.mark.parametrize("machine", [V3, V4])
@pytest.mark.parametrize(
    "kernel", [norm(2, 5, 4, 32), norm(3, 4, 5, 17), norm_with_border(2, 5, 4, 16)]
)
def test_norms_of_several_images_with_channels_last_run_in_lanes(kernel, machine):
    done = schedule(kernel, machine)
    assert done.verdict is not None
    assert done.verdict.outcome is not Outcome.GENERIC
    assert_same(kernel, done, exact=False)


def test_images_of_an_open_number_are_the_same():
    kernel = norm(symbol("N"), 5, 4, 17)
    done = schedule(kernel, V3)
    assert done.verdict is not None
    assert done.verdict.outcome is not Outcome.GENERIC
    for images in (0, 1, 3):
        assert_same(kernel, done, {"N": images}, exact=False)


def test_large_images_are_workgroups():
    done = schedule(norm(4, 40, 40, 32), V3, threads=2)
    shared = [x.extent for x in loops(done.body) if x.kind is LoopKind.GRID_X]
    assert shared == [4]
    assert "stages: 2 nests in each iteration" in done.notes


def test_one_image_is_two_nests_already():
    assert "stages" not in str(schedule(norm(1, 5, 4, 32), V3).notes)


def test_rows_that_are_contiguous_stay_rows():
    kernel = op_kernel("instance_norm", [(2, 3, 5, 7)], (2, 3, 5, 7), {"epsilon": 1e-5})
    assert "stages" not in str(schedule(kernel, V3).notes)


def test_a_sum_over_everything_has_no_loop_around_stages():
    kernel = op_kernel("reduce_sum", [(37,)], (), {"axes": (0,), "keepdims": False})
    done = schedule(kernel, V3)
    assert "stages" not in str(done.notes)
    assert_same(kernel, done, exact=False)
