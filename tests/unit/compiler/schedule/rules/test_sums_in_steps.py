"""Sums of which all tiles of a workgroup take some steps, and then the next ones."""

import math

import numpy as np
import pytest

from fakes.contractions import convolution, product
from fakes.loop_nests import assert_same, op_kernel
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.ir import Kernel, Space
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import Decisions, schedule, space_of
from tilewright.compiler.schedule.rules.tilings import ContractionShape, Tiling

MESH = MachineModel.of(Target.parse("x86_64 -mcpu=cascadelake"))
ZEN4 = MachineModel.of(Target.parse("x86_64 -mcpu=znver4"))
V3 = MachineModel.of(Target.level("v3"))


def shape(rows, depth: int, columns: int = 768, **others: object) -> ContractionShape:
    usual = {
        "machine": MESH,
        "dtype": f32,
        "rows": (rows,),
        "width": columns,
        "grain": 32,
        "depth": depth,
        "sums": (depth,),
    }
    return ContractionShape(**{**usual, **others})


def scheduled(kernel: Kernel, steps: int) -> Kernel:
    (best,) = space_of(kernel, MESH).best().nests
    (space,) = space_of(kernel, MESH).nests
    chosen = space.best({"steps": steps})
    assert isinstance(best, Tiling)
    assert chosen.steps == steps
    return schedule(kernel, MESH, decisions=Decisions((chosen,)))


def products(rows: int, depth: int, columns: int) -> Kernel:
    panels = -(-columns // 32)
    shapes = [(rows, depth), (panels, depth, 32)]
    return op_kernel("contract", shapes, (rows, columns), product(columns))


def test_rows_that_the_second_level_does_not_hold_take_part_of_the_steps() -> None:
    for rows, depth, steps in (
        (128, 3072, 1024),
        (197, 3072, 512),
        (128, 1024, 0),
        (49, 3072, 1536),
        (13, 3072, 0),
        (1, 8192, 0),
        (4096, 4096, 1024),
    ):
        assert shape(rows, depth).steps_at_once == steps, (rows, depth)


def test_what_is_held_leaves_room_in_the_second_level() -> None:
    for rows in (17, 100, 128, 197, 1000):
        for depth in (1536, 2048, 3072, 4096, 11008):
            steps = shape(rows, depth).steps_at_once
            assert depth % max(1, steps) == 0
            assert 4 * min(rows, 128) * steps <= MESH.l2.size_bytes // 2


def test_machines_with_a_fast_third_level_take_whole_sums() -> None:
    for machine in (V3, ZEN4):
        assert shape(128, 3072, machine=machine).steps_at_once == 0


def test_sums_of_open_numbers_and_of_overlapping_windows_are_taken_whole() -> None:
    open_size = symbol("M", 1)
    assert shape(open_size, 3072).steps_at_once == 0
    assert shape(128, 3072, sums=(open_size,)).steps_at_once == 0
    assert shape(128, 3072, sums=()).steps_at_once == 0
    assert shape(128, 3072, products=8).steps_at_once == 0
    assert shape(128, 3072, left=128 * 64).steps_at_once == 0


def test_a_workgroup_has_many_panels_and_all_threads_have_workgroups() -> None:
    for threads in (1, 2, 8):
        one = shape(128, 3072, threads=threads)
        tiling = one.space().best()
        panels = -(-768 // tiling.columns)
        assert tiling.steps == 1024
        assert -(-panels // tiling.panels) >= min(panels, 4 * threads)
        assert tiling.panels > 1 or threads == 8


def test_the_best_point_of_a_kernel_has_them() -> None:
    kernel = products(128, 3072, 768)
    (best,) = space_of(kernel, MESH).best().nests
    assert best.steps == 1024
    done = schedule(kernel, MESH)
    assert any("sums wait in memory after 1024 steps" in note for note in done.notes)
    waiting = [b for b in done.locals if b.space is Space.WORKGROUP]
    assert len(waiting) == 1
    assert 4 * math.prod(waiting[0].shape) <= MESH.l2.size_bytes // 2


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("rows", "depth", "columns", "steps"),
    [(29, 32, 70, 8), (13, 16, 32, 8), (2, 24, 1, 8), (14, 64, 100, 32), (3, 48, 33, 16)],
)
def test_tiles_that_take_steps_in_turns_compute_the_same(
    rows: int, depth: int, columns: int, steps: int
) -> None:
    kernel = products(rows, depth, columns)
    done = scheduled(kernel, steps)
    assert any("sums wait in memory" in note for note in done.notes)
    assert_same(kernel, done, exact=False)


@pytest.mark.slow
def test_rows_with_gaps_are_summed_in_steps() -> None:
    kernel = op_kernel("contract", [(29, 40), (3, 24, 32)], (29, 70), product(70))
    done = scheduled(kernel, 8)
    assert any("sums wait in memory" in note for note in done.notes)
    assert_same(kernel, done, exact=False)


def test_steps_are_whole_turns_of_the_loop_that_is_written_out() -> None:
    for depth in (12, 20, 31, 33):
        (space,) = space_of(products(15, depth, 40), MESH).nests
        assert {point.steps for point in space.neighbours(space.best())} == {0}


def test_a_window_of_few_elements_is_summed_at_once() -> None:
    kernel = op_kernel(
        "contract",
        [(1, 9, 9, 512), (1, 1, 3, 3, 512, 32)],
        (1, 7, 7, 32),
        convolution(32),
    )
    (best,) = space_of(kernel, MESH).best().nests
    assert best.steps == 0


def test_terms_are_added_in_the_same_order() -> None:
    rng = np.random.default_rng(0)
    kernel = products(3, 64, 32)
    left = rng.standard_normal((3, 64)).astype(np.float32) * 10.0 ** rng.integers(-6, 7, 64)
    assert left.dtype == np.float64
    whole, parts = scheduled(kernel, 0), scheduled(kernel, 16)
    assert_same(whole, parts, exact=True)


@pytest.mark.parametrize(
    ("machine", "columns", "unroll"), [(V3, 8, 1), (V3, 16, 4), (ZEN4, 16, 4)]
)
def test_tiles_of_one_vector_that_fill_the_registers_take_step_by_step(
    machine: MachineModel, columns: int, unroll: int
) -> None:
    space = shape(49, 32, columns, machine=machine, grain=0).space()
    chosen = space.best({"columns": columns})
    assert (chosen.columns, chosen.unroll) == (columns, unroll)
