"""What becomes of sums over an outer axis."""

import re

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from fakes.contractions import depthwise, groups_side_by_side
from fakes.loop_nests import assert_same, op_kernel
from tilewright.base.dtypes import f32
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, LoopKind, Space
from tilewright.compiler.kernel.rewrite import dim_symbols, loops, stores
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule
from tilewright.compiler.schedule.rules.columns import _slides
from tilewright.compiler.schedule.rules.structure import short_axis

V4 = MachineModel.of(Target.level("v4"))
V3 = MachineModel.of(Target.level("v3"))
LAST = {"epsilon": 1e-5, "layout": "NHWC"}


def norm(*shape):
    return op_kernel("instance_norm", [shape], shape, LAST)


@pytest.mark.parametrize(
    ("shape", "taken"),
    [((1, 64, 64, 17), False), ((1, 65, 64, 17), True), ((1, 1400, 3, 5), True)],
)
def test_a_norm_takes_subtotals_of_long_sums_only(shape, taken):
    changed = schedule(norm(*shape), V4)
    assert ("subtotal" in [name for name, _ in changed.trace]) == taken


@pytest.mark.slow
def test_subtotals_of_pieces_with_a_rest_change_nothing_but_last_digits():
    kernel = norm(1, 4100, 1, 3)
    assert_same(kernel, schedule(kernel, V4), exact=False)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("images", "channels", "size"), [(2, 17, 131), (1, 17, 131), (1, 5, 301), (3, 5, 131)]
)
def test_norms_of_large_images_between_convolutions_are_exact(images, channels, size):
    x = np.random.default_rng(5).random((images, channels, size, size), np.float32) + 3
    eye = np.eye(channels, dtype=np.float32)[:, :, None, None]
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    constants = {"w": eye, "s": ones, "b": zeros}
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("InstanceNormalization", ["c", "s", "b"], ["y"]),
    ]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, x.shape)]
        for name in "xy"
    )
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        outputs,
        initializer=[onnx.numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    ours = np.asarray(tilewright.compile(model, threads=1, jobs=1)(x))
    wide = x.astype(np.float64)
    centred = wide - wide.mean((2, 3), keepdims=True)
    exact = centred / np.sqrt((centred**2).mean((2, 3), keepdims=True) + 1e-5)
    # One running sum is off by 2e-5 and more.
    assert np.linalg.norm(ours - exact) < 5e-6 * np.linalg.norm(exact)


# --- rows side by side -------------------------------------------------------------------------


@pytest.mark.thinned(5)
@pytest.mark.parametrize("count", [1, 15, 16, 37])
@pytest.mark.parametrize("length", [2, 3, 8])
@pytest.mark.parametrize("machine", [V4, MachineModel.of(Target.level("v3"))], ids=str)
def test_short_rows_run_side_by_side_in_lanes(
    count: int, length: int, machine: MachineModel
):
    shape = (count, 3, length)
    kernel = op_kernel("softmax", [shape], shape, {"axis": -1})
    done = schedule(kernel, machine)
    fills = length <= short_axis(machine)
    assert (done.verdict.outcome is Outcome.COLUMNS) == fills
    assert_same(kernel, done, exact=False)


@pytest.mark.parametrize(("taps", "step"), [(8, 8), (3, 8), (6, 5), (9, 7)])
def test_windows_far_apart_run_in_lanes_across_windows(taps: int, step: int):
    count = (120 - taps) // step + 1
    attributes = {"kernel": (taps,), "strides": (step,), "pads": (0, 0), "layout": "NCHW"}
    kernel = op_kernel("average_pool", [(2, 3, 120)], (2, 3, count), attributes)
    done = schedule(kernel, V4)
    assert done.verdict.outcome is Outcome.COLUMNS
    assert_same(kernel, done, exact=False)


def test_long_windows_a_few_elements_apart_are_rows():
    attributes = {"kernel": (200,), "strides": (4,), "pads": (0, 0), "layout": "NCHW"}
    kernel = op_kernel("average_pool", [(2, 3, 1000)], (2, 3, 201), attributes)
    assert schedule(kernel, V4).verdict.outcome is Outcome.ROWS


@pytest.mark.parametrize(("step", "slides"), [(0, False), (1, True), (3, True)])
def test_a_window_slides_where_its_taps_and_its_place_are_one_index(
    step: int, slides: bool
) -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (5, 40, 8)), b.result("y", f32, (7, 8))
    with b.nest((7, 8), ("i", "j")) as (i, j), b.reduce((5,), ("k",)) as (k,):
        place = (0, i * step + k, j) if step else (k, i, j)
        b.accumulate("add", y, (i, j), b.load(x, place))
    inner = next(loop for loop in loops(b.build().body) if loop.var.name == "j")
    assert _slides(inner, "i") == slides


