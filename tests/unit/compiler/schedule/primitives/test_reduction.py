from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, body_text, row_sums
from tilewright.base.dtypes import DType, f32, i32
from tilewright.base.errors import ScheduleError
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.primitives import (
    begin_with,
    fission,
    fuse_nests,
    privatize,
    rfactor,
    specialize,
    split,
    subtotal,
    term_by_term,
)


def private_sums(columns: int) -> Kernel:
    return privatize(fuse_nests(row_sums(3, columns), "i", "j"), "t", "i")


@pytest.mark.parametrize("columns", [2, 4, 8, 11, 16])
@pytest.mark.parametrize("lanes", [1, 4])
def test_rfactor_gives_inner_iterations_partial_results(columns: int, lanes: int) -> None:
    kernel = split(private_sums(columns), "k", 4, into=("ko", "ki"))
    changed = rfactor(kernel, "t", ["ki"], lanes)
    assert_same(row_sums(3, columns), changed, exact=False)
    if columns % 4:
        assert_same(row_sums(3, columns), specialize(changed, "ki"), exact=False)


def test_rfactor_over_two_loops_combines_a_tree_of_vectors() -> None:
    kernel = split(private_sums(32), "k", 16, into=("ko", "kk"))
    kernel = split(kernel, "kk", 4, into=("kv", "kl"))
    changed = rfactor(kernel, "t", ["kv", "kl"], 4)
    assert "horizontal_add(((" in body_text(changed)
    assert_same(row_sums(3, 32), changed, exact=False)


def test_rfactor_starts_maxima_at_their_identity() -> None:
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (3, 8)), b.result("y", f32, (3,))
    with b.nest((3,), ("i",)) as (i,):
        b.store(y, (i,), float("-inf"))
        with b.reduce((8,), ("k",)) as (k,):
            b.accumulate("max", y, (i,), b.load(x, (i, k)))
    kernel = b.build()
    changed = rfactor(split(kernel, "k", 4, into=("ko", "ki")), "y", ["ki"], 4)
    assert "= -inf" in body_text(changed)
    assert_same(kernel, changed)


def test_rfactor_refuses_what_is_no_reduction() -> None:
    with pytest.raises(ScheduleError, match="not the result of a reduction"):
        rfactor(private_sums(8), "t", ["i"])
    with pytest.raises(ScheduleError, match="no multiple of 3 lanes"):
        rfactor(split(private_sums(8), "k", 4, into=("ko", "ki")), "t", ["ki"], 3)
    with pytest.raises(ScheduleError, match="at least one loop"):
        rfactor(private_sums(8), "t", [])
    with pytest.raises(ScheduleError, match="'y' is not the result of a reduction"):
        rfactor(row_sums(), "y", ["k"])


@pytest.mark.parametrize("columns", [3, 4, 9, 16])
def test_subtotal_sums_every_piece_apart(columns: int) -> None:
    kernel = split(private_sums(columns), "k", 4, into=("ko", "ki"))
    changed = subtotal(kernel, "t", "ki")
    assert "t[] = (t[] + t_s[])" in body_text(changed)
    assert_same(row_sums(3, columns), changed, exact=False)


def test_subtotal_refuses_what_no_reduction_is_around() -> None:
    with pytest.raises(ScheduleError, match="no reduction around 'k'"):
        subtotal(private_sums(8), "t", "k")
    with pytest.raises(ScheduleError, match="not the result of a reduction"):
        subtotal(private_sums(8), "t", "i")
    with pytest.raises(ScheduleError, match="'y' is not the result of a reduction"):
        subtotal(row_sums(), "y", "k")


def scaled_sums(n: int, terms: int) -> Kernel:
    """`y += (x0 w0 + x1 w1 + ...) s`, with a factor x of each term that the loop over n shares."""
    b = KernelBuilder("k")
    x, w = b.parameter("x", f32, (3, terms)), b.parameter("w", f32, (3, terms, n))
    scale, y = b.parameter("scale", f32, (n,)), b.result("y", f32, (n,))
    with b.nest((n,), ("i",)) as (i,):
        b.store(y, (i,), 0)
    with b.reduce((3,), ("k",)) as (k,), b.nest((n,), ("j",)) as (j,):
        total = b.mul(b.load(x, (k, 0)), b.load(w, (k, 0, j)))
        for term in range(1, terms):
            total = b.add(total, b.mul(b.load(x, (k, term)), b.load(w, (k, term, j))))
        b.accumulate("add", y, (j,), b.mul(total, b.load(scale, (j,))))
    return b.build()


