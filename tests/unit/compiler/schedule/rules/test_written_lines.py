"""Cheap loops ask for the lines that they will write, where a machine waits for them."""

from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, body_text, op_kernel
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

MESH, V3, ZEN = (
    MachineModel.of(Target.parse(f"x86_64{name}"))
    for name in (" -mcpu=cascadelake", "-v3", " -mcpu=znver4")
)


def behind_each_other(rows: Dim, columns: int, copies: int = 6) -> Kernel:
    """`x`, and a row of `z` behind each of its matrices."""
    b = KernelBuilder("append")
    x = b.parameter("x", f32, (copies, rows, columns))
    z = b.parameter("z", f32, (copies, columns))
    y = b.result("y", f32, (copies, rows + 1, columns))
    with b.nest((copies, rows, columns), ("i", "j", "k")) as (i, j, k):
        b.store(y, (i, j, k), b.load(x, (i, j, k)))
    with b.nest((copies, columns), ("m", "n")) as (m, n):
        b.store(y, (m, rows, n), b.load(z, (m, n)))
    return b.build()


def hints(kernel: Kernel) -> list[str]:
    return [x.strip() for x in body_text(kernel).splitlines() if "prefetch" in x]


def test_a_long_run_of_stores_has_hints_1_kib_ahead() -> None:
    kernel = behind_each_other(40, 64)
    done = schedule(kernel, MESH)
    found = hints(done)
    assert len(found) == 4  # a line of each vector of a turn, and none for the single rows
    assert all(" + 4, " in hint for hint in found)  # turns of 256 bytes
    assert_same(kernel, done)


@pytest.mark.parametrize("machine", [V3, ZEN], ids=str)
def test_other_machines_have_none(machine: MachineModel) -> None:
    assert not hints(schedule(behind_each_other(40, 64), machine))


@pytest.mark.parametrize(
    ("rows", "columns", "copies"),
    [
        (5, 64, 90),  # runs that end before a line that was asked for is needed
        (16, 64, 3),  # the first level cache holds it
        (40, 3, 90),
    ],
)
def test_short_runs_and_small_results_have_none(rows, columns, copies) -> None:
    kernel = behind_each_other(rows, columns, copies)
    done = schedule(kernel, MESH)
    assert not hints(done)
    assert_same(kernel, done)


def test_sizes_that_only_a_call_knows_are_taken_to_be_long() -> None:
    kernel = behind_each_other(symbol("n", 1), 64)
    done = schedule(kernel, MESH)
    assert hints(done)
    assert_same(kernel, done, {"n": 3})


def test_lanes_an_open_distance_apart_are_not_side_by_side() -> None:
    """How far apart they are written is a product of sizes, which is no truth value."""
    n, left, right = symbol("n", 1), symbol("left", 1), symbol("right", 1)
    shapes = [(16, n, left), (16, n, right), (16, n, 1)]
    kernel = op_kernel("concat", shapes, (16, n, left + right + 1), {"axis": 2})
    assert_same(kernel, schedule(kernel, MESH), dims={"n": 3, "left": 5, "right": 2})