def test_lanes_of_sums_over_an_outer_axis_are_several_vectors() -> None:
    kernel = op_kernel("reduce_sum", [(50, 640)], (640,), {"axes": (0,), "keepdims": False})
    changed = schedule(kernel, V4)
    assert "columns rows=0 vectors=2 " in kernel_text(changed)
    assert_same(kernel, changed)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("width", [1, 3, 4, 7])
def test_windows_left_over_in_a_row_of_any_length_run_in_lanes(width):
    w = symbol("W", 1)
    shapes, result = [(1, 5, w + 2, 32), (3, 3, 32)], (1, 3, w, 32)
    kernel = op_kernel("contract", shapes, result, depthwise())
    machine = MachineModel.of(Target.level("v3"))
    changed = schedule(kernel, machine)
    assert_same(kernel, changed, {"W": width}, exact=False)
    lanes = {loop.var.name for loop in loops(changed.body) if loop.kind is LoopKind.VECTOR}
    alone = [
        store
        for store in stores(changed.body)
        if lanes.isdisjoint(name.name for i in store.indices for name in dim_symbols(i))
    ]
    assert alone == []


@pytest.mark.thinned(2)
@pytest.mark.parametrize("target", ["x86_64-v4", "x86_64-v3", "x86_64 -mcpu=znver4"])
def test_windows_left_over_are_computed_together_whatever_their_number(target):
    w = symbol("W", 1)
    shapes, result = [(1, 4, w + 2, 64), (3, 3, 64)], (1, 2, w, 64)
    kernel = op_kernel("contract", shapes, result, depthwise())
    changed = schedule(kernel, MachineModel.of(Target.parse(target)))
    together = {b.shape[0] for b in changed.locals if b.name.startswith("acc")}
    assert together == {4, 3, 2, 1}
    for width in (1, 2, 3, 5, 14):
        assert_same(kernel, changed, {"W": width}, exact=False)


def grouped(groups: int, depth: int, filters: int, step: int, places: Dim) -> Kernel:
    shapes = [(1, 7, step * places + 2, groups * depth), (3, 3, depth, groups, filters)]
    result = (1, 4 // step + 1, places, groups * filters)
    return op_kernel("contract", shapes, result, groups_side_by_side(strides=(step, step)))


@pytest.mark.sampled(2)
@pytest.mark.thinned(7)
@pytest.mark.parametrize(
    ("groups", "depth", "filters"),
    [(8, 4, 4), (10, 4, 4), (9, 2, 2), (5, 8, 8), (12, 2, 4)],
)
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("level", ["v3", "v4"])
def test_vectors_hold_the_filters_of_several_groups(
    groups: int, depth: int, filters: int, step: int, level: str
) -> None:
    machine = MachineModel.of(Target.level(level))
    if 2 * filters > machine.lanes(f32):
        pytest.skip("one group fills a vector")
    for places, sizes in ((6, {}), (symbol("W", 1), {"W": 6})):
        kernel = grouped(groups, depth, filters, step, places)
        changed = schedule(kernel, machine)
        assert "columns: window of" in kernel_text(changed)
        assert_same(kernel, changed, sizes, exact=False)


def test_groups_of_a_single_place_share_vectors() -> None:
    """Nothing but groups and filters is left around the sum."""
    shapes = [(1, 1, 1, 128), (1, 1, 4, 32, 4)]
    kernel = op_kernel("contract", shapes, (1, 1, 1, 128), groups_side_by_side())
    changed = schedule(kernel, V4)
    assert "columns: window of" in kernel_text(changed)
    assert_same(kernel, changed, exact=False)


def test_groups_whose_filters_fill_vectors_are_products_of_their_own() -> None:
    for groups, depth, filters in ((4, 4, 16), (8, 9, 4), (8, 4, 3)):
        changed = schedule(grouped(groups, depth, filters, 1, 6), V4)
        assert "filter" not in kernel_text(changed)


@pytest.mark.parametrize(("size", "far"), [(14, False), (200, True)])
def test_places_of_a_large_image_are_read_in_order(size: int, far: bool) -> None:
    """Beyond the second level cache all channels of a place come before the next place."""
    shapes, result = [(1, size + 2, size + 2, 96), (3, 3, 96)], (1, size, size, 96)
    kernel = schedule(op_kernel("contract", shapes, result, depthwise()), V4)
    text = kernel_text(kernel)
    assert f"places={'yes' if far else 'no'}" in text
    order = [loop.var.name for loop in loops(kernel.body)]
    vectors = next(name for name in order if name.startswith("c_t"))
    places = next(name for name in order if name.startswith("ow_t"))
    assert (order.index(places) < order.index(vectors)) == far


@pytest.mark.thinned(3)
@pytest.mark.parametrize("columns", [24, 32, 64, 101])
def test_cheap_passes_over_columns_have_several_vectors(columns: int) -> None:
    """Each addition waits for the one before, and a line of memory has more than one vector."""
    kernel = op_kernel("cumsum", [(37, columns)], (37, columns), {"axis": 0})
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    assert_same(kernel, changed)
    vectors = [x.extent for x in loops(changed.body) if x.kind is LoopKind.VECTOR]
    assert max(vectors) == {24: 16, 32: 32, 64: 64, 101: 64}[columns]
    assert sum(vectors) == {24: 16 + 8, 32: 32, 64: 64, 101: 64 + 8 + 5}[columns]


def test_passes_of_many_steps_keep_to_one_vector() -> None:
    kernel = op_kernel("softmax", [(9, 64)], (9, 64), {"axis": 0})
    changed = schedule(kernel, MachineModel.of(Target.level("v3")))
    assert_same(kernel, changed)
    assert {x.extent for x in loops(changed.body) if x.kind is LoopKind.VECTOR} == {8}


OPEN_SIZES = (1, 2, 3, 4, 7, 8, 9, 17, 33, 64, 65)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("size", OPEN_SIZES)
@pytest.mark.parametrize("op", ["max_pool", "average_pool"])
@pytest.mark.parametrize("height", [symbol("H", 1), 6])
def test_the_last_tile_of_an_open_length_begins_where_it_is_whole(op, height, size):
    shape = (2, 3, height, symbol("W", 1))
    window = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "layout": "NCHW"}
    kernel = op_kernel(op, [shape], shape, window)
    changed = schedule(kernel, V3)
    text = kernel_text(changed)
    whole = text[: text.index("if (index<i64>(W) < 9)")]
    assert re.search(r"W \+ lane\w* - 8|lane\w* \+ W - 8", whole)
    assert " < index<i64>(W)" not in whole
    assert ("min((H - 4), 4*i2_t)" in text) == (height != 6)
    for tall in (1, 3, 4, 5, 9):
        assert_same(kernel, changed, {"W": size, "H": tall}, exact=False)


