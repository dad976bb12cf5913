from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pytest

from fakes.contractions import convolution as packed_convolution
from fakes.contractions import depthwise, planar
from fakes.contractions import product as packed_product
from fakes.loop_nests import assert_same, body_text, emit, op_kernel, run
from tilewright.base.dtypes import f32, i32
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.grid import grid_loops
from tilewright.compiler.kernel.ir import Kernel, LoopKind, Space
from tilewright.compiler.kernel.rewrite import loops, stores
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule
from tilewright.compiler.schedule.rules.prepare import WRITTEN_LIMIT
from tilewright.compiler.schedule.rules.structure import written_size

V4, V3, V2 = (MachineModel.of(Target.level(name)) for name in ("v4", "v3", "v2"))
ZEN4 = MachineModel.of(Target.parse("x86_64 -mcpu=znver4"))
M, N = symbol("M", 1), symbol("N", 1)


def fused(columns: int = 40, rows: Dim = 19, depth: int = 21, panel: int = 32) -> Kernel:
    """`relu(a w + bias + r)`, weights packed."""
    b = KernelBuilder("fused")
    a = b.parameter("a", f32, (rows, depth))
    w = b.parameter("w", f32, (-(-columns // panel), depth, panel))
    bias, r = b.parameter("bias", f32, (columns,)), b.parameter("r", f32, (rows, columns))
    y = b.result("y", f32, (rows, columns))
    t, u, v = (b.temporary(f32, (rows, columns)) for _ in range(3))
    emit(b, "contract", packed_product(columns), [a, w], t)
    emit(b, "add", {}, [t, bias], u)
    emit(b, "add", {}, [u, r], v)
    emit(b, "relu", {}, [v], y)
    return b.build()


def convolution(
    image: Sequence[Dim],
    kernel: int,
    out: int,
    panel: int,
    *,
    stride: int = 1,
    pad: int = 0,
) -> Kernel:
    """A convolution whose result is padded for the next one."""
    b = KernelBuilder("convolution")
    n, h, w_, c = image
    x = b.parameter("x", f32, (n, h, w_, c))
    w = b.parameter("w", f32, (1, -(-out // panel), kernel, kernel, c, panel))
    rows, columns = ((s - kernel) // stride + 1 for s in (h, w_))
    t = b.temporary(f32, (n, rows, columns, out))
    y = b.result("y", f32, (n, rows + 2 * pad, columns + 2 * pad, out))
    emit(b, "contract", packed_convolution(out, strides=(stride, stride)), [x, w], t)
    emit(b, "pad", {"pads": (0, pad, pad, 0, 0, pad, pad, 0), "mode": "constant"}, [t], y)
    return b.build()


def kinds(kernel: Kernel) -> set[LoopKind]:
    return {loop.kind for loop in loops(kernel.body)}


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("rows", "depth", "words", "written_out"),
    [(28, 3, False, True), (4, 16, False, True), (28, 16, False, False),
     (29, 17, False, True), (29, 20, False, False), (28, 3, True, True), (28, 16, True, False)],
)  # fmt: skip
def test_sums_are_written_out_unless_much_would_wait_for_registers(
    rows: int, depth: int, words: bool, written_out: bool
) -> None:
    b, dtype = KernelBuilder("short"), i32 if words else f32
    a = b.parameter("a", dtype, (rows, depth))
    w = b.parameter("w", dtype, (1, depth, 32))
    y = b.result("y", dtype, (rows, 32))
    kind = {"product": "bytes"} if words else {}
    emit(b, "contract", packed_product(32, **kind), [a, w], y)
    kernel = b.build()
    changed = schedule(kernel, V4)
    sums = [loop for loop in loops(changed.body) if loop.reduction]
    assert all(loop.kind is not LoopKind.SERIAL for loop in sums) is written_out
    assert_same(kernel, changed)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("rows", [1, 2, 13, 14, 29])
@pytest.mark.parametrize("columns", [5, 32, 40, 64])
def test_a_fused_product_becomes_register_tiles(rows: int, columns: int) -> None:
    kernel = fused(columns, rows)
    changed = schedule(kernel, V4)
    assert LoopKind.VECTOR in kinds(changed)
    assert any(b.space is Space.REGISTER and len(b.shape) >= 2 for b in changed.locals)
    assert "contraction" in changed.notes[0]
    assert_same(kernel, changed)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rows", [1, 3, 12, 13, 30])
def test_a_product_with_open_rows_handles_every_remainder(rows: int) -> None:
    kernel = fused(40, M)
    assert_same(kernel, schedule(kernel, V4), {"M": rows})


@pytest.mark.thinned(4)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (5, 37), (14, 64), (20, 100)])
def test_an_unpacked_product_with_open_rows_and_columns(m: int, n: int) -> None:
    kernel = op_kernel("matmul", [(M, 9), (9, N)], (M, N))
    assert_same(kernel, schedule(kernel, V4), {"M": m, "N": n})


@pytest.mark.thinned(5)
@pytest.mark.parametrize("depth", [1, 3, 4, 9, 33, 70])
@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_split_the_sum(depth: int, rows: int) -> None:
    kernel = fused(20, rows, depth)
    assert_same(kernel, schedule(kernel, V4), exact=False)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("machine", [V4, V3, V2], ids=str)
@pytest.mark.parametrize(
    ("image", "kernel", "out", "panel", "stride"),
    [
        ((1, 7, 9, 3), 3, 40, 32, 1),
        ((2, 9, 10, 3), 3, 16, 16, 2),
        ((1, 13, 14, 3), 7, 20, 16, 2),
        ((1, 17, 6, 2), 3, 64, 64, 1),
    ],
)
def test_convolutions_read_the_image_in_place(
    image: Sequence[int],
    kernel: int,
    out: int,
    panel: int,
    stride: int,
    machine: MachineModel,
) -> None:
    naive = convolution(image, kernel, out, panel, stride=stride)
    changed = schedule(naive, machine)
    assert changed.notes[0].startswith("contraction")
    assert_same(naive, changed)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("per_group", "panel"), [(25, 32), (34, 32), (68, 48), (20, 16)])
def test_groups_that_fill_no_whole_panels_are_tiled_with_their_epilogue(
    per_group: int, panel: int
) -> None:
    b = KernelBuilder("grouped")
    groups, depth = 3, 5
    columns = groups * per_group
    x = b.parameter("x", f32, (1, 4, 7, groups * depth))
    panels = -(-per_group // panel)
    w = b.parameter("w", f32, (groups, panels, 1, 1, depth, panel))
    bias = b.parameter("bias", f32, (columns,))
    t = b.temporary(f32, (1, 4, 7, columns))
    y = b.result("y", f32, (1, 4, 7, columns))
    emit(b, "contract", packed_convolution(columns, groups=groups), [x, w], t)
    emit(b, "add", {}, [t, bias], y)
    naive = b.build()
    changed = schedule(naive, V4)
    assert changed.notes[0].startswith("contraction")
    assert t not in changed.locals
    assert_same(naive, changed)


@pytest.mark.slow
def test_one_filter_is_tiled_and_shared_out() -> None:
    b = KernelBuilder("single")
    x, w = b.parameter("x", f32, (1, 12, 11, 5)), b.parameter("w", f32, (1, 1, 3, 3, 5, 16))
    bias, t = b.parameter("bias", f32, (1,)), b.temporary(f32, (1, 10, 9, 1))
    y = b.result("y", f32, (1, 10, 9, 1))
    emit(b, "contract", packed_convolution(1), [x, w], t)
    emit(b, "add", {}, [t, bias], y)
    naive = b.build()
    changed = schedule(naive, V4)
    assert changed.notes[0].startswith("contraction")
    assert_same(naive, changed)


@pytest.mark.slow
def test_a_padded_result_and_its_borders_share_one_grid() -> None:
    naive = convolution((1, 30, 30, 64), 3, 64, 32, pad=1)
    (grid,) = grid_loops(schedule(naive, V4, threads=2))
    assert grid.var.name == "workgroup"
    small = convolution((1, 11, 12, 4), 3, 40, 32, pad=1)
    assert_same(small, schedule(small, V4))


@pytest.mark.slow
def test_workgroups_do_not_change_what_is_computed() -> None:
    kernel = fused(100, 27, 20)
    one, many = (run(schedule(kernel, V4, threads=n)) for n in (1, 64))
    assert (one[0] == many[0]).all()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("length", [1, 15, 16, 17, 64, 130])
def test_rows_in_lanes_with_every_tail(length: int) -> None:
    kernel = op_kernel("softmax", [(3, length)], (3, length), {"axis": -1})
    changed = schedule(kernel, V4)
    assert_same(kernel, changed, exact=False)
    open_kernel = op_kernel("softmax", [(M, N)], (M, N), {"axis": -1})
    assert_same(open_kernel, schedule(open_kernel, V4), {"M": 3, "N": length}, exact=False)


@pytest.mark.parametrize("op", ["reduce_max", "reduce_mean"])
@pytest.mark.parametrize(
    ("shape", "axes", "taken"),
    [
        ((5, 4, 7, 7), (1, 2, 3), True),
        ((4, 7, 9), (0, 1, 2), True),
        ((5, M, N), (1, 2), True),
        ((4, 7, 33), (0, 2), False),
    ],
)
def test_axes_that_a_row_walks_in_one_go_are_one_loop(
    op: str, shape: Sequence[Dim], axes: tuple[int, ...], *, taken: bool
) -> None:
    kept = [d for axis, d in enumerate(shape) if axis not in axes]
    kernel = op_kernel(op, [shape], kept, {"axes": axes, "keepdims": False})
    done = schedule(kernel, V4)
    joined = [step["outer"] for name, step in done.trace if name == "fuse"]
    assert any(str(name).startswith("r") for name in joined) == taken
    assert_same(kernel, done, {"M": 6, "N": 11}, exact=False)


@pytest.mark.parametrize("axis", [0, 1])
def test_other_axes_run_in_lanes_of_the_last_one(axis: int) -> None:
    kernel = op_kernel("softmax", [(4, 5, 37)], (4, 5, 37), {"axis": axis})
    changed = schedule(kernel, V4)
    assert LoopKind.VECTOR in kinds(changed)
    assert_same(kernel, changed, exact=False)


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((33, 20), (1, 0)), ((3, 30, 31), (1, 2, 0)), ((2, 5, 3, 17), (0, 2, 1, 3))],
)
def test_transpositions_are_vectorized(shape: Sequence[int], perm: Sequence[int]) -> None:
    result = tuple(shape[p] for p in perm)
    kernel = op_kernel("transpose", [shape], result, {"perm": tuple(perm)})
    changed = schedule(kernel, V4)
    assert LoopKind.VECTOR in kinds(changed)
    assert_same(kernel, changed)


def test_an_elementwise_chain_is_one_loop_in_blocks() -> None:
    (grid,) = grid_loops(
        schedule(op_kernel("add", [(512, 999), (512, 999)], (512, 999)), V4)
    )
    assert isinstance(grid.extent, int)
    assert grid.extent > 1
    kernel = op_kernel("add", [(5, 99), (5, 99)], (5, 99))
    assert_same(kernel, schedule(kernel, V4))


def test_dependent_nests_that_cannot_join_run_in_one_workgroup() -> None:
    b = KernelBuilder("two")
    x, y = b.parameter("x", f32, (40,)), b.result("y", f32, (40,))
    t = b.temporary(f32, (40,), "t")
    with b.nest((40,), ("i",)) as (i,):
        b.store(t, (i,), b.load(x, (i,)))
    with b.nest((40,), ("j",)) as (j,):
        b.store(y, (j,), b.load(t, (39 - j,)))
        with b.reduce((40,), ("k",)) as (k,):
            b.accumulate("add", y, (j,), b.load(t, (k,)))
    kernel = b.build()
    assert_same(kernel, schedule(kernel, V4))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1, 1)])
