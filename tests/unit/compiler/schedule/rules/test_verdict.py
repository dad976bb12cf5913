"""Outcomes are what a schedule is, whatever the rule that made it calls itself."""

from __future__ import annotations

import pytest

from fakes.contractions import Form
from fakes.contractions import product as packed_product
from fakes.loop_nests import op_kernel
from tilewright.base.dtypes import f32, i64
from tilewright.base.outcome import NOTICEABLE_NS, Outcome, Verdict
from tilewright.base.symbolic import Dim, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import run, schedule
from tilewright.compiler.schedule.rules.generic import GenericSite, Sharing, match_generic
from tilewright.compiler.schedule.rules.verdict import work_of

Shape = tuple[Dim, ...]
V3 = MachineModel.of(Target.level("v3"))
B, S = symbol("B", 1), symbol("S", 1)


def verdict(kernel: Kernel, machine: MachineModel = V3) -> Verdict:
    found = schedule(kernel, machine).verdict
    assert found is not None
    return found


def recurrence(length: int) -> Kernel:
    """`y[i + 1] = y[i] x[i]`: every element waits for the one before it."""
    b = KernelBuilder("recurrence")
    x = b.parameter("x", f32, (length,))
    y = b.result("y", f32, (length + 1,))
    with b.nest((length,)) as (i,):
        b.store(y, (i + 1,), b.mul(b.load(y, (i,)), b.load(x, (i,))))
    return b.build()


def test_a_heavy_nest_that_waits_for_itself_is_generic_and_slow() -> None:
    found = verdict(recurrence(1 << 20))
    assert found.outcome is Outcome.GENERIC
    assert found.is_slow
    assert found.expected_ns > 4 * found.lanes_ns


def test_a_light_one_is_generic_and_not_slow() -> None:
    found = verdict(recurrence(100))
    assert found.outcome is Outcome.GENERIC
    assert not found.is_slow


@pytest.mark.parametrize(
    ("op", "attributes", "shapes", "result", "outcome"),
    [
        ("contract", packed_product(64), [(30, 40), (4, 40, 16)], (30, 64), "tiled"),
        ("reduce_sum", {"axes": (1,), "keepdims": True}, [(300, 64)], (300, 1), "rows"),
        ("reduce_sum", {"axes": (0,), "keepdims": True}, [(300, 64)], (1, 64), "columns"),
        ("relu", {}, [(30, 64)], (30, 64), "pointwise"),
        ("relu", {}, [(B, S, 64)], (B, S, 64), "pointwise"),
        ("softmax", {"axis": -1}, [(B, S, S)], (B, S, S), "rows"),
    ],
)
def test_each_class_of_nest_has_its_word(
    op: str,
    attributes: dict[str, object] | Form,
    shapes: list[Shape],
    result: Shape,
    outcome: str,
) -> None:
    found = verdict(op_kernel(op, shapes, result, attributes))
    assert found.outcome == outcome
    assert not found.is_slow
    assert found.expected_ns == pytest.approx(found.lanes_ns, rel=0.5)


def test_a_rule_that_made_no_lanes_is_not_taken_at_its_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GenericSite, "apply", lambda *_: Outcome.ROWS)
    monkeypatch.setattr(run, "_RULES", ((Sharing, match_generic),))
    kernel = op_kernel("reduce_sum", [(30, 64)], (30, 1), {"axes": (1,), "keepdims": True})
    assert verdict(kernel).outcome is Outcome.GENERIC


def test_the_nest_that_takes_longest_decides() -> None:
    def two(length: int) -> Kernel:
        b = KernelBuilder("two")
        x, y = b.parameter("x", f32, (length,)), b.result("y", f32, (length + 1,))
        u, v = b.parameter("u", f32, (4096,)), b.result("v", f32, (4096,))
        with b.nest((length,)) as (i,):
            b.store(y, (i + 1,), b.mul(b.load(y, (i,)), b.load(x, (i,))))
        with b.nest((4096,)) as (i,):
            b.store(v, (i,), b.mul(b.load(u, (i,)), 2))
        return b.build()

    # Fewer elements than the other nest has, but one after the other.
    assert verdict(two(3000)).outcome is Outcome.GENERIC
    assert verdict(two(20)).outcome is Outcome.POINTWISE


