from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import f32, i64
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.ir import Node
from tilewright.compiler.graph.schema import Role, TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.transforms.fusion_classes import (
    is_border,
    is_cheap,
    is_repeatable,
    keeps_last_axis,
    moves_last_axis,
    permutation,
    reads_linearly,
    role_of,
)

N = symbol("N", 1)


def node(op: str, *shapes: tuple, dtype=f32, **attributes) -> Node:
    b = GraphBuilder()
    operands = [b.input(f"x{i}", TensorType(dtype, s)) for i, s in enumerate(shapes)]
    return b.node(op, operands, attributes)


@pytest.mark.parametrize(
    ("made", "linear", "repeatable"),
    [
        (node("transpose", (N, 5), perm=(1, 0)), True, False),
        (node("broadcast_to", (5, 1), shape=(N, 5, 7)), True, True),
        (
            node("slice", (N, 9), axes=(1,), starts=(8,), sizes=(4,), steps=(-2,)),
            True,
            True,
        ),
        (node("tile", (3, 5), repeats=(2, 1)), False, False),
        (node("tile", (3, 1), repeats=(1, 4)), True, True),
        (node("tile", (0, 5), repeats=(2, 1)), True, True),
        (node("reshape", (3, 0, 2), shape=(0, 7)), True, True),
        (node("reshape", (N, 12), shape=(N, 3, 4)), True, True),
        (node("reshape", (N, 3, 4), shape=(N, 12)), False, True),
        (node("trilu", (3, 3)), False, False),
    ],
    ids=lambda value: value.op if isinstance(value, Node) else str(value),
)
def test_places_tell_how_a_move_reads(made, linear, repeatable):
    assert reads_linearly(made) is linear
    assert is_repeatable(made, role_of(made)) is repeatable


def test_only_a_move_that_reorders_all_axes_is_a_permutation():
    assert permutation(node("transpose", (2, N, 5), perm=(1, 0, 2))) == (1, 0, 2)
    assert keeps_last_axis(node("transpose", (2, N, 5), perm=(1, 0, 2)))
    assert moves_last_axis(node("transpose", (2, N, 5), perm=(2, 0, 1)))
    for same in (
        node("broadcast_to", (5,), shape=(3, 5)),
        node("slice", (5, 7), axes=(1,), starts=(0,), sizes=(4,)),
        node("relu", (5, 7)),
    ):
        assert permutation(same) is None
        assert not keeps_last_axis(same)
        assert not moves_last_axis(same)


def test_what_comes_of_positions_or_of_one_number_is_free():
    b = GraphBuilder()
    one = b.constant(np.full((1, 3), 2.0, np.float32))
    assert role_of(b.broadcast_to(one, shape=(500_000, 3)).node) is Role.FREE
    assert role_of(node("iota", shape=(7,))) is Role.FREE
    assert role_of(node("broadcast_to", (1, 3), shape=(9, 3))) is Role.MAP


@pytest.mark.parametrize(
    ("op", "cheap"),
    [("hard_swish", True), ("neg", True), ("softsign", False), ("tanh", False)],
)
def test_an_op_whose_body_is_a_few_instructions_is_cheap(op, cheap):
    assert is_cheap(node(op, (N, 3))) is cheap


def test_whether_an_op_is_cheap_may_depend_on_types():
    assert is_cheap(node("add", (3,), (3,), dtype=i64))
    assert not is_cheap(node("div", (3,), (3,), dtype=i64))
    assert not is_cheap(node("softmax", (3,)))


def test_a_border_is_constant_and_crops_nothing():
    assert is_border(node("pad", (3, 4), pads=(0, 1, 0, 1)))
    assert not is_border(node("pad", (3, 4), pads=(0, -1, 0, 1)))
    assert not is_border(node("pad", (3, 4), pads=(0, 1, 0, 1), mode="edge"))
    assert not is_border(node("concat", (3, 4), (3, 4), axis=0))