def test_empty_and_single_results(shape: tuple[int, ...]) -> None:
    kernel = op_kernel("relu", [shape], shape)
    assert_same(kernel, schedule(kernel, V4))


def test_a_serial_dependence_stays_serial() -> None:
    kernel = op_kernel("cumsum", [(5, 7)], (5, 7), {"axis": 1})
    assert_same(kernel, schedule(kernel, V4))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_running_sum_visits_every_element_once(axis: int, *, exclusive: bool) -> None:
    attributes = {"axis": axis, "exclusive": exclusive, "reverse": axis == 1}
    naive = op_kernel("cumsum", [(3, 5, 37)], (3, 5, 37), attributes)
    assert all(isinstance(loop.extent, int) for loop in loops(naive.body))
    changed = schedule(naive, V4)
    assert (LoopKind.VECTOR in kinds(changed)) == (axis != 2)
    assert_same(naive, changed)


def test_notes_explain_the_choices() -> None:
    text = " ".join(schedule(fused(), V4).notes)
    assert "accumulators" in text
    assert "workgroups" in text
    assert body_text(schedule(fused(), V4))


# --- memory ------------------------------------------------------------------------------------


def test_the_next_panel_of_weights_is_fetched_while_one_is_multiplied() -> None:
    kernel = fused(columns=320, rows=64, depth=512)
    done = schedule(kernel, V4)
    assert "prefetch w[p_f_b + 1, 0," in body_text(done)
    assert any("the next panel is fetched" in note for note in done.notes)


