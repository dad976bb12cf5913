"""What rules choose where only a call knows a size."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from fakes.contractions import product as packed_product
from fakes.loop_nests import assert_same, body_text, emit, op_kernel
from tilewright.base import symbolic
from tilewright.base.dtypes import DType, bf16, f16, f32, i64, u8
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import Dim, ceildiv, symbol, symbols
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.grid import grid_loops
from tilewright.compiler.kernel.ir import If, Kernel, LoopKind, Space, walk
from tilewright.compiler.kernel.rewrite import loads, loops, stores
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule
from tilewright.compiler.schedule.rules.tiles import OPEN_ROWS, choose_tile
from tilewright.compiler.schedule.tree import enclosing_loops
from tilewright.compiler.transforms.contract_forms import product_in_panels

V4, V3 = (MachineModel.of(Target.level(name)) for name in ("v4", "v3"))
ZEN4, ZEN3 = (MachineModel.of(Target.parse(f"x86_64 -mcpu=znver{n}")) for n in (4, 3))
A, B, M, N, K = (symbol(name, 1) for name in "ABMNK")


def product(depth: Dim) -> Kernel:
    """19 rows and 40 columns, weights packed."""
    return op_kernel(
        "contract", [(19, depth), (2, depth, 32)], (19, 40), packed_product(40)
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
def test_rows_of_open_length_are_few_enough_to_have_a_pointer_each(
    machine: MachineModel,
) -> None:
    naive = product(K)
    done = schedule(naive, machine)
    (rows,) = re.findall(r"rows=\[(\d+)", done.notes[-1])
    assert int(rows) <= OPEN_ROWS
    for depth in (1, 4, 7):
        assert_same(naive, done, {"K": depth})


def test_rows_of_known_length_are_as_many_as_registers_hold() -> None:
    (rows,) = re.findall(r"rows=\[(\d+)", schedule(product(21), V4).notes[-1])
    assert int(rows) > OPEN_ROWS
    assert choose_tile(V4, (1024,), 64, 128, 16, row_bytes=512).rows > OPEN_ROWS
    assert choose_tile(V4, (1024,), 64, 128, 16, row_bytes=None).rows == 6


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
def test_nests_behind_a_guard_at_the_top_run_in_lanes(machine: MachineModel) -> None:
    size = symbol("N", 0)
    b = KernelBuilder("k", symbols(size))
    x = b.parameter("x", f32, (size,))
    y, z = b.result("y", f32, (size,)), b.result("z", f32, ())
    with b.when(b.gt(b.index(size), 2)):
        with b.nest((size,), ("i",)) as (i,):
            b.store(y, (i,), b.mul(b.load(x, (i,)), 2))
        with b.when(b.gt(b.index(size), 5)):
            b.store(z, (), 0)
            with b.reduce((size,), ("j",)) as (j,):
                b.accumulate("max", z, (), b.load(x, (j,)))
    naive = b.build()
    done = schedule(naive, machine)
    assert done.verdict is not None
    assert done.verdict.outcome is not Outcome.GENERIC
    vectors = [loop for loop in loops(done.body) if loop.kind is LoopKind.VECTOR]
    assert {store.buffer.name for v in vectors for store in stores(v.body)} >= {"y"}
    assert any(load.buffer is x for v in vectors for load in loads(v.body))
    for length in (0, 1, 3, 7, 200):
        assert_same(naive, done, {"N": length})


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
def test_few_columns_of_an_open_number_have_tiles_of_half_the_width(
    machine: MachineModel,
) -> None:
    panel = 4 * machine.lanes(f32)
    shapes = [(M, K), (ceildiv(N, panel), K, panel)]
    naive = op_kernel("contract", shapes, (M, N), packed_product(N))
    done = schedule(naive, machine)
    widths = {
        b.shape[1] for b in done.locals if b.name.startswith("acc") and len(b.shape) == 3
    }
    assert widths == {2, 4}
    few = panel // 2
    for columns in (1, few - 1, few, few + 1, panel - 1, panel, panel + 1, panel + few):
        assert_same(naive, done, {"M": 7, "K": 3, "N": columns})


@pytest.mark.thinned(2)
@pytest.mark.parametrize("machine", [V4, ZEN3], ids=str)
def test_a_dozen_products_are_shared_by_threads_alike(machine: MachineModel) -> None:
    """Heads: workgroups of eight of them left a third to one thread and two thirds to the other."""
    panel = 2 * machine.lanes(f32)
    shapes = [(B, M, K), (B, ceildiv(N, panel), K, panel)]
    form = product_in_panels(shapes[0], shapes[1], N)
    naive = op_kernel("contract", shapes, (B, M, N), form)
    done = schedule(naive, machine, threads=2)
    sizes = {"B": 12, "M": 128, "K": 64, "N": 128}
    grid = math.prod(symbolic.evaluate(x.extent, sizes) for x in grid_loops(done))
    assert grid % 2 == 0
    assert grid >= 6
    for matrices in (1, 3):
        assert_same(naive, done, {"B": matrices, "M": 7, "K": 3, "N": panel + 3})


def test_products_without_steps_which_take_no_time_are_shared_out() -> None:
    shapes = [(B, 3, 0), (B, 1, 0, 16)]
    naive = op_kernel("contract", shapes, (B, 3, 5), product_in_panels(*shapes, 5))
    assert_same(naive, schedule(naive, V3, threads=2), {"B": 4})


@pytest.mark.thinned(13)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
@pytest.mark.parametrize("batch", [(B,), (3, B), (A, B)], ids=str)
def test_products_of_an_open_number_of_matrices_are_shared_out(
    batch: tuple[Dim, ...], machine: MachineModel
) -> None:
    panel = 2 * machine.lanes(f32)
    shapes = [(*batch, M, K), (*batch, ceildiv(N, panel), K, panel)]
    form = product_in_panels(shapes[0], shapes[1], N)
    naive = op_kernel("contract", shapes, (*batch, M, N), form)
    done = schedule(naive, machine, threads=2)
    counts = dict.fromkeys("ABMN", 200) | {"K": 3}
    grid = math.prod(symbolic.evaluate(x.extent, counts) for x in grid_loops(done))
    assert grid > math.prod(symbolic.evaluate(n, counts) for n in batch) // 100
    for matrices in (1, 9, 11):
        sizes = {"A": 2, "B": matrices, "M": 7, "K": 3, "N": panel + 3}
        assert_same(naive, done, {str(n): sizes[str(n)] for n in naive.dims})


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
def test_vectors_that_are_surely_there_are_stored_without_a_mask(
    machine: MachineModel,
) -> None:
    lanes = machine.lanes(f32)
    panel = 2 * lanes
    shapes = [(M, K), (ceildiv(N, panel), K, panel)]
    naive = op_kernel("contract", shapes, (M, N), packed_product(N))
    done = schedule(naive, machine)
    result = done.parameters[-1].buffer
    plain: set[tuple[int, ...]] = set()
    for nest in loops(done.body):
        (inner, *more) = nest.body
        if nest.kind is not LoopKind.VECTOR or more:
            continue
        written = [x for x in stores(nest.body) if x.buffer is result]
        if isinstance(inner, If) and written:
            around = enclosing_loops(done, nest)
            assert nest.extent == lanes
            assert all(x.extent == 1 for x in around if x.var.name.startswith("v"))
        elif written:
            plain |= {x.buffer.shape for x in loads(nest.body)}
    assert any(shape[1] == 2 for shape in plain)
    assert any(shape[1] == 1 for shape in plain) is not machine.has_masks
    for columns in (1, lanes - 1, lanes, lanes + 1, panel - 1, panel, panel + lanes):
        assert_same(naive, done, {"M": 7, "K": 3, "N": columns})


@pytest.mark.slow
def test_half_of_three_vectors_is_two() -> None:
    panel = 3 * V4.lanes(f32)
    shapes = [(M, K), (ceildiv(N, panel), K, panel)]
    naive = op_kernel("contract", shapes, (M, N), packed_product(N))
    done = schedule(naive, V4)
    widths = {
        b.shape[1] for b in done.locals if b.name.startswith("acc") and len(b.shape) == 3
    }
    assert widths == {2, 3}
    for columns in (1, 16, 17, 31, 32, 33, 48, 49, 81):
        assert_same(naive, done, {"M": 5, "K": 3, "N": columns})


@pytest.mark.thinned(9)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
@pytest.mark.parametrize("batch", [(), (3,)], ids=["one", "batch"])
def test_few_columns_behind_the_panels_are_read_where_they_lie(
    batch: tuple[int, ...], machine: MachineModel
) -> None:
    panel = 4 * machine.lanes(f32)
    few = panel // 2
    packed = (N + panel - few - 1) // panel
    shapes = [(*batch, M, K), (*batch, packed, K, panel), (*batch, K, N)]
    form = product_in_panels(shapes[0], shapes[1], N, least=few + 1)
    naive = op_kernel("contract", shapes, (*batch, M, N), form)
    done = schedule(naive, machine)
    assert done.verdict is not None
    assert done.verdict.outcome is Outcome.TILED
    assert "select" not in body_text(done)
    sums = [x for x in loops(done.body) if x.reduction]
    read = [{v.buffer.name for v in loads((x,))} & {"x1", "x2"} for x in sums]
    assert {"x1"} in read
    assert {"x2"} in read
    for columns in (
        1,
        few // 2,
        few,
        few + 1,
        panel - 1,
        panel,
        panel + 1,
        panel + few + 1,
    ):
        assert_same(naive, done, {"M": 7, "K": 3, "N": columns})


# --- short rows --------------------------------------------------------------------------------

NORM = {"axis": -1, "epsilon": 1e-5}
PASSES = [("softmax", {"axis": -1}), ("log_softmax", {"axis": -1}), ("layer_norm", NORM)]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
@pytest.mark.parametrize(("name", "attributes"), PASSES)
def test_short_rows_of_open_length_lie_side_by_side(
    name: str, attributes: dict[str, object], machine: MachineModel
) -> None:
    naive = op_kernel(name, [(M, N)], (M, N), attributes)
    done = schedule(naive, machine)
    assert "side by side" in str(done.notes)
    for rows, length in ((1, 1), (17, 3), (9, 16), (16, 32), (5, 33), (2, 100)):
        assert_same(naive, done, {"M": rows, "N": length}, exact=False)


LINES = [("open", M, N, f16), ("long", 6, 20001, f32)]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
@pytest.mark.parametrize(
    ("rows", "length", "dtype"), [x[1:] for x in LINES], ids=[x[0] for x in LINES]
)
def test_workgroups_of_several_threads_have_lines_of_their_own(
    rows: Dim, length: Dim, dtype: DType, machine: MachineModel
) -> None:
    naive = op_kernel("softmax", [(rows, length)], (rows, length), {"axis": -1}, dtype)
    alone, shared = schedule(naive, machine), schedule(naive, machine, threads=2)
    assert not grid_loops(alone)
    (grid,) = grid_loops(shared)
    assert grid.extent != 1
    (own,) = (b for b in shared.locals if b.space is Space.DEVICE)
    assert own.shape == (grid.extent, length)
    if rows is M:  # elements of long rows take the evaluator seconds
        for m, n in ((1, 1), (70, 3), (35, 40)):
            assert_same(naive, shared, {"M": m, "N": n}, exact=False)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("rows", "threads", "workgroups"),
    [(2, 2, 2), (3, 8, 3), (5, 4, 3), (8, 8, 8), (64, 2, 16)],
)
def test_few_long_rows_with_lines_of_their_own_are_work_for_all_threads(
    rows: int, threads: int, workgroups: int
) -> None:
    naive = op_kernel("softmax", [(rows, 20001)], (rows, 20001), {"axis": -1})
    (grid,) = grid_loops(schedule(naive, V4, threads=threads))
    assert grid.extent == workgroups


@pytest.mark.parametrize("machine", [V4, V3], ids=str)
def test_rows_that_are_never_short_are_not_gathered_for_lanes(
    machine: MachineModel,
) -> None:
    length = 1024 * N
    naive = op_kernel("softmax", [(8, length)], (8, length), {"axis": -1})
    (grid,) = grid_loops(schedule(naive, machine, threads=8))
    assert grid.extent == 8


@pytest.mark.thinned(2)
@pytest.mark.parametrize("machine", [V4, V3], ids=str)
def test_short_rows_of_16_bits_lie_side_by_side(machine: MachineModel) -> None:
    naive = op_kernel("softmax", [(M, N)], (M, N), {"axis": -1}, f16)
    lanes = machine.lanes(f32)
    for threads in (1, 2):
        done = schedule(naive, machine, threads=threads)
        told = f"{lanes} rows of up to {2 * lanes} elements side by side"
        assert told in str(done.notes)
        for rows, length in ((1, 1), (17, 3), (16, 32), (5, 33), (2, 100)):
            assert_same(naive, done, {"M": rows, "N": length}, exact=False)


@pytest.mark.sampled(3)
@pytest.mark.thinned(5)
@pytest.mark.parametrize("machine", [V4, V3], ids=str)
@pytest.mark.parametrize(("name", "attributes"), PASSES)
def test_rows_of_open_length_up_to_eight_vectors_are_read_once(
    name: str, attributes: dict[str, object], machine: MachineModel
) -> None:
    naive = op_kernel(name, [(M, N)], (M, N), attributes)
    done = schedule(naive, machine)
    lanes = machine.lanes(f32)
    assert f"up to {8 * lanes} elements stay in registers" in str(done.notes)
    assert (8 * lanes,) in {b.shape for b in done.locals if b.space is Space.REGISTER}
    for length in (n * lanes + more for n in (2, 3, 4, 6, 8) for more in (0, 1)):
        assert_same(naive, done, {"M": 2, "N": length}, exact=False)


def test_of_rows_in_registers_only_vectors_that_may_end_are_asked() -> None:
    """Where a store under a mask takes long, those that do not end have a store of their own."""
    naive = op_kernel("softmax", [(M, N)], (M, N), {"axis": -1})
    done = [schedule(naive, machine) for machine in (V4, V3)]
    for kernel, lanes in zip(done, (16, 8), strict=True):
        assert _limits(kernel) == [3 * lanes, 4 * lanes, 6 * lanes]
        written_out = [x for x in loops(kernel.body) if x.kind is LoopKind.UNROLL]
        asked = {x for x in written_out if any(isinstance(y, If) for y in walk(x.body))}
        assert {x.extent for x in asked} == {1, 2, 4}
        assert {2, 3, 4, 6} <= {x.extent for x in {*written_out} - asked}
    cases = [[name for name, _ in kernel.trace].count("specialize") for kernel in done]
    assert cases[0] < cases[1]


def _limits(done: Kernel) -> object:
    (found,) = (of["limits"] for name, of in done.trace if name == "version_by_limits")
    return found


@pytest.mark.thinned(5)
@pytest.mark.parametrize("machine", [V3, ZEN3], ids=str)
@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize(
    ("name", "attributes"),
    [("log_softmax", {"axis": -1}), ("layer_norm", NORM), ("rms_norm", NORM)],
)
def test_rows_of_16_bits_stay_in_registers_where_what_stores_them_has_more_lanes(
    name: str, attributes: dict[str, object], dtype: DType, machine: MachineModel
) -> None:
    naive = op_kernel(name, [(M, N)], (M, N), attributes, dtype)
    done = schedule(naive, machine)
    assert "up to 64 elements stay in registers" in str(done.notes)
    assert _limits(done) == [24, 32, 48]
    for length in (1, 2, 7, 8, 9, 15, 16, 17, 23, 24, 25, 31, 32, 33, 40, 48, 49, 63, 64):
        assert_same(naive, done, {"M": 2, "N": length}, exact=False)


def test_rows_of_whole_vectors_of_few_bits_are_loaded_without_masks() -> None:
    """There are loads of some lanes for 32 bits; for fewer, each lane is asked and loaded alone."""

    def cases(dtype: DType) -> int:
        naive = op_kernel("softmax", [(M, N)], (M, N), {"axis": -1}, dtype)
        done = schedule(naive, V3)
        return [n for n, _ in done.trace].count("specialize")

    assert cases(f16) == cases(bf16) > cases(f32)


def test_rows_of_an_open_length_below_one_vector_stay_in_registers() -> None:
    naive = op_kernel("reduce_max", [(M, N)], (M, 1), {"axes": (-1,)}, u8)
    done = schedule(naive, V3)
    assert _limits(done) == [32, 64, 96, 128, 192]
    for length in (1, 17, 31, 32, 33, 64, 100, 128, 129, 255, 256, 257):
        assert_same(naive, done, {"M": 2, "N": length})


def test_whole_vectors_of_a_pass_have_a_loop_without_tests() -> None:
    naive = op_kernel("reduce_max", [(M, N)], (M, 1), {"axes": (-1,)})
    for machine in (V4, V3):
        lanes = machine.lanes(f32)
        done = schedule(naive, machine)
        groups = [
            x for x in loops(done.body) if x.extent == symbolic.floordiv(N, 4 * lanes)
        ]
        assert groups
        assert not any(isinstance(x, If) for group in groups for x in walk(group.body))
        for length in (4 * lanes, 4 * lanes + 1, 7 * lanes, 8 * lanes, 9 * lanes - 1):
            assert_same(naive, done, {"M": 2, "N": length})


@pytest.mark.thinned(5)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [f16, bf16, f32], ids=str)
def test_what_groups_of_vectors_leave_of_a_row_is_no_loop(
    dtype: DType, threads: int
) -> None:
    """It is there or not, in all rows of a call alike, and so are the masks of its last vector."""
    naive = op_kernel("softmax", [(M, N)], (M, N), {"axis": -1}, dtype)
    done = schedule(naive, V3, threads=threads)
    once = [x for x in loops(done.body) if x.extent == 1]
    assert any(isinstance(x.body[0], If) and any(loops(x.body)) for x in once)
    whole = symbolic.floordiv(N, 32)
    assert not any(x.extent == symbolic.ceildiv(N, 32) - whole for x in loops(done.body))
    numbers = np.random.default_rng(5).standard_normal((3, 127)).astype(dtype.numpy)
    for length in (33, 40, 63, 64, 65, 95, 127):
        x = numbers[:, :length].copy()
        x[0, -1], x[1, 0], x[2, -1] = np.inf, np.nan, -np.inf
        made = [np.zeros_like(x), np.zeros_like(x)]
        with np.errstate(invalid="ignore"):
            for kernel, y in zip((naive, done), made, strict=True):
                evaluate(kernel, [x, y], {"M": 3, "N": length})
        wanted, got = (y.astype(np.float64) for y in made)
        np.testing.assert_allclose(got, wanted, rtol=1e-2 if dtype is not f32 else 1e-5)


def test_vectors_behind_the_end_of_a_row_of_open_length_have_no_code() -> None:
    done = schedule(op_kernel("reduce_sum", [(M, N)], (M, 1), {"axes": (-1,)}), V4)
    assert any(name == "shorten" and of["extent"] == 0 for name, of in done.trace)


@pytest.mark.sampled(5)
@pytest.mark.thinned(19)
@pytest.mark.parametrize("machine", [V4, V3], ids=str)
@pytest.mark.parametrize("length", [1, 3, 7, 16, 17, 31, 32, 33, 49, 64, 65, 80])
@pytest.mark.parametrize(("name", "attributes"), [*PASSES, ("reduce_sum", {"axes": (-1,)})])
def test_a_short_row_has_the_same_bits_in_every_batch(
    name: str, attributes: dict[str, object], length: int, machine: MachineModel
) -> None:
    x = np.random.default_rng(3).standard_normal((8, length)).astype(np.float32)
    x[3, 0], x[4, 0], x[5] = np.nan, np.inf, -np.inf

    def scheduled(count: Dim) -> Kernel:
        shape = (count, 1) if name == "reduce_sum" else (count, N)
        return schedule(op_kernel(name, [(count, N)], shape, attributes), machine)

    def results(done: Kernel, rows: np.ndarray) -> np.ndarray:
        made = np.zeros((len(rows), 1 if name == "reduce_sum" else length), np.float32)
        with np.errstate(invalid="ignore"):
            evaluate(done, [rows, made], {"M": len(rows), "N": length})
        return made

    any_number, one = scheduled(M), scheduled(1)
    together = results(any_number, x)
    np.testing.assert_array_equal(together, results(scheduled(8), x))
    for n in range(8):
        alone = x[n : n + 1]
        np.testing.assert_array_equal(together[n : n + 1], results(any_number, alone))
        np.testing.assert_array_equal(together[n : n + 1], results(one, alone))


def test_running_sums_of_open_length_have_no_lanes_across_rows() -> None:
    done = schedule(op_kernel("cumsum", [(M, N)], (M, N), {"axis": -1}), V4)
    assert "side by side" not in str(done.notes)


def test_rows_of_open_length_are_shared_out_to_workgroups() -> None:
    done = schedule(op_kernel("softmax", [(M, N)], (M, N), {"axis": -1}), V4)
    assert len(grid_loops(done)) == 1
    assert all(parameter.buffer.name != "powers" for parameter in done.parameters)


def test_rows_of_known_length_have_no_code_for_others() -> None:
    done = schedule(op_kernel("softmax", [(M, 21)], (M, 21), {"axis": -1}), V4)
    assert "side" not in body_text(done)


# --- columns ------------------------------------------------------------------------------------


def sums(shape: tuple[Dim, ...], axes: tuple[int, ...]) -> Kernel:
    kept = tuple(n for axis, n in enumerate(shape) if axis not in axes)
    return op_kernel("reduce_sum", [shape], kept, {"axes": axes, "keepdims": False})


def places_of_largest() -> Kernel:
    """In each of N columns."""
    b = KernelBuilder("k", symbols(K * N))
    x, y = b.parameter("x", f32, (K, N)), b.result("y", i64, (N,))
    emit(b, "arg_max", {"axis": 0, "keepdims": False}, [x], y)
    return b.build()


def lane_counts(kernel: Kernel) -> set[Dim]:
    return {x.extent for x in loops(kernel.body) if x.kind is LoopKind.VECTOR}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, V3, ZEN4, ZEN3], ids=str)
def test_lanes_of_sums_over_an_outer_axis_go_on_over_all_axes_inside(
    machine: MachineModel,
) -> None:
    naive = sums((K, M, N), (0,))
    done = schedule(naive, machine)
    joined = [step["into"] for name, step in done.trace if name == "fuse"]
    lanes = [step["loop"] for name, step in done.trace if name == "split"]
    assert lanes[0] in joined
    for sizes in ((3, 20, 3), (1, 1, 1), (9, 13, 17), (60, 2, 65)):
        assert_same(naive, done, dict(zip("KMN", sizes, strict=True)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("columns", "joined"), [(56, True), (64, False)])
def test_rows_of_whole_vectors_stay_loops_of_their_own(columns: int, joined: bool) -> None:
    naive = sums((64, 56, columns), (0,))
    done = schedule(naive, V4)
    assert any(name == "fuse" for name, _ in done.trace) == joined
    assert_same(naive, done)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("columns", [1, 15, 17, 33, 64, 81, 130])
def test_columns_left_over_of_an_open_number_have_fewer_vectors(columns: int) -> None:
    naive = sums((K, N), (0,))
    done = schedule(naive, V4)
    assert sum(name == "shorten" for name, _ in done.trace) == 2
    for depth in (1, 6):
        assert_same(naive, done, {"K": depth, "N": columns})


@pytest.mark.thinned(3)
@pytest.mark.parametrize("machine", [V4, ZEN4], ids=str)
@pytest.mark.parametrize("columns", [1, 7, 33, 64, 100])
def test_passes_over_columns_of_an_open_number_have_no_serial_rest(
    machine: MachineModel, columns: int
) -> None:
    naive = places_of_largest()
    done = schedule(naive, machine)
    assert done.verdict is not None
    assert done.verdict.outcome is Outcome.COLUMNS
    assert all(isinstance(n, int) and n >= 8 for n in lane_counts(done))
    inside = [x for x in loops(done.body) if x.reduction]
    vectors = [x for x in loops(done.body) if x.kind is LoopKind.VECTOR]
    assert all(any(x in loops(v.body) for v in vectors) for x in inside)
    for depth in (1, 6):
        assert_same(naive, done, {"K": depth, "N": columns})


def test_passes_of_softmax_over_columns_of_an_open_number_have_no_serial_rest() -> None:
    naive = op_kernel("softmax", [(5, K, N)], (5, K, N), {"axis": 1})
    done = schedule(naive, V4)
    vectors = [x for x in loops(done.body) if x.kind is LoopKind.VECTOR]
    inside = [x for x in loops(done.body) if x.extent == K]
    assert inside
    assert all(any(x in loops(v.body) for v in vectors) for x in inside)
    for columns in (1, 16, 19):
        assert_same(naive, done, {"K": 4, "N": columns}, exact=False)


def test_passes_over_columns_have_masks_only_where_there_are_some() -> None:
    naive = places_of_largest()
    done = schedule(naive, V3)
    assert not any(name == "shorten" for name, _ in done.trace)
    assert_same(naive, done, {"K": 6, "N": 33})
