from __future__ import annotations

import pytest

from fakes.loop_nests import body_text, chained, product
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import symbol
from tilewright.compiler.schedule.tree import (
    chain,
    enclosing_loops,
    find,
    find_buffer,
    loop_symbol,
    make_loop,
    path_to,
    prune_locals,
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


def test_a_loop_variable_knows_its_bounds() -> None:
    assert loop_symbol("i", 5).upper == 4
    assert loop_symbol("i", symbol("N", 0)).upper is None
    assert loop_symbol("i", 0).upper == 0


def test_unused_locals_are_pruned() -> None:
    kernel = chained()
    without = rewrite(rewrite(kernel, kernel.body[0], ()), kernel.body[1], ())
    assert prune_locals(without).locals == ()