def test_the_next_panel_is_fetched_by_the_first_of_rows_that_a_call_counts() -> None:
    done = schedule(fused(columns=320, rows=M, depth=512), V4)
    lines = body_text(done).splitlines()
    (hint,) = (x for x in lines if "prefetch" in x and "level 2" in x)
    assert "prefetch w[p_f_b + 1, 0, min((16*" in hint
    (note,) = (x for x in done.notes if "the next panel" in x)
    assert note.startswith("the next panel is fetched 16 elements per turn")


def test_hints_worth_less_than_a_line_stand_in_the_loop_over_tiles() -> None:
    done = schedule(fused(columns=1024, rows=2000, depth=96), V3)
    (hint,) = (x for x in done.notes if "the next panel" in x)
    assert hint == "the next panel is fetched 24 elements per turn of 'm_t_n'"


@pytest.mark.thinned(4)
@pytest.mark.parametrize("rows", range(1, 12))
def test_a_rest_of_few_rows_has_a_tile_of_its_own(rows: int) -> None:
    kernel = fused(columns=48, rows=M, depth=40, panel=24)
    done = schedule(kernel, V3)
    tiles = {x.extent for x in loops(done.body) if x.var.name.startswith("tile_row")}
    assert tiles >= {1, 2, 3, 4}
    assert_same(kernel, done, {"M": rows}, exact=False)


