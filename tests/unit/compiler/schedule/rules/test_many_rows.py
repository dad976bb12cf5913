"""What a product multiplies by may be made on the way, some columns at a time, once for all rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.loop_nests import assert_same, emit
from tilewright.base.dtypes import f32, i32, u8
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel, LoopKind, Space
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.kernel.text import kernel_text
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import Decisions, run, schedule, space_of

V3 = MachineModel.of(Target.level("v3"))


def words(
    rows: Dim,
    columns: int,
    *,
    panel: int = 32,
    blocks: int = 3,
    border: bool = False,
    bits: int = 4,
    by_bytes: bool = False,
) -> Kernel:
    """`gelu(a w + bias)` with a few bits to a weight, a zero point and a scale to 16 of them; with a column of zeros around it."""
    b = KernelBuilder("words")
    panels = -(-columns // panel)
    operands = [
        b.parameter("a", f32, (rows, 16 * blocks)),
        b.parameter("w", i32, (panels, bits // 2 * blocks, panel)),
        b.parameter("scale", f32, (panels, blocks, panel)),
        b.parameter("zero", u8, (panels, blocks, panel)),
    ]
    bias, y = (
        b.parameter("bias", f32, (columns,)),
        b.result("y", f32, (rows, columns + border)),
    )
    t, u, v = (b.temporary(f32, (rows, columns)) for _ in range(3))
    attributes = {"columns": (columns,), "bits": bits, "by_bytes": by_bytes}
    emit(b, "matmul_blocks", attributes, operands, t)
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


def is_made_once(kernel: Kernel) -> bool:
    return decided(kernel).startswith("many_rows ")


@pytest.mark.sampled(5)
@pytest.mark.thinned(11)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize(("rows", "columns"), [(8, 37), (13, 70), (29, 50)])
def test_factors_are_made_once_for_all_rows(
    rows: int, columns: int, level: str, bits: int
) -> None:
    kernel = words(rows, columns, bits=bits)
    changed = schedule(kernel, MachineModel.of(Target.level(level)))
    assert is_made_once(changed)
    assert_same(kernel, changed, exact=False)


@pytest.mark.parametrize("bits", [4, 8])
def test_numbers_that_are_made_byte_by_byte_are_made_once_too(bits: int) -> None:
    """They are multiplied in another order than they lie."""
    kernel = words(9, 37, bits=bits, by_bytes=True)
    scheduled = schedule(kernel, V3)
    assert is_made_once(scheduled)
    assert_same(kernel, scheduled, exact=False)


@pytest.mark.sampled(5)
@pytest.mark.thinned(11)
@pytest.mark.parametrize("level", ["v2", "v3", "v4"])
@pytest.mark.parametrize("rows", [0, 1, 3, 7, 8, 9, 21])
def test_how_many_rows_there_are_is_seen_by_the_call(rows: int, level: str) -> None:
    kernel = words(symbol("M"), 50)
    changed = schedule(kernel, MachineModel.of(Target.level(level)))
    assert is_made_once(changed)
    assert_same(kernel, changed, {"M": rows}, exact=False)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("images", [1, 2, 3])
def test_rows_of_several_images_are_counted_together(images: int) -> None:
    b = KernelBuilder("images")
    count, rows, columns = symbol("B"), symbol("S"), 64
    operands = [
        b.parameter("a", f32, (count, rows, 32)),
        b.parameter("w", i32, (2, 4, 32)),
        b.parameter("scale", f32, (2, 2, 32)),
    ]
    y = b.result("y", f32, (count, rows, columns))
    emit(b, "matmul_blocks", {"columns": (columns,), "bits": 4}, operands, y)
    kernel = b.build()
    changed = schedule(kernel, V3)
    assert is_made_once(changed)
    assert_same(kernel, changed, {"B": images, "S": 4}, exact=False)


def test_some_columns_are_a_workgroup_and_their_factors_are_its_own() -> None:
    changed = schedule(words(1300, 224), V3)
    assert [x.extent for x in loops(changed.body) if x.kind is LoopKind.GRID_X] == [14]
    (made,) = (b for b in changed.locals if b.space is Space.WORKGROUP)
    assert made.shape == (3, 2, 8, 16)
    assert not [b for b in changed.locals if b.space is Space.DEVICE]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [13, symbol("M")])
def test_what_stands_beside_is_in_the_same_grid(rows: Dim) -> None:
    kernel = words(rows, 37, border=True)
    changed = schedule(kernel, V3)
    assert is_made_once(changed)
    assert "2 parts in one grid" in changed.notes
    assert_same(kernel, changed, {"M": 11}, exact=False)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rows", [1, 5, 7])
def test_few_rows_make_factors_as_they_multiply(rows: int) -> None:
    kernel = words(rows, 70)
    changed = schedule(kernel, V3)
    assert not is_made_once(changed)
    assert_same(kernel, changed, exact=False)


@pytest.mark.thinned(3)
@pytest.mark.parametrize(("panel", "columns"), [(32, 16), (24, 8), (8, 8), (12, 0)])
def test_a_workgroup_takes_whole_vectors_of_a_panel(panel: int, columns: int) -> None:
    kernel = words(9, 96, panel=panel)
    changed = schedule(kernel, V3)
    assert is_made_once(changed) == bool(columns)
    assert f"many_rows columns={columns} " in decided(changed) or not columns
    assert_same(kernel, changed, exact=False)


def test_factors_of_long_sums_are_made_once_though_no_cache_holds_them() -> None:
    machine = replace(V3, l2=replace(V3.l2, size_bytes=1 << 10))
    assert is_made_once(schedule(words(9, 96), machine))


def test_there_is_nothing_to_decide_where_rows_are_known() -> None:
    (choices, *_) = space_of(words(9, 96), V3).nests
    assert len(list(choices.points())) == 1
    (note,) = (x for x in schedule(words(9, 96), V3).notes if x.startswith("many_rows"))
    assert note == "many_rows: 'factors' is made once for all rows"


@pytest.mark.slow
def test_a_single_panel_makes_factors_as_it_multiplies() -> None:
    kernel = words(20, 16)
    changed = schedule(kernel, V3)
    assert not is_made_once(changed)
    assert_same(kernel, changed, exact=False)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rows", [9, symbol("M")])
def test_decisions_are_read_back_and_carried_out(rows: Dim) -> None:
    kernel = words(rows, 96)
    best = schedule(kernel, V3)
    decisions = Decisions.parse(decided(best))
    assert decisions.to_text() == decided(best)
    again = schedule(kernel, V3, decisions=decisions)
    assert kernel_text(again) == kernel_text(best)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [8, 17, 32])
def test_from_how_many_rows_on_may_be_decided(rows: int) -> None:
    kernel = words(symbol("M"), 70)
    best = space_of(kernel, V3).best().to_text()
    decisions = Decisions.parse(best.replace("least=8", "least=32"))
    assert decisions.to_text() != best
    assert_same(kernel, schedule(kernel, V3, decisions=decisions), {"M": rows}, exact=False)


def test_decisions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ScheduleError, match="does not fit"):
        schedule(words(9, 96), V3, decisions=Decisions.parse("many_rows columns=5"))


def test_factors_that_cannot_be_made_before_are_made_where_they_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = words(9, 96)
    monkeypatch.setattr(run, "_ARRANGEMENTS", ())
    alone = schedule(kernel, V3)
    assert not is_made_once(alone)
    assert not [b for b in alone.locals if b.space is Space.DEVICE]
    assert_same(kernel, alone, exact=False)
