from __future__ import annotations

import pytest

from fakes.loop_nests import assert_same, body_text, product, row_sums
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.kernel.rewrite import loops
from tilewright.compiler.schedule.primitives import (
    cache_write,
    drop_guards,
    fission,
    fuse_nests,
    privatize,
    rfactor,
    sink_guards,
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


def guarded_tile() -> Kernel:
    """The tile of a product with padded columns: registers guarded like the store."""
    b = KernelBuilder("k")
    a, w = b.parameter("a", f32, (5,)), b.parameter("w", f32, (5, 8))
    y = b.result("y", f32, (6,))
    with b.nest((6,), ("j",)) as (j,):
        b.store(y, (j,), 0)
        with b.reduce((5,), ("k",)) as (k,):
            b.accumulate("add", y, (j,), b.mul(b.load(a, (k,)), b.load(w, (k, j))))
    return fission(split(cache_write(b.build(), "y", "j", "t"), "j", 4), "j_o", 2)


def test_drop_guards_frees_registers_whose_readers_keep_the_guard() -> None:
    kernel = guarded_tile()
    loops = [s.var.name for s in kernel.body]
    changed = kernel
    for name in loops:
        changed = drop_guards(changed, name)
    assert body_text(kernel).count("if") == 3
    assert body_text(changed).count("if") == 1
    assert_same(kernel, changed)


def test_drop_guards_keeps_a_guard_that_keeps_loads_in_bounds() -> None:
    kernel = fission(split(cache_write(product(2, 6, 3), "y", "j", "t"), "j", 4), "i", 3)
    changed = drop_guards(kernel, kernel.body[1].var.name)
    assert body_text(changed).count("if") == 3


def rows_of_a_padded_product(rows: int, columns: int) -> Kernel:
    """Tiles of 4 columns whose left operand is read in blocks of rows, the last of them shorter."""
    b = KernelBuilder("k")
    a, w = b.parameter("a", f32, (rows, 5)), b.parameter("w", f32, (5, 8))
    y = b.result("y", f32, (rows, columns))
    with b.nest((rows, columns), ("i", "j")) as (i, j):
        b.store(y, (i, j), 0)
        with b.reduce((5,), ("k",)) as (k,):
            b.accumulate("add", y, (i, j), b.mul(b.load(a, (i, k)), b.load(w, (k, j))))
    kernel = split(cache_write(b.build(), "y", "j", "t"), "i", 18, "tight", ("ib", "in"))
    return fission(split(split(kernel, "in", 2), "j", 4), "j_o", 2)


@pytest.mark.parametrize("columns", [5, 6, 7])
def test_drop_guards_frees_loads_that_another_iteration_does_too(columns: int) -> None:
    kernel = rows_of_a_padded_product(29, columns)
    changed = kernel
    for name in (s.var.name for s in loops(kernel.body) if s.var.name.startswith("j_o")):
        changed = drop_guards(changed, name)
    assert body_text(kernel).count(f"< {columns}") == 3
    assert body_text(changed).count(f"< {columns}") == 1
    assert_same(kernel, changed)


def test_drop_guards_keeps_a_guard_when_somebody_reads_without_it() -> None:
    kernel = rfactor(split(private_sums(6), "k", 4, into=("ko", "ki")), "t", ["ki"], 4)
    assert body_text(drop_guards(kernel, "ko")).count("if") == 1


def test_sink_guards_moves_them_inside_inner_loops() -> None:
    kernel = sink_guards(guarded_tile(), guarded_tile().body[1].var.name)
    text = body_text(kernel)
    assert text.index("for k") < text.index("if", text.index("for k"))
    assert_same(guarded_tile(), kernel)
