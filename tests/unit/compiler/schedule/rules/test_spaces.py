"""Every point of every space computes what the naive kernel computes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from fakes.contractions import convolution as packed_convolution
from fakes.contractions import depthwise as channels_alone
from fakes.contractions import groups_side_by_side, planar
from fakes.contractions import product as packed_product
from fakes.loop_nests import assert_same, emit, op_kernel
from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i32, i64, u8
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.machine_model import ElementTimes, MachineModel
from tilewright.compiler.schedule.rules import Decisions, schedule, space_of
from tilewright.compiler.schedule.rules.tilings import Tiling
from tilewright.compiler.transforms.contract_forms import product_in_panels

MACHINES = {
    name: MachineModel.of(Target.parse(text))
    for name, text in {
        "v1": "v1",
        "v2": "v2",
        "v3": "v3",
        "v4": "v4",
        "haswell": "x86_64 -mcpu=haswell",
        "alder": "x86_64 -mcpu=alderlake",
        "sapphire": "x86_64 -mcpu=sapphirerapids",
        "zen4": "x86_64 -mcpu=znver4",
        "a72": "aarch64 -mcpu=cortex-a72",
        "n2": "aarch64 -mcpu=neoverse-n2",
        "m1": "aarch64 -mcpu=apple-m1 -mattr=+i8mm,+bf16",
        "any": "x86_64 -mcpu=any",
    }.items()
}
M, N = symbol("M", 0), symbol("N", 0)
POINTS = 5000


def fused(rows: Dim, columns: int, depth: int, panel: int) -> Kernel:
    """`relu(a w + bias)`, weights packed."""
    b = KernelBuilder("fused")
    a = b.parameter("a", f32, (rows, depth))
    w = b.parameter("w", f32, (-(-columns // panel), depth, panel))
    bias, y = b.parameter("bias", f32, (columns,)), b.result("y", f32, (rows, columns))
    t, u = (b.temporary(f32, (rows, columns)) for _ in range(2))
    emit(b, "contract", packed_product(columns), [a, w], t)
    emit(b, "add", {}, [t, bias], u)
    emit(b, "relu", {}, [u], y)
    return b.build()


def in_bands(rows: int, columns: int, channels: int, filters: int, panel: int) -> Kernel:
    """A product with each place of a depthwise convolution's result."""
    b = KernelBuilder("bands")
    x = b.parameter("x", f32, (1, rows + 2, columns + 2, channels))
    taps = b.parameter("taps", f32, (3, 3, channels))
    w = b.parameter("w", f32, (-(-filters // panel), channels, panel))
    y = b.result("y", f32, (rows * columns, filters))
    image, matrix = (1, rows, columns, channels), (rows * columns, channels)
    s, t, u = (b.temporary(f32, shape) for shape in (image, image, matrix))
    emit(b, "contract", channels_alone(), [x, taps], s)
    emit(b, "relu", {}, [s], t)
    emit(b, "reshape", {"shape": matrix}, [t], u)
    emit(b, "contract", packed_product(filters), [u, w], y)
    return b.build()


def blocks(rows: Dim, columns: int, panel: int, *, zero: bool = False) -> Kernel:
    """`a w` with 4 bits to a weight, two blocks of two words."""
    b = KernelBuilder("blocks")
    panels = -(-columns // panel)
    shape = (panels, 2, panel)
    operands = [
        b.parameter("a", f32, (rows, 32)),
        b.parameter("w", i32, (panels, 4, panel)),
        b.parameter("scale", f32, shape),
        *([b.parameter("zero", u8, shape)] if zero else []),
    ]
    y = b.result("y", f32, (rows, columns))
    emit(b, "matmul_blocks", {"columns": (columns,), "bits": 4}, operands, y)
    return b.build()


def long_words(rows: Dim, columns: int, panel: int) -> Kernel:
    """`a w` of bytes, eight to a word."""
    b = KernelBuilder("long")
    a = b.parameter("a", i64, (rows, 3))
    w = b.parameter("w", i64, (-(-columns // panel), 3, panel))
    y = b.result("y", i32, (rows, columns))
    emit(b, "contract", packed_product(columns, product="long_bytes"), [a, w], y)
    return b.build()


def convolution(size: int, filters: int, panel: int, step: int) -> Kernel:
    """A convolution of three colours whose result has a border."""
    b = KernelBuilder("convolution")
    x = b.parameter("x", f32, (1, size, size + 1, 3))
    w = b.parameter("w", f32, (1, -(-filters // panel), 3, 3, 3, panel))
    rows, columns = ((n - 3) // step + 1 for n in (size, size + 1))
    t = b.temporary(f32, (1, rows, columns, filters))
    y = b.result("y", f32, (1, rows + 2, columns + 2, filters))
    emit(b, "contract", packed_convolution(filters, strides=(step, step)), [x, w], t)
    emit(b, "pad", {"pads": (0, 1, 1, 0, 0, 1, 1, 0), "mode": "constant"}, [t], y)
    return b.build()


def padded(rows: Dim, columns: int, fill: int) -> Kernel:
    """A product whose rows are longer than it: what is behind them is 0."""
    b = KernelBuilder("padded")
    a = b.parameter("a", f32, (rows, 7))
    w = b.parameter("w", f32, (-(-columns // 16), 7, 16))
    t = b.temporary(f32, (rows, columns))
    y = b.result("y", f32, (rows, columns + fill))
    emit(b, "contract", packed_product(columns), [a, w], t)
    emit(b, "pad", {"pads": (0, 0, 0, fill), "mode": "constant"}, [t], y)
    return b.build()


def depthwise(size: int, channels: int, step: int) -> Kernel:
    out = (size - 3) // step + 1
    shapes = [(1, size, size, channels), (3, 3, channels)]
    result = (1, out, out, channels)
    return op_kernel("contract", shapes, result, channels_alone(strides=(step, step)))


def few_columns(panel: int) -> Kernel:
    """Columns behind the last panel lie where they lay: half a panel of them, or fewer."""
    few = panel // 2
    left, packed = (M, 5), ((N + panel - few - 1) // panel, 5, panel)
    form = product_in_panels(left, packed, N, least=few + 1)
    return op_kernel("contract", [left, packed, (5, N)], (M, N), form)


def reduction(op: str, shape: tuple[Dim, ...], axes: tuple[int, ...]) -> Kernel:
    kept = [1 if axis in axes else n for axis, n in enumerate(shape)]
    return op_kernel(op, [shape], kept, {"axes": axes, "keepdims": True})


def softmax(shape: tuple[Dim, ...], axis: int) -> Kernel:
    return op_kernel("softmax", [shape], shape, {"axis": axis})


def attention(
    rows: Dim, keys: Dim, *, bias: tuple[int, ...] | None = None, **attributes: object
) -> Kernel:
    shapes = [(1, 2, rows, 2), (1, 1, keys, 2), (1, 1, keys, 3)]
    if bias is not None:
        shapes.append(bias)
    return op_kernel("attention", shapes, (1, 2, rows, 3), attributes)


def transpose(shape: tuple[Dim, ...], perm: tuple[int, ...]) -> Kernel:
    return op_kernel("transpose", [shape], [shape[p] for p in perm], {"perm": perm})


def unary(shape: tuple[Dim, ...]) -> Kernel:
    return op_kernel("relu", [shape], shape)


def pool(shape: tuple[int, ...], kernel: int, step: int) -> Kernel:
    *outer, last = shape
    attributes = {"kernel": (kernel,), "strides": (step,), "pads": (0, 0), "layout": "NCHW"}
    return op_kernel("max_pool", [shape], (*outer, (last - kernel) // step + 1), attributes)


def padded_pool(
    op: str, height: Dim, width: Dim, step: int, layout: str = "NCHW"
) -> Kernel:
    """Windows of 3 x 3 of an image with a border of 1."""
    steps = {"strides": (step, step), "pads": (1, 1, 1, 1), "layout": layout}
    sizes = [symbolic.floordiv(n - 1, step) + 1 for n in (height, width)]
    first, last = ((2,), ()) if layout == "NCHW" else ((), (29,))
    shape, result = ((1, *first, *image, *last) for image in ([height, width], sizes))
    return op_kernel(op, [shape], result, {"kernel": (3, 3), **steps})


KERNELS: Mapping[str, Callable[[], Kernel]] = {
    "product": lambda: fused(13, 40, 5, 32),
    "product of one column": lambda: fused(5, 1, 7, 16),
    "product of one row": lambda: fused(1, 161, 6, 32),
    "product without steps": lambda: fused(3, 20, 0, 16),
    "product without rows": lambda: fused(0, 20, 4, 16),
    "product of open rows": lambda: fused(M, 37, 5, 16),
    "product of open sizes": lambda: op_kernel("matmul", [(M, 5), (5, N)], (M, N)),
    "row of open columns": lambda: op_kernel("matmul", [(1, 5), (5, N)], (1, N)),
    "product of few open columns": lambda: few_columns(32),
    "products": lambda: op_kernel("matmul", [(2, 7, 5), (2, 5, 33)], (2, 7, 33)),
    "product of rows with gaps": lambda: op_kernel(
        "contract", [(7, 19), (2, 16, 32)], (7, 40), packed_product(40)
    ),
    "product of many steps": lambda: op_kernel(
        "contract", [(7, 16), (2, 16, 32)], (7, 40), packed_product(40)
    ),
    "product of words": lambda: blocks(3, 9, 8),
    "product of many rows of words": lambda: blocks(11, 19, 8, zero=True),
    "product of open rows of words": lambda: blocks(M, 35, 16, zero=True),
    "row times words": lambda: blocks(1, 35, 16, zero=True),
    "product of long words": lambda: long_words(13, 37, 12),
    "product of long words and open rows": lambda: long_words(M, 20, 8),
    "product of several panels": lambda: fused(13, 100, 5, 16),
    "product of parts of panels": lambda: fused(7, 70, 3, 32),
    "product of full panels": lambda: fused(M, 96, 5, 16),
    "product and a border behind short rows": lambda: padded(13, 3, 1),
    "product and a border behind rows": lambda: padded(M, 37, 11),
    "convolution": lambda: convolution(5, 9, 8, 1),
    "convolution of several panels": lambda: convolution(5, 37, 16, 2),
    "strided convolution": lambda: convolution(7, 5, 4, 2),
    "planar convolution": lambda: op_kernel(
        "contract", ((3, 2, 3, 2), (2, 3, 63)), (2, 2, 41), planar(41, steps=(20, 1))
    ),
    "depthwise": lambda: depthwise(9, 21, 1),
    "small groups": lambda: op_kernel(
        "contract",
        [(1, 5, 9, 20), (3, 3, 4, 5, 4)],
        (1, 3, 7, 20),
        groups_side_by_side(),
    ),
    "depthwise and a product in bands": lambda: in_bands(4, 3, 9, 20, 16),
    "depthwise of one channel": lambda: depthwise(8, 1, 2),
    "windows": lambda: pool((2, 3, 37), 3, 2),
    "windows far apart": lambda: pool((2, 3, 61), 3, 7),
    "padded windows": lambda: padded_pool("average_pool", 5, 43, 1),
    "padded windows of channels": lambda: padded_pool("average_pool", 5, 6, 1, "NHWC"),
    "padded windows of channels and open sizes": lambda: padded_pool(
        "max_pool", M, N, 2, "NHWC"
    ),
    "padded windows far apart": lambda: padded_pool("max_pool", 7, 61, 2),
    "padded windows of open sizes": lambda: padded_pool("average_pool", M, N, 1),
    "padded windows far apart of open sizes": lambda: padded_pool("max_pool", M, N, 2),
    "sum of rows": lambda: reduction("reduce_sum", (5, 67), (1,)),
    "sum of columns": lambda: reduction("reduce_sum", (9, 67), (0,)),
    "sum of open columns": lambda: reduction("reduce_sum", (M, N), (0,)),
    "sum of an open axis inside": lambda: reduction("reduce_max", (3, M, 5, N), (1,)),
    "sum of short rows": lambda: reduction("reduce_sum", (19, 3), (1,)),
    "sum of open rows": lambda: reduction("reduce_max", (M, N), (1,)),
    "mean of nothing": lambda: reduction("reduce_sum", (0, 5), (1,)),
    "softmax": lambda: softmax((3, 5, 41), 2),
    "softmax of columns": lambda: softmax((4, 6, 19), 1),
    "softmax of open rows": lambda: softmax((M, N), 1),
    "attention": lambda: attention(37, 5),
    "attention of several blocks": lambda: attention(5, 133),
    "causal attention": lambda: attention(37, 37, causal=(0,)),
    "biased attention": lambda: attention(19, 21, bias=(1, 1, 19, 21)),
    "attention of open sizes": lambda: attention(M, N),
    "causal attention of open sizes": lambda: attention(M, M, causal=(0,)),
    "attention of one row": lambda: attention(1, 37),
    "attention of few rows": lambda: attention(3, 21, bias=(1, 1, 3, 21)),
    "attention of one row and open keys": lambda: attention(1, N, causal=(130,)),
    "norm": lambda: op_kernel(
        "instance_norm", [(2, 5, 4, 17)], (2, 5, 4, 17), {"epsilon": 1e-5, "layout": "NHWC"}
    ),
    "transposition": lambda: transpose((33, 70), (1, 0)),
    "transposition of axes": lambda: transpose((3, 17, 21), (1, 2, 0)),
    "open transposition": lambda: transpose((M, 3, N), (2, 1, 0)),
    "panels": lambda: op_kernel("pack_panels", [(19, 70)], (3, 19, 24), {"panel": 24}),
    "element": lambda: unary(()),
    "nothing": lambda: unary((3, 0)),
    "elements": lambda: unary((7, 43)),
    "open elements": lambda: unary((M, 3, N)),
    "broadcast": lambda: op_kernel("add", [(4, 1, 9), (1, 5, 9)], (4, 5, 9)),
    "running sum": lambda: op_kernel("cumsum", [(5, 19)], (5, 19), {"axis": 1}),
}
OPEN_SIZES = [{"M": 5, "N": 23}, {"M": 1, "N": 33}, {"M": 17, "N": 1}, {"M": 0, "N": 7}]


def assert_points_agree(name: str, level: str, count: int) -> None:
    """`count` points picked by chance, and the best one, print, parse and compute the same."""
    kernel, machine = KERNELS[name](), MACHINES[level]
    space, chance = space_of(kernel, machine, threads=2), random.Random(f"{name} {level}")
    for point in (space.best(), *(space.sample(chance) for _ in range(count))):
        again = Decisions.parse(point.to_text())
        assert again == point
        done = schedule(kernel, machine, threads=2, decisions=again)
        assert done.notes[-1] == f"decided: {point}"
        dims = chance.choice(OPEN_SIZES) if kernel.dims else None
        assert_same(kernel, done, dims, exact=False)


LONG_CODE = {
    "attention of several blocks",
    "causal attention",
    "biased attention",
    "attention of open sizes",
    "attention of few rows",
    "attention of one row and open keys",
    "causal attention of open sizes",
}
"""Kernels that take a second to schedule and evaluate; `slow` has them all, at fewer points."""
_LONG_SHARE = 0.2


def points_of(name: str) -> int:
    """How many points of a kernel's space are tried on each machine, so that all together are `POINTS`."""
    shares = {other: _LONG_SHARE if other in LONG_CODE else 1.0 for other in KERNELS}
    return math.ceil(POINTS * shares[name] / (sum(shares.values()) * len(MACHINES)))


@pytest.mark.sampled(4)
@pytest.mark.thinned(17)
@pytest.mark.parametrize("name", [name for name in KERNELS if name not in LONG_CODE])
def test_a_point_of_each_space_computes_the_same(name: str) -> None:
    assert_points_agree(name, random.Random(name).choice([*MACHINES]), 1)


@pytest.mark.sampled(141)
@pytest.mark.parametrize("level", MACHINES)
@pytest.mark.parametrize("name", KERNELS)
def test_any_point_of_any_space_computes_the_same(name: str, level: str) -> None:
    assert_points_agree(name, level, points_of(name))


def test_loops_that_are_one_may_have_no_iteration() -> None:
    kernel = transpose((M, 3, N), (2, 1, 0))
    decided = Decisions.parse("pointwise vectors=1 squares=yes rows=no work=8333")
    done = schedule(kernel, MACHINES["v2"], threads=2, decisions=decided)
    assert_same(kernel, done, {"M": 0, "N": 7})


# --- spaces ------------------------------------------------------------------------------------


def test_neighbours_are_other_points_of_the_same_space() -> None:
    space = space_of(KERNELS["product"](), MACHINES["v3"])
    best = space.best()
    near = [*space.neighbours(best)]
    assert best not in near
    assert len(set(near)) == len(near) > 10
    for point in near:
        (one,), (checked,) = point.nests, space.nests
        assert checked.check(one) == one


def test_a_choice_that_no_longer_fits_is_made_again() -> None:
    kernel = op_kernel("matmul", [(64, 50), (50, 200)], (64, 200))
    (space,) = space_of(kernel, MACHINES["v4"]).nests
    wide = space.best({"columns": 64})
    narrow = space.best({"columns": 16, "rows": (29,)})
    assert (wide.columns, narrow.columns, narrow.rows) == (64, 16, (29,))
    assert space.best({"columns": 64, "rows": (29,)}) == wide


def test_points_of_a_small_space_are_all_there_and_fit() -> None:
    space = space_of(unary((7, 43)), MACHINES["v3"])
    points = [*space.points()]
    assert len(set(points)) == len(points) > 10
    assert space.best() in points


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("columns", "panel", "lanes"),
    [(24, 32, 8), (33, 48, 8), (4, 16, 8), (32, 32, 0), (16, 16, 0), (30, 32, 0)],
)
def test_columns_that_leave_half_a_vector_are_computed_in_halves(
    columns: int, panel: int, lanes: int
) -> None:
    kernel = fused(31, columns, 96, panel)
    best = space_of(kernel, MACHINES["zen4"]).best()
    (tiling,) = best.nests
    assert isinstance(tiling, Tiling)
    assert tiling.lanes == lanes
    done = schedule(kernel, MACHINES["zen4"], decisions=best)
    assert_same(kernel, done, exact=False)
    (usual,) = space_of(kernel, MACHINES["v4"]).best().nests
    assert isinstance(usual, Tiling)
    assert usual.lanes == 0


def test_halves_leave_room_for_their_sums() -> None:
    (space,) = space_of(fused(200, 40, 9, 48), MACHINES["zen4"]).nests
    chance = random.Random(40)
    points = [space.sample(chance) for _ in range(200)]
    points = [p for p in points if isinstance(p, Tiling) and p.lanes]
    assert points
    registers = MACHINES["zen4"].vector_registers
    assert all(math.prod(p.rows) * 5 + 5 + 1 <= registers for p in points)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("kernel", "size", "reached"),
    [
        (lambda: unary((1 << 20,)), "work", "pointwise"),
        (lambda: softmax((4096, 33), 1), "block", "row"),
        (lambda: reduction("reduce_sum", (64, 1 << 20), (0,)), "work", "column"),
        (lambda: fused(2000, 100, 50, 16), "tiles", "flop"),
    ],
    ids=["pointwise", "rows", "columns", "tiles"],
)
def test_workgroups_are_sized_by_the_times_of_the_machine(
    kernel: Callable[[], Kernel], size: str, reached: str
) -> None:
    machine, sizes = MACHINES["v3"], []
    for slower in (1, 10):
        times = replace(
            ElementTimes(), **{reached: slower * getattr(ElementTimes(), reached)}
        )
        (nest,) = space_of(kernel(), replace(machine, elements=times)).best().nests
        sizes.append(getattr(nest, size))
    assert 1 <= sizes[1] < sizes[0]


def test_tiles_take_several_panels_or_a_part_of_one() -> None:
    (wide,) = space_of(fused(200, 1000, 50, 16), MACHINES["v4"]).best().nests
    assert isinstance(wide, Tiling)
    assert wide.columns in (32, 48, 64)
    (narrow,) = space_of(fused(200, 1000, 50, 64), MACHINES["v2"]).best().nests
    assert isinstance(narrow, Tiling)
    assert narrow.columns < 64


def test_panels_that_are_no_whole_vectors_are_tiles() -> None:
    (space,) = space_of(fused(20, 70, 5, 24), MACHINES["v4"]).nests
    assert {point.columns for point in space.points()} == {32}


def test_what_is_decided_is_what_the_rules_decide() -> None:
    kernel = convolution(9, 20, 16, 1)
    best = space_of(kernel, MACHINES["v4"], threads=2).best()
    assert len(best.nests) > 1  # the product, and the borders
    done = schedule(kernel, MACHINES["v4"], threads=2, decisions=best)
    assert done.trace == schedule(kernel, MACHINES["v4"], threads=2).trace


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"columns": 24}, "'columns=24' does not fit this nest, expected one of 16 32"),
        ({"rows": (99,)}, "'rows=[99]' does not fit this nest"),
        ({"streams": 2}, "'streams=2' does not fit"),
    ],
)
def test_decisions_that_do_not_fit_are_refused(
    change: Mapping[str, Any], text: str
) -> None:
    kernel = fused(13, 40, 5, 32)
    (best,) = space_of(kernel, MACHINES["v4"]).best().nests
    with pytest.raises(ScheduleError) as caught:
        schedule(kernel, MACHINES["v4"], decisions=Decisions((replace(best, **change),)))
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("contract columns=32", "there is no rule 'contract'"),
        ("contraction column=32", "'contraction' decides nothing called 'column'"),
        ("contraction rows=7", "'7' is no value of 'rows'"),
        ("contraction prefetch=1", "'1' is no value of 'prefetch'"),
    ],
)
def test_text_that_is_no_decision_is_refused(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Decisions.parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "rows block=1", "generic; generic"])
def test_decisions_for_other_nests_are_refused(text: str) -> None:
    with pytest.raises(ScheduleError):
        schedule(unary((5, 9)), MACHINES["v4"], decisions=Decisions.parse(text))