@pytest.mark.parametrize("n", [2, 5, 16])
@pytest.mark.parametrize("terms", [3, 8])
def test_terms_of_a_sum_are_added_for_all_iterations_in_turn(n: int, terms: int) -> None:
    kernel = scaled_sums(n, terms)
    changed = term_by_term(kernel, "j")
    text = body_text(changed)
    assert text.count("terms[] = (terms[] + ") == terms - 1
    assert "y[j] = (y[j] + (terms[] * scale[j]))" in text
    assert_same(kernel, changed)
    in_turn = fission(changed, "j")
    assert len(loops(in_turn.body)) == len(loops(kernel.body)) + terms
    assert_same(kernel, in_turn)


def test_term_by_term_refuses_what_is_no_long_sum() -> None:
    with pytest.raises(ScheduleError, match="no 3 terms are added"):
        term_by_term(scaled_sums(4, 2), "j")
    with pytest.raises(ScheduleError, match="more than one store"):
        term_by_term(scaled_sums(4, 8), "k")
    b = KernelBuilder("k")
    x, y = b.parameter("x", f32, (8, 4)), b.result("y", f32, (4,))
    with b.nest((4,), ("j",)) as (j,):
        total = b.add(b.load(x, (0, j)), b.load(x, (1, j)))
        b.store(y, (j,), b.add(b.add(total, b.load(y, (j,))), b.load(x, (2, j))))
    with pytest.raises(ScheduleError, match="reads 'y', which is stored"):
        term_by_term(b.build(), "j")


# --- begin_with --------------------------------------------------------------------------------


def biased_sums(
    rows: int = 3, columns: int = 5, op: str = "add", dtype: DType = i32, reads: int = 1
) -> Kernel:
    """y[i] = 2 * (sum of x[i, :] + bias[i]), or with another `op`; `reads` of them are added up."""
    b = KernelBuilder("k")
    x = b.parameter("x", dtype, (rows, columns))
    bias = b.parameter("bias", dtype, (rows,))
    y, t = b.result("y", dtype, (rows,)), b.temporary(dtype, (rows,), "t")
    with b.nest((rows,), ("i",)) as (i,):
        b.store(t, (i,), 0)
        with b.reduce((columns,), ("k",)) as (k,):
            b.accumulate("add", t, (i,), b.load(x, (i, k)))
        value = b.const(0, dtype)
        for _ in range(reads):
            total = {"add": b.add, "sub": b.sub, "mul": b.mul}[op](
                b.load(t, (i,)), b.load(bias, (i,))
            )
            value = b.add(value, b.mul(total, 2))
        b.store(y, (i,), value)
    return privatize(b.build(), "t", "i")


@pytest.mark.parametrize("columns", [0, 2, 5, 8])
@pytest.mark.parametrize("op", ["add", "sub"])
def test_a_sum_of_integers_begins_with_what_is_added_to_it(columns: int, op: str) -> None:
    kernel = biased_sums(columns=columns, op=op)
    changed = begin_with(kernel, "t", "i")
    assert_same(kernel, changed)
    first = body_text(changed).splitlines()[1]
    assert "bias[i]" in first
    assert "bias" not in body_text(changed).replace(first, "")


def test_a_sum_of_floats_begins_with_zero() -> None:
    with pytest.raises(ScheduleError, match="no integer"):
        begin_with(biased_sums(dtype=f32), "t", "i")


def test_a_sum_that_is_read_otherwise_begins_with_zero() -> None:
    with pytest.raises(ScheduleError, match="do not add one number"):
        begin_with(biased_sums(op="mul"), "t", "i")
    with pytest.raises(ScheduleError, match="do not add one number"):
        begin_with(biased_sums(reads=2), "t", "i")


def test_a_sum_that_is_read_elsewhere_begins_with_zero() -> None:
    kernel = fuse_nests(row_sums(3, 4), "i", "j")
    with pytest.raises(ScheduleError):
        begin_with(kernel, "t", "i")


def test_a_bias_behind_a_guard_stays_there() -> None:
    b = KernelBuilder("k")
    x, bias = b.parameter("x", i32, (8, 5)), b.parameter("bias", i32, (6,))
    y, t = b.result("y", i32, (6,)), b.temporary(i32, (8,), "t")
    with b.nest((8,), ("i",)) as (i,):
        b.store(t, (i,), 0)
        with b.reduce((5,), ("k",)) as (k,):
            b.accumulate("add", t, (i,), b.load(x, (i, k)))
        with b.when(b.within(i, 0, 6)):
            b.store(y, (i,), b.add(b.load(t, (i,)), b.load(bias, (i,))))
    with pytest.raises(ScheduleError, match="sum up"):
        begin_with(privatize(b.build(), "t", "i"), "t", "i")