@pytest.mark.parametrize(
    ("columns", "rows", "depth"),
    [
        (32, 64, 112),  # one panel
        (320, 64, 9),  # panels of a few lines
        (320, 1, 512),  # every weight is used once: memory decides
    ],
)
def test_nothing_is_fetched_ahead_where_it_cannot_help(columns, rows, depth) -> None:
    assert "prefetch" not in body_text(schedule(fused(columns, rows, depth), V4))


@pytest.mark.slow
def test_the_next_steps_of_a_long_panel_are_brought_into_the_first_level_cache() -> None:
    for panel, apart in ((32, 16), (16, 512 * 16)):  # narrow ones are shared
        kernel = fused(columns=32, rows=26, depth=512, panel=panel)
        done = schedule(kernel, V4)
        assert all(f"u + 4, {x}]  # level 1" in body_text(done) for x in (0, apart))
        assert_same(kernel, done, exact=False)
    for depth in (512, 8192):  # of 8192, a panel leaves the second level cache of V3
        assert "level 1" not in body_text(schedule(fused(48, 26, depth), V3))


def words(rows: int, block: int, panel: int = 64) -> Kernel:
    """`a w` with 4 bits to a weight, 512 deep."""
    b = KernelBuilder("words")
    operands = [
        b.parameter("a", f32, (rows, 512)),
        b.parameter("w", i32, (3, 64, panel)),
        b.parameter("scale", f32, (3, 512 // block, panel)),
    ]
    y = b.result("y", f32, (rows, 3 * panel))
    attributes = {"columns": (3 * panel,), "bits": 4}
    emit(b, "matmul_blocks", attributes, operands, y)
    return b.build()


@pytest.mark.thinned(5)
@pytest.mark.parametrize(
    ("machine", "block", "hints"),
    [
        (V4, 32, ("w[p_f, 4*k_2 + 16, 64*w_3 + 48]", "scale[p_f, k_2 + 4, 48]")),
        (V4, 128, ("w[p_f, 16*k_2 + 16, 64*w_3 + 48]", "scale[p_f, k_2 + 1, 48]")),
        (V4, 16, ("w[p_f, 2*k_2 + 16, 64*w_3 + 48]", "scale[p_f, k_2 + 8, 48]")),
        (
            V4,
            512,
            ("w[p_f, w_3 + 16, 48]",),
        ),  # one block, of which later words are asked for
        (ZEN4, 32, ("w[p_f, 4*k_2 + 4, 64*w_3 + 48]",)),
        (ZEN4, 128, ("w[p_f, 16*k_2 + 16, 64*w_3 + 48]",)),
    ],
)
def test_words_for_one_row_are_fetched_as_far_ahead_as_the_machine_asks(
    machine, block, hints
) -> None:
    naive = words(1, block)
    done = schedule(naive, machine)
    found = [line for line in body_text(done).splitlines() if "prefetch" in line]
    assert all(any(hint in line for line in found) for hint in hints)
    assert all("level 1" in line for line in found)
    assert any("scale" in line for line in found) == (machine is V4 and block < 512)
    assert not any("prefetch a[" in line for line in found)  # every panel has that row
    assert_same(naive, done)


@pytest.mark.parametrize(
    ("machine", "block"),
    [(ZEN4, 512), (ZEN4, 16)],  # one block; blocks that are soon used up
)
def test_where_blocks_are_no_distance_the_next_panel_of_words_is_fetched(
    machine, block
) -> None:
    naive = words(1, block)
    done = schedule(naive, machine)
    assert "prefetch w[p_f + 1, 0," in body_text(done)
    assert_same(naive, done)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, V3, V2], ids=str)
