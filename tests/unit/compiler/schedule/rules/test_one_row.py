"""How many workgroups a single row has: its weights are read once, by whichever thread it is."""

from __future__ import annotations

import pytest

from fakes.contractions import product
from fakes.loop_nests import assert_same, emit, op_kernel
from tilewright.base.dtypes import f32, i32
from tilewright.base.symbolic import Dim, symbol, symbols
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.grid import grid_loops
from tilewright.compiler.kernel.ir import For, If, Kernel, LoopKind, Space, walk
from tilewright.compiler.kernel.rewrite import buffers_written, loops
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

N = symbol("N", 1)
V4, V3 = (MachineModel.of(Target.level(name)) for name in ("v4", "v3"))


def words(panels: int, steps: int) -> Kernel:
    """One row by weights of 4 bits, eight to a word."""
    columns = panels * 64
    b = KernelBuilder("words")
    shapes = [(1, steps * 8), (panels, steps, 64), (panels, steps // 4, 64)]
    kinds = (f32, i32, f32)
    operands = [b.parameter(n, t, s) for n, t, s in zip("aws", kinds, shapes, strict=True)]
    y = b.result("y", f32, (1, columns))
    emit(b, "matmul_blocks", {"columns": (columns,), "bits": 4}, operands, y)
    return b.build()


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("threads", "workgroups"), [(16, 2), (2, 2)])
def test_words_are_shared_out_where_each_thread_gets_microseconds(
    threads: int, workgroups: int
) -> None:
    naive = words(9, 72)  # 10 µs: 166 KB of weights
    done = schedule(naive, V4, threads=threads)
    (grid,) = grid_loops(done)
    assert grid.extent == workgroups  # fewer than threads: a start costs, too
    assert_same(naive, done)


def test_words_of_one_thread_or_few_of_them_are_not_shared_out() -> None:
    assert not grid_loops(schedule(words(9, 72), V4))
    assert not grid_loops(schedule(words(3, 32), V4, threads=2))  # 2 µs


@pytest.mark.parametrize(
    ("machine", "depth", "panels", "threads", "workgroups"),
    [
        (V3, 576, 9, 1, 2),
        (V3, 576, 9, 2, 2),
        (V3, 576, 9, 8, 5),  # was 2
        (
            V3,
            768,
            36,
            4,
            12,
        ),  # 8 are worth a start by themselves; of 12 each thread has as many
        (V4, 768, 36, 1, 9),
        (V4, 768, 36, 4, 9),
    ],
    ids=str,
)
def test_one_row_has_workgroups_for_all_threads_and_long_work_as_many_as_ever(
    machine: MachineModel, depth: int, panels: int, threads: int, workgroups: int
) -> None:
    columns = panels * 64
    shapes = [(1, depth), (panels, depth, 64)]
    naive = op_kernel("contract", shapes, (1, columns), product(columns))
    (grid,) = grid_loops(schedule(naive, machine, threads=threads))
    assert grid.extent == workgroups


def column_sums(columns: Dim, steps: int) -> Kernel:
    """Sums of products that are the result itself, not what is written behind the sum."""
    b = KernelBuilder("sums", symbols(columns))
    x, w = b.parameter("x", f32, (steps, columns)), b.parameter("w", f32, (steps,))
    y = b.result("y", f32, (columns,))
    with b.nest((columns,), ("i",)) as (i,):
        b.store(y, (i,), 0)
        with b.reduce((steps,), ("k",)) as (k,):
            b.accumulate("add", y, (i,), b.mul(b.load(w, (k,)), b.load(x, (k, i))))
    return b.build()


@pytest.mark.parametrize("machine", [V3, V4], ids=str)
@pytest.mark.parametrize(
    "naive",
    [op_kernel("matmul", [(1, 9), (9, N)], (1, N)), column_sums(N, 9)],
    ids=["product", "sums"],
)
def test_one_row_of_an_open_number_of_columns_asks_for_their_end_behind_whole_panels(
    naive: Kernel, machine: MachineModel
) -> None:
    """Panels side by side did so in every step of the sum, and sums waited in memory behind masks."""
    done = schedule(naive, machine)
    steps = [loop for loop in loops(done.body) if loop.reduction]
    assert not any(isinstance(x, If) for x in walk(steps[0].body))
    assert {b.space for x in steps for b in buffers_written((x,))} == {Space.REGISTER}
    masked = [
        outer.extent
        for outer in loops(done.body)
        if outer.kind is LoopKind.UNROLL and isinstance(outer.body[0], For)
        if any(isinstance(x, If) for x in outer.body[0].body)
    ]
    assert max(masked) == 4  # of eight vectors
    for columns in (1, 9, 31, 40, 64, 65, 130):
        assert_same(naive, done, {"N": columns})
