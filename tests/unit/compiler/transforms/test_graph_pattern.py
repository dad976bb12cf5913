"""Patterns fit what they describe: operands in order or not, constants, predicates, one value in two places."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import f32
from tilewright.base.errors import UserError
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.transforms.graph_pattern import (
    Pattern,
    is_const,
    is_op,
    wildcard,
)

B = GraphBuilder()
X = B.input("x", TensorType(f32, (symbol("n", 1), 8)))
Y = B.input("y", TensorType(f32, (symbol("n", 1), 8)))
W = B.constant(np.ones((8, 8), np.float32))
PRODUCT = B.matmul(X, W)
SUM = B.add(PRODUCT, Y)
RELU = B.relu(SUM)
MINUS = B.sub(X, Y)
SQUARE = B.mul(X, X)
PLAIN = B.mul(X, Y)
LEFT, RIGHT = wildcard(), wildcard()
SOFT = B.softmax(X, axis=1)


def ops(pattern: Pattern, value: Value) -> set[str] | None:
    """The ops of a match, or None."""
    found = pattern.match(value)
    return None if found is None else {node.op for node in found.nodes}


DENSE = is_op("add")(is_op("matmul")(wildcard(), is_const()), wildcard())


@pytest.mark.parametrize(
    ("pattern", "value", "expected"),
    [
        (wildcard(), X, set()),
        (is_const(), W, set()),
        (is_const(), X, None),
        (is_op("matmul"), PRODUCT, {"matmul"}),
        (is_op("matmul"), X, None),
        (is_op("add", "sub"), MINUS, {"sub"}),
        (is_op("matmul")(wildcard(), is_const()), PRODUCT, {"matmul"}),
        (is_op("matmul")(is_const(), wildcard()), PRODUCT, None),
        (is_op("matmul")(wildcard()), PRODUCT, None),
        (DENSE, SUM, {"matmul", "add"}),
        (
            is_op("add")(wildcard(), is_op("matmul")),
            SUM,
            {"matmul", "add"},
        ),  # in either order
        (is_op("sub")(wildcard(), is_op("matmul")), MINUS, None),
        (is_op("relu")(DENSE), RELU, {"matmul", "add", "relu"}),
        (DENSE.optional(is_op("relu")), RELU, {"matmul", "add", "relu"}),
        (DENSE.optional(is_op("relu")), SUM, {"matmul", "add"}),
        (is_op("mul") | is_op("sub"), MINUS, {"sub"}),
        (is_op("mul")(LEFT, LEFT), SQUARE, {"mul"}),
        (is_op("mul")(LEFT, LEFT), PLAIN, None),
        (is_op("mul")(LEFT, RIGHT), PLAIN, {"mul"}),
        (is_op("mul")(is_op("relu") | wildcard(), is_const() | wildcard()), PLAIN, {"mul"}),
        (wildcard().has_dtype("f32"), X, set()),
        (wildcard().has_dtype("f16"), X, None),
        (wildcard().has_shape(["n", 8]), X, set()),
        (wildcard().has_shape([None, 8]), X, set()),
        (wildcard().has_shape([8]), X, None),
        (wildcard().has_shape([None, 9]), X, None),
        (is_op("softmax").has_attr({"axis": 1}), SOFT, {"softmax"}),
        (is_op("softmax").has_attr({"axis": 0}), SOFT, None),
        (is_op("softmax").has_attr({"depth": 1}), SOFT, None),
        (is_op("softmax").has_attr({"axis": 1})(is_op("add")), SOFT, None),
        (is_op("softmax").has_attr({"axis": 1})(wildcard()), SOFT, {"softmax"}),
        (is_op("relu").where(lambda value: False), RELU, None),
    ],
)
def test_a_pattern_fits_what_it_describes(
    pattern: Pattern, value: Value, expected: set[str] | None
) -> None:
    assert ops(pattern, value) == expected


def test_a_match_says_what_each_part_stands_for() -> None:
    weights, bias = is_const(), wildcard()
    product = is_op("matmul")(wildcard(), weights)
    found = is_op("add")(product, bias).match(SUM)
    assert found is not None
    assert found.root is SUM
    assert (found[weights], found[bias], found[product]) == (W, Y, PRODUCT)


def test_an_op_that_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="matmull"):
        is_op("matmull")


def test_an_op_is_named() -> None:
    with pytest.raises(UserError, match="names no op"):
        is_op()


def test_an_operand_is_a_pattern() -> None:
    with pytest.raises(
        UserError, match="an operand of add or sub is 3, expected a pattern"
    ):
        is_op("add", "sub")(wildcard(), 3)  # type: ignore[arg-type]


def test_every_way_to_fit_is_told() -> None:
    found = list(is_op("mul")(LEFT, RIGHT).all_matches(PLAIN))
    assert [(match[LEFT], match[RIGHT]) for match in found] == [(X, Y), (Y, X)]


def test_what_a_predicate_raises_is_not_our_bug() -> None:
    def broken(value: Value) -> bool:
        raise ZeroDivisionError("oops")

    with pytest.raises(UserError, match="predicate of a pattern failed: ZeroDivisionError"):
        is_op("relu").where(broken).match(RELU)


def test_only_an_op_takes_operands() -> None:
    with pytest.raises(TypeError, match="only an op takes operands"):
        wildcard().has_dtype("f32")(wildcard())  # type: ignore[operator]