def test_a_triangle_is_not_taken_for_its_first_row() -> None:
    b = KernelBuilder("triangle")
    x, y = b.parameter("x", f32, (100,)), b.result("y", f32, (100,))
    with b.nest((100,)) as (i,):
        b.store(y, (i,), b.const(0, f32))
        with b.reduce((i + 1,)) as (k,):
            b.store(y, (i,), b.add(b.load(y, (i,)), b.load(x, (k,))))
    kernel = b.build()
    assert work_of(kernel, kernel.body, V3).single > 100 * 100


def test_code_that_keeps_a_record_is_not_taken_to_run_for_every_element() -> None:
    b = KernelBuilder("largest")
    x, y = b.parameter("x", f32, (1000,)), b.result("y", f32, (1,))
    with b.loop(1000) as i, b.when(b.gt(b.load(x, (i,)), b.load(y, (0,)))):
        best = b.load(x, (i,))
        for _ in range(100):
            b.store(y, (0,), best)
    kernel = b.build()
    assert 1000 < work_of(kernel, kernel.body, V3).single < 20 * 1000


def test_code_behind_a_question_to_data_counts_half_and_behind_a_border_whole() -> None:
    def guarded(*, data: bool) -> float:
        b = KernelBuilder("guarded")
        x, y = b.parameter("x", f32, (1000,)), b.result("y", f32, (1000,))
        with b.loop(1000) as i:
            asked = b.gt(b.load(x, (i,)), 0) if data else b.lt(b.index(i), b.index(S))
            with b.when(asked):
                value = b.load(x, (i,))
                for _ in range(100):
                    value = b.add(value, 1)
                b.store(y, (i,), value)
        kernel = b.build()
        return work_of(kernel, kernel.body, V3).single

    assert guarded(data=True) == pytest.approx(guarded(data=False) / 2, rel=0.1)


def test_lengths_that_stand_in_memory_do_not_multiply_guesses() -> None:
    b = KernelBuilder("merge")
    n, y = b.parameter("n", i64, (2,)), b.result("y", f32, (5, 300))
    with b.loop(5) as row:
        runs, each = (b.as_index(b.load(n, (at,))) for at in range(2))
        with b.loop(runs) as i, b.loop(each) as j:
            b.store(y, (row, i * each + j), 1)
    kernel = b.build()
    assert work_of(kernel, kernel.body, V3).single <= 5 * 300


def test_what_cannot_be_noticed_is_not_slow() -> None:
    assert not Verdict(Outcome.GENERIC, NOTICEABLE_NS, 0.0).is_slow
    assert Verdict(Outcome.GENERIC, NOTICEABLE_NS + 1.0, 0.0).is_slow
    assert Verdict(Outcome.HOST, NOTICEABLE_NS + 1.0, 0.0).is_slow
    assert not Verdict(Outcome.ROWS, 1e9, 0.0).is_slow


def test_rows_that_are_picked_cost_at_most_a_line_per_element_and_not_the_table() -> None:
    def picked(words: int) -> Verdict:
        b = KernelBuilder("picked")
        table = b.parameter("table", f32, (words, 768))
        rows = b.parameter("rows", i64, (5,))
        y = b.result("y", f32, (5, 768))
        with b.nest((5, 768)) as (i, j):
            row = b.as_index(b.load(rows, (i,)))
            b.store(y, (i, j), b.load(table, (row, j)))
        return verdict(b.build())

    most = 5 * 768 * (V3.line_bytes + f32.itemsize) + V3.line_bytes
    assert picked(50_000).expected_ns <= most * V3.ns_per_byte


def test_a_slice_costs_the_lines_that_it_touches() -> None:
    def every(step: int) -> Verdict:
        b = KernelBuilder("slice")
        x = b.parameter("x", f32, (1 << 20,))
        y = b.result("y", f32, (1 << 14,))
        with b.nest((1 << 14,)) as (i,):
            b.store(y, (i,), b.load(x, (step * i,)))
        return verdict(b.build())

    dense = 2 * 2**14 * f32.itemsize
    apart = 2**14 * (V3.line_bytes + f32.itemsize)
    assert every(1).expected_ns == pytest.approx(dense * V3.ns_per_byte, rel=0.3)
    assert every(64).expected_ns == pytest.approx(apart * V3.ns_per_byte, rel=0.1)
