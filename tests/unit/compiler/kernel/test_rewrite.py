from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.base import symbolic
from tilewright.base.dtypes import f32, i64
from tilewright.base.errors import InternalError
from tilewright.compiler.kernel import rewrite
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.expressions import binary, cast, unary
from tilewright.compiler.kernel.ir import (
    Barrier,
    Binary,
    Buffer,
    Load,
    Statement,
    Store,
    Unary,
)
from tilewright.compiler.kernel.text import statement_lines
from tilewright.compiler.kernel.verifier import verify


def gather_kernel():
    b = KernelBuilder("gather")
    x = b.parameter("x", f32, (9, 3))
    at = b.parameter("at", i64, (4,))
    y = b.result("y", f32, (4, 3))
    with b.nest((4, 3), ("i", "j")) as (i, j):
        row = b.as_index(b.add(b.load(at, (i,)), 1))
        b.store(y, (i, j), b.load(x, (row * 1 + 2, j)))
    return b.build()


def body_text(body: Sequence[Statement]) -> str:
    return "\n".join(line for s in body for line in statement_lines(s))


def test_substitution_reaches_loads_inside_indices():
    kernel = gather_kernel()
    (store,) = rewrite.stores(kernel.body)
    env = {"i": 3, "j": symbolic.symbol("q")}
    text = body_text(rewrite.substitute((store,), env))
    assert text == "y[3, q] = x[<(at[3] + 1)> + 2, q]"


def test_a_buffer_inside_an_index_gives_way_to_one_of_the_same_name():
    kernel = gather_kernel()
    (store,) = rewrite.stores(kernel.body)
    old = next(p.buffer for p in kernel.parameters if p.buffer.name == "at")
    new = Buffer("at", i64, (4,))
    body = rewrite.replace_buffers((store,), {old: new})
    assert set(rewrite.buffers_read(body)) == {kernel.parameters[0].buffer, new}


def test_substitution_is_simultaneous():
    i, j = symbolic.symbol("i"), symbolic.symbol("j")
    assert rewrite.substitute_dim(i * 4 + j, {"i": j, "j": i}) == j * 4 + i


def test_a_mapping_sees_every_expression_and_keeps_what_is_shared():
    load = Load(Buffer("x", f32, (4,)), (0,))
    shared = unary("exp", load)
    root = binary("add", shared, shared)
    seen: list[object] = []

    def visit(e):
        seen.append(e)
        return unary("neg", e) if e is load else e

    image = rewrite.Rewriter(expression=visit).expression(root)
    assert len(seen) == 3
    assert isinstance(image, Binary)
    assert image.left is image.right
    assert isinstance(image.left, Unary)
    assert rewrite.Rewriter(expression=lambda e: e).expression(root) is root


def test_loads_inside_indices_and_masks_are_collected():
    kernel = gather_kernel()
    assert [b.name for b in rewrite.buffers_read(kernel.body)] == ["x", "at"]
    assert [b.name for b in rewrite.buffers_written(kernel.body)] == ["y"]
    (store,) = rewrite.stores(kernel.body)
    assert {s.name for s in rewrite.expression_symbols(store.value)} == {"i", "j"}


def test_loops_are_renamed_with_everything_that_uses_them():
    kernel = gather_kernel()
    names = rewrite.FreshNames.of(kernel)
    copy = rewrite.rename_loops(kernel.body, names)
    assert [loop.var.name for loop in rewrite.loops(copy)] == ["i_2", "j_2"]
    assert not {s.name for s in rewrite.body_symbols(copy)} & {"i", "j"}
    both = rewrite.with_body(kernel, kernel.body + copy)
    verify(both)


def test_a_loop_variable_cannot_become_an_expression():
    kernel = gather_kernel()
    with pytest.raises(InternalError, match="cannot become"):
        rewrite.substitute(kernel.body, {"i": symbolic.symbol("p") * 2})


def test_statements_can_be_replaced_by_several_or_none():
    kernel = gather_kernel()
    doubled = rewrite.map_body(
        kernel.body, statement=lambda s: (s, Barrier()) if isinstance(s, Store) else s
    )
    assert body_text(doubled).endswith("barrier")
    single = rewrite.map_body(
        doubled, statement=lambda s: () if isinstance(s, Barrier) else s
    )
    assert body_text(single) == body_text(kernel.body)


def test_replaced_buffers_are_replaced_in_indices_too():
    kernel = gather_kernel()
    old = kernel.parameters[1].buffer
    new = Buffer("places", i64, (4,))
    assert "<(places[i] + 1)>" in body_text(
        rewrite.replace_buffers(kernel.body, {old: new})
    )


def test_fresh_names_count_from_the_stem():
    names = rewrite.FreshNames(["i", "i_2"])
    assert [names.fresh("i"), names.fresh("i_2"), names.fresh("k")] == ["i_3", "i_4", "k"]


def test_a_data_dependent_index_keeps_its_dtype_through_a_cast():
    b = KernelBuilder("k")
    x, at = b.parameter("x", f32, (5,)), b.parameter("at", f32, (3,))
    y = b.result("y", f32, (3,))
    with b.nest((3,)) as (i,):
        index = b.as_index(cast(b.load(at, (i,)), i64))
        b.store(y, (i,), b.load(x, (index,)))
    kernel = b.build()
    verify(kernel)
    out = np.zeros(3, np.float32)
    evaluate(kernel, [np.arange(5, dtype=np.float32), np.float32([4, 0, 2.9]), out])
    assert out.tolist() == [4, 0, 2]