# --- windows with a border ---------------------------------------------------------------------


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("layout", "shape", "decided"),
    [
        ("NCHW", (1, 2, 40, 56), "vectors=1 places=no interior=yes"),
        ("NCHW", (1, 2, 40, 20), "vectors=2 places=no interior=no"),
        (
            "NCHW",
            (1, 2, symbol("H", 1), symbol("W", 1)),
            "vectors=1 places=yes interior=yes",
        ),
        ("NHWC", (1, 40, 56, 64), "vectors=2 places=no interior=yes"),
    ],
)
def test_only_lanes_that_may_be_outside_are_one_vector_at_a_time(layout, shape, decided):
    window = {"kernel": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1), "layout": layout}
    done = schedule(op_kernel("max_pool", [shape], shape, window), V3)
    assert decided in done.notes[-1]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("batch", [1, 2, symbol("n", 1)])
@pytest.mark.parametrize("machine", [V3, V4], ids=["v3", "v4"])
def test_squares_of_what_is_computed_are_summed_in_lanes_of_the_channels(batch, machine):
    """A value that is multiplied by itself stands in no temporary, which a sum over images would be made around."""
    size = (batch, 9, 7, 8)
    b = KernelBuilder("variance")
    x, mean = b.parameter("x", f32, size), b.parameter("mean", f32, (batch, 8))
    off, out = b.temporary(f32, size, "off"), b.result("y", f32, (batch, 8))
    square, total = b.temporary(f32, size, "square"), b.temporary(f32, (batch, 8), "total")
    with b.nest(size) as at:
        b.store(off, at, b.sub(b.load(x, at), b.load(mean, (at[0], at[3]))))
    with b.nest(size) as at:
        b.store(square, at, b.mul(b.load(off, at), b.load(off, at)))
    with b.nest((batch, 8)) as (n, c):
        b.store(total, (n, c), 0)
        with b.reduce((9, 7)) as (i, j):
            b.accumulate("add", total, (n, c), b.load(square, (n, i, j, c)))
    with b.nest((batch, 8)) as (n, c):
        b.write(out, (n, c), b.div(b.load(total, (n, c)), 63))
    kernel = b.build()
    changed = schedule(kernel, machine)
    assert changed.verdict.outcome is Outcome.COLUMNS
    assert_same(kernel, changed, exact=False, dims={"n": 3})


@pytest.mark.parametrize("machine", [V3, V4])
def test_a_sum_of_open_axes_waits_in_registers(machine: MachineModel) -> None:
    """A store that may never run keeps code generators from holding a total outside of memory."""
    h, w, c = symbol("h", 0), symbol("w", 0), symbol("c", 1)
    axes = {"axes": (0, 1), "keepdims": False}
    kernel = op_kernel("reduce_sum", [(h, w, c)], (c,), axes)
    changed = schedule(kernel, machine)
    totals = {
        a.buffer.space for x in loops(changed.body) if x.reduction for a in stores(x.body)
    }
    assert totals == {Space.REGISTER}
    for sizes in ((3, 5, 70), (0, 4, 3), (4, 0, 17), (1, 1, 1), (2, 9, 64), (5, 3, 33)):
        assert_same(kernel, changed, dims=dict(zip("hwc", sizes, strict=True)))