def test_numbers_of_words_are_multiplied_in_turn_for_one_row(machine: MachineModel) -> None:
    naive = words(1, 32)
    done = schedule(naive, machine)
    registers = [b for b in done.locals if b.name == "terms"]
    wanted = 3 * 64 // machine.lanes(f32) + 2 <= machine.vector_registers
    assert bool(registers) == wanted
    assert_same(naive, done)
    assert "terms" not in body_text(
        schedule(words(6, 32), machine)
    )  # rows hide the additions


def test_a_panel_is_shared_by_enough_rows_however_deep_it_is() -> None:
    done = schedule(fused(columns=640, rows=512, depth=3000), V4)
    assert any(re.search(r"x 10 of \d+ tiles", note) for note in done.notes), done.notes


# --- one row -----------------------------------------------------------------------------------


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, V2], ids=str)
@pytest.mark.parametrize("columns", [31, 33, 96, 129, 350])
@pytest.mark.parametrize("depth", [1, 40])
def test_one_row_walks_several_panels_side_by_side(
    columns: int, depth: int, machine: MachineModel
) -> None:
    kernel = fused(columns, 1, depth)
    done = schedule(kernel, machine)
    assert_same(kernel, done, exact=False)
    if depth > 1 and machine.lanes(f32) > 4:  # else a panel takes half of the registers
        assert any("panels side by side" in note for note in done.notes) == (columns > 32)


def test_one_row_with_an_open_number_of_columns() -> None:
    kernel = op_kernel("matmul", ((1, 9), (9, N)), (1, N))
    done = schedule(kernel, V4)
    for columns in (1, 16, 63, 64, 65, 130, 321):
        assert_same(kernel, done, {"N": columns}, exact=False)


def test_one_row_takes_as_many_panels_as_divide_their_number() -> None:
    notes = {c: schedule(fused(c, 1, 64), V4).notes for c in (96, 128, 160)}
    counts = {
        c: next(n for n in found if "side by side" in n)[0] for c, found in notes.items()
    }
    assert counts == {96: "3", 128: "4", 160: "4"}  # 5 panels: 4 of them, then the last


def test_equal_columns_of_one_row_have_equal_sums_in_any_panel() -> None:
    kernel = fused(160, 1, 100)
    done = schedule(kernel, V4)
    rng = np.random.default_rng(0)
    column = rng.standard_normal(100).astype(np.float32)
    row = rng.standard_normal((1, 100)).astype(np.float32)
    weights = np.broadcast_to(column[:, None], (5, 100, 32)).copy()
    bias, residual = np.zeros(160, np.float32), np.full((1, 160), 50, np.float32)
    result = np.zeros((1, 160), np.float32)
    evaluate(done, [row, weights, bias, residual, result], {})
    assert np.unique(result).size == 1
    np.testing.assert_allclose(result[0, 0], max(0, row[0] @ column + 50), rtol=1e-5)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("machine", [V4, V3], ids=str)
@pytest.mark.parametrize("filters", [1, 2, 9])
@pytest.mark.parametrize("places", [40, 193, 300])
def test_columns_that_lie_in_order_are_cut_to_tiles_that_fit_the_registers(
    places: int, filters: int, machine: MachineModel
) -> None:
    shapes = ((3, 2, 3, filters), (2, 3, places + 22))
    kernel = op_kernel(
        "contract", shapes, (2, filters, places), planar(places, steps=(20, 1))
    )
    done = schedule(kernel, machine)
    assert "contraction" in done.notes[0]
    vectors = {
        b.shape[0] * b.shape[1] if len(b.shape) > 2 else b.shape[0]
        for b in done.locals
        if b.name.startswith("acc") and len(b.shape) > 1
    }
    assert max(vectors) < machine.vector_registers
    assert_same(kernel, done, exact=False)


