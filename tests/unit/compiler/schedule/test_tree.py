from __future__ import annotations

import pytest

from fakes.loop_nests import body_text, chained, product
from tilewright.base.dtypes import f32
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import symbol
from tilewright.compiler.kernel.ir import Buffer, Space
from tilewright.compiler.kernel.rewrite import FreshNames
from tilewright.compiler.schedule.primitives.loops import guard
from tilewright.compiler.schedule.tree import (
    chain,
    enclosing_loops,
    facts_at,
    find,
    find_buffer,
    loop_symbol,
    make_loop,
    path_inside,
    path_to,
    prune_locals,
    reference,
    refill,
    register,
    rewrite,
)


def test_loops_and_buffers_are_found_by_name() -> None:
    kernel = product()
    assert find(kernel, "k").reduction
    assert find_buffer(kernel, "w").shape == (6, 7)
    with pytest.raises(ScheduleError, match="product: no loop 'q'"):
        find(kernel, "q")
    with pytest.raises(ScheduleError, match="no buffer 'ww'\nhint: did you mean 'w'"):
        find_buffer(kernel, "ww")


def test_paths_and_chains() -> None:
    kernel = product()
    k = find(kernel, "k")
    assert [s.var.name for s in enclosing_loops(kernel, k)] == ["i", "j"]
    assert [s.var.name for s in chain(find(kernel, "i"))] == ["i", "j"]
    assert path_to(kernel.body, make_loop("z", 3, ())) is None


def test_rewrite_replaces_one_statement_only() -> None:
    kernel = chained()
    changed = rewrite(kernel, kernel.body[1], ())
    assert body_text(changed).count("for") == 1
    assert len(kernel.body) == 2


def test_a_loop_is_filled_with_another_body() -> None:
    kernel = product()
    inner = find(kernel, "j")
    emptied = refill(kernel, inner, ())
    assert find(emptied, "j").body == ()
    assert (find(emptied, "j").var, find(emptied, "j").extent) == (inner.var, inner.extent)
    assert find(kernel, "j") is inner


def test_the_way_to_a_loop_begins_at_one_around_it() -> None:
    kernel = product()
    i, k = find(kernel, "i"), find(kernel, "k")
    assert path_inside(i, k) == (i, find(kernel, "j"))
    assert path_inside(k, k) == ()
    with pytest.raises(ScheduleError, match="'i' is not inside 'k'"):
        path_inside(k, i)


def test_guards_around_a_statement_say_what_holds_there() -> None:
    kernel = product()
    k = find(kernel, "k")
    assert facts_at(kernel, k) == []
    guarded = rewrite(kernel, k, (guard(reference(k.var), 3, (k,)),))
    assert facts_at(guarded, k) == [(reference(k.var), 2)]


def test_registers_have_names_that_are_free() -> None:
    names = FreshNames({"t"})
    assert repr(register(names, "t", f32, 4)) == repr(
        Buffer("t_2", f32, (4,), Space.REGISTER)
    )
    assert register(names, "t", f32).shape == ()


def test_a_loop_variable_knows_its_bounds() -> None:
    assert loop_symbol("i", 5).upper == 4
    assert loop_symbol("i", symbol("N", 0)).upper is None
    assert loop_symbol("i", 0).upper == 0


def test_unused_locals_are_pruned() -> None:
    kernel = chained()
    without = rewrite(rewrite(kernel, kernel.body[0], ()), kernel.body[1], ())
    assert prune_locals(without).locals == ()
