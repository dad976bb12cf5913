"""What a product multiplies by may be made on the way, panel by panel, once for all rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.loop_nests import assert_same, emit
from tilewright.base.dtypes import f32, i32, u8
from tilewright.base.errors import ScheduleError
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, LoopKind, Space
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.schedule import rules
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import Decisions, schedule
from tilewright.compiler.schedule.rules.panels import made_panels

V3 = MachineModel.of(Target.level("v3"))


def words(
    rows: int, columns: int, *, panel: int = 16, blocks: int = 3, border: bool = False
) -> Kernel:
    """`gelu(a w + bias)` with 4 bits to a weight, a zero point and a scale to 16 of them; with a column of zeros around it."""
    b = KernelBuilder("words")
    panels = -(-columns // panel)
    operands = [
        b.parameter("a", f32, (rows, 16 * blocks)),
        b.parameter("w", i32, (panels, 2 * blocks, panel)),
        b.parameter("scale", f32, (panels, blocks, panel)),
        b.parameter("zero", u8, (panels, blocks, panel)),
    ]
    bias, y = (
        b.parameter("bias", f32, (columns,)),
        b.result("y", f32, (rows, columns + border)),
    )
    t, u, v = (b.temporary(f32, (rows, columns)) for _ in range(3))
    emit(b, "matmul_blocks", {"columns": (columns,), "bits": 4}, operands, t)
    emit(b, "add", {}, [t, bias], u)
    if border:
        emit(b, "relu", {}, [u], v)
        emit(b, "pad", {"pads": (0, 0, 0, 1), "mode": "constant"}, [v], y)
    else:
        emit(b, "relu", {}, [u], y)
    return b.build()


def decided(kernel: Kernel) -> str:
    (found,) = (note for note in kernel.notes if note.startswith("decided: "))
    return found.removeprefix("decided: ")


@pytest.mark.thinned(4)
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize(("rows", "columns"), [(8, 17), (13, 37), (29, 50)])
def test_numbers_are_made_once_for_all_rows(rows: int, columns: int, level: str) -> None:
    kernel = words(rows, columns)
    changed = schedule(kernel, MachineModel.of(Target.level(level)))
    assert decided(changed).startswith("panels count=")
    assert_same(kernel, changed, exact=False)


def test_a_panel_is_a_workgroup_and_its_numbers_are_its_own() -> None:
    changed = schedule(words(1300, 112), V3)
    assert [x.extent for x in loops(changed.body) if x.kind is LoopKind.GRID_X] == [7]
    (made,) = (b for b in changed.locals if b.space is Space.WORKGROUP)
    assert made.shape == (48, 16)
    assert not [b for b in changed.locals if b.space is Space.DEVICE]


def test_what_stands_beside_is_in_the_same_grid() -> None:
    kernel = words(13, 37, border=True)
    changed = schedule(kernel, V3)
    assert decided(changed).startswith("panels count=")
    assert_same(kernel, changed, exact=False)


@pytest.mark.parametrize("rows", [1, 5, 7])
def test_few_rows_make_numbers_as_they_multiply(rows: int) -> None:
    kernel = words(rows, 37)
    changed = schedule(kernel, V3)
    assert "panels count" not in decided(changed)
    assert_same(kernel, changed, exact=False)


@pytest.mark.parametrize(
    ("rows", "columns", "cache_bytes", "count"),
    [
        (9, 96, 1 << 20, 6),  # a workgroup is worth its start
        (9, 96, 2 * 2 * 48 * 16 * 4, 2),  # no more than the cache holds
        (9, 96, 1 << 10, 1),
        (3000, 96, 1 << 20, 1),
        (9, 80, 2 * 4 * 48 * 16 * 4, 1),  # of five panels there are no equal parts
    ],
)
def test_a_workgroup_takes_panels_that_are_worth_it_and_stay_near(
    rows: int, columns: int, cache_bytes: int, count: int
) -> None:
    machine = replace(V3, l2=replace(V3.l2, size_bytes=cache_bytes))
    kernel = words(rows, columns)
    changed = schedule(kernel, machine)
    assert decided(changed).startswith(f"panels count={count}; ")
    if rows < 100:
        assert_same(kernel, changed, exact=False)


def test_a_single_panel_is_made_as_it_is_multiplied() -> None:
    kernel = words(20, 16)
    changed = schedule(kernel, V3)
    assert "panels count" not in decided(changed)
    assert_same(kernel, changed, exact=False)


def test_decisions_are_read_back_and_carried_out() -> None:
    kernel = words(9, 96)
    best = schedule(kernel, V3)
    decisions = Decisions.parse(decided(best))
    assert decisions.to_text() == decided(best)
    again = schedule(kernel, V3, decisions=decisions)
    assert kernel_text(again) == kernel_text(best)


def test_decisions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ScheduleError, match="does not fit"):
        schedule(words(9, 96), V3, decisions=Decisions.parse("panels count=4"))


def test_a_number_that_a_product_is_divided_by_is_no_panel() -> None:
    """A temporary without axes between two nests; the schedule is that of any such kernel."""
    b = KernelBuilder("scaled")
    x, a, w = (
        b.parameter("x", f32, (64,)),
        b.parameter("a", f32, (9, 20)),
        b.parameter("w", f32, (20, 7)),
    )
    y = b.result("y", f32, (9, 7))
    largest, scaled = b.temporary(f32, ()), b.temporary(f32, (9, 20))
    emit(b, "reduce_max", {"axes": (0,), "keepdims": False}, [x], largest)
    emit(b, "div", {}, [a, largest], scaled)
    emit(b, "matmul", {}, [scaled, w], y)
    kernel = b.build()
    assert_same(kernel, schedule(kernel, V3), exact=False)


def test_panels_that_cannot_be_joined_are_made_where_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = words(9, 96)
    monkeypatch.setattr(rules, "_PAIRS", ())
    alone = schedule(kernel, V3)
    assert "panels count" not in decided(alone)
    assert not [b for b in alone.locals if b.space is Space.DEVICE]
    assert_same(kernel, alone, exact=False)


def made(order: str, stored: str = "pkl", read: str = "pkl") -> Kernel:
    """`exp(x)` made in loops of an order, times rows; indices are where loops of these names are."""
    sizes = {"p": 4, "k": 6, "l": 8}
    b = KernelBuilder("made")
    x, a = b.parameter("x", f32, (4, 6, 8)), b.parameter("a", f32, (5, 6))
    y = b.result("y", f32, (5, 4, 8))
    t = b.temporary(f32, tuple(sizes[n] for n in stored))
    with b.nest([sizes[n] for n in order], tuple(order)) as variables:
        at = dict(zip(order, variables, strict=True))
        value = b.unary("exp", b.load(x, (at["p"], at["k"], at["l"])))
        b.store(t, tuple(at[n] for n in stored), value)
    with b.nest((5, 4, 8), ("m", "p", "l")) as (m, p, lane):
        b.store(y, (m, p, lane), 0)
        with b.reduce((6,), ("k",)) as (k,):
            at = {"p": p, "k": k, "l": lane}
            weight = b.load(t, tuple(at[n] for n in read))
            b.accumulate("add", y, (m, p, lane), b.mul(b.load(a, (m, k)), weight))
    return b.build()


def test_panels_are_found_where_the_outermost_loop_makes_them() -> None:
    found = made_panels(made("pkl"))
    assert found is not None
    assert (found.count, found.between.shape, len(found.others)) == (4, (4, 6, 8), 2)


@pytest.mark.parametrize(
    "kernel",
    [
        made("kpl"),  # each trip makes a part of every panel
        made("lpk"),
        made("kpl", stored="kpl", read="kpl"),  # the first index is no loop around the sum
    ],
    ids=["rows", "columns", "sums"],
)
def test_what_is_made_for_all_panels_at_once_is_none(kernel: Kernel) -> None:
    assert made_panels(kernel) is None