def test_one_row_of_columns_in_order_has_as_many_sums_as_hide_the_time_of_one() -> None:
    shapes = ((3, 5, 1), (1, 3, 1004))
    kernel = op_kernel("contract", shapes, (1, 1, 1000), planar(1000, steps=(1,)))
    done = schedule(kernel, V4)
    assert done.notes[0].startswith("contraction: 1 x 256 accumulators")
    masked = [b for b in done.locals if b.name.startswith("acc") and b.shape[0] < 16]
    assert len(masked) == 1  # the last columns have code of their own
    assert_same(kernel, done, exact=False)


# --- copies between layouts --------------------------------------------------------------------


@pytest.mark.parametrize(("depth", "columns"), [(64, 300), (61, 300), (7, 300), (64, 24)])
def test_a_matrix_is_packed_a_few_rows_at_a_time(depth: int, columns: int) -> None:
    panels = -(-columns // 24)
    kernel = op_kernel(
        "pack_panels", ((depth, columns),), (panels, depth, 24), {"panel": 24}
    )
    done = schedule(kernel, V3)
    assert_same(kernel, done)
    order = [loop.var.name for loop in loops(done.body)]
    if panels > 1:  # rows in blocks, then panels, then the rows of a block
        assert order.index("i1_n") > order.index("i0")
    else:
        assert "i1_n" not in order


def test_copies_that_read_whole_rows_keep_their_order() -> None:
    kernel = op_kernel("transpose", ((5, 6, 512),), (6, 5, 512), {"perm": (1, 0, 2)})
    done = schedule(kernel, V4)
    assert_same(kernel, done)
    assert [x.var.name for x in loops(done.body)][:2] == ["i0", "i1"]


def test_only_blocks_of_transpositions_are_written_out_row_by_row() -> None:
    kernel = op_kernel("add", ((5, 8, 32), (8, 1)), (5, 8, 32))
    done = schedule(kernel, V3)
    assert_same(kernel, done)
    (row,) = [x for x in loops(done.body) if x.var.name == "i1"]
    assert row.kind is LoopKind.SERIAL


def test_a_large_window_of_an_odd_size_stays_in_lanes() -> None:
    shapes = [(1, 3, 60, 16), (2, 53, 16)]
    naive = op_kernel("contract", shapes, (1, 2, 8, 16), depthwise())
    changed = schedule(naive, V4)
    innermost = [x for x in loops(changed.body) if not any(True for _ in loops(x.body))]
    assert all(x.kind is LoopKind.VECTOR for x in innermost)
    assert_same(naive, changed, exact=False)


def test_axes_whose_numbers_decide_a_value_stay_two_loops() -> None:
    b = KernelBuilder("trilu")
    x, y = b.parameter("x", f32, (19, 37)), b.result("y", f32, (19, 37))
    emit(b, "trilu", {"upper": True}, [x], y)
    kernel = b.build()
    done = schedule(kernel, V4)
    assert "//" not in body_text(done)
    assert_same(kernel, done)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("length", [2, 40])
@pytest.mark.parametrize("op", ["relu", "hard_swish", "softplus", "elu"])
def test_chains_of_values_that_are_read_more_than_once_grow_by_their_length(
    op: str, length: int
) -> None:
    """Each reads what is before it several times; written out, that doubles with every op."""
    b = KernelBuilder("chain")
    last = b.parameter("x", f32, (3, 40))
    y = b.result("y", f32, (3, 40))
    for _ in range(length - 1):
        middle = b.temporary(f32, (3, 40))
        emit(b, op, {}, [last], middle)
        last = middle
    emit(b, op, {}, [last], y)
    kernel = b.build()
    scheduled = schedule(kernel, V4)
    assert all(buffer.space is Space.REGISTER for buffer in scheduled.locals)
    sizes = [written_size(store.value) for store in stores(scheduled.body)]
    assert max(sizes) <= 2 * WRITTEN_LIMIT
    assert len(sizes) <= length
    assert_same(kernel, scheduled)


def test_a_product_says_how_much_there_is_and_what_is_made_of_it() -> None:
    text = kernel_text(schedule(fused(rows=19), V3))
    assert "accumulators for 19 rows, " in text
