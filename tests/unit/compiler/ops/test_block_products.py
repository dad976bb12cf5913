"""Products with weights in words and blocks: which operands do not fit each other."""

from __future__ import annotations

import pytest

from tilewright.base.dtypes import DType, f32, i32, u8
from tilewright.base.errors import ModelError
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import make_node

Shapes = dict[str, tuple[int, ...]]
WORDS: Shapes = {"a": (3, 32), "w": (2, 4, 4), "scale": (2, 2, 4), "zero_point": (2, 2, 4)}
"""Blocks of two words of 4 bits, in panels of 4 of 7 columns."""
BYTES: Shapes = {"a": (3, 8), "factor": (3, 2), "sums": (3, 2), **{k: WORDS[k] for k in ("w", "scale", "zero_point")}}  # fmt: skip
TYPES: dict[str, dict[str, DType]] = {
    "matmul_blocks": {"a": f32, "w": i32, "scale": f32, "zero_point": u8},
    "matmul_byte_blocks": {
        "a": i32, "factor": f32, "sums": i32, "w": i32, "scale": f32, "zero_point": u8,
    },
}  # fmt: skip


def node(op: str, changes: Shapes, **attributes: object) -> Node:
    shapes = (WORDS if op == "matmul_blocks" else BYTES) | changes
    operands = [Value(TensorType(dtype, shapes[n]), n) for n, dtype in TYPES[op].items()]
    return make_node(op, operands, {"columns": (7,), **attributes})


OPS = pytest.mark.parametrize("op", TYPES)


@OPS
def test_operands_that_fit_give_a_row_for_each_of_theirs(op: str) -> None:
    assert node(op, {}).results[0].type == TensorType(f32, (3, 7))


@OPS
@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"scale": (1, 2, 4)}, "do not fit words"),
        ({"scale": (2, 2, 5)}, "do not fit words"),
        ({"scale": (2, 0, 4)}, "do not fit words|not of known sizes"),
        ({"scale": (2, 3, 4)}, "are not whole words"),
        ({"scale": (2, 2)}, "expected"),
        ({"zero_point": (2, 1, 4)}, "do not fit scales"),
        ({"w": (3, 4, 4), "scale": (3, 2, 4)}, "panels of the words"),
        ({"a": (3, 9)}, "differ"),
    ],
)
def test_operands_that_do_not_fit_are_refused(
    op: str, changes: Shapes, problem: str
) -> None:
    with pytest.raises(ModelError, match=problem):
        node(op, changes)


@OPS
@pytest.mark.parametrize("bits", [0, 3, 16])
def test_words_hold_numbers_of_4_or_8_bits(op: str, bits: int) -> None:
    with pytest.raises(ModelError, match=f"weights of {bits} bits in words"):
        node(op, {}, bits=bits)


@pytest.mark.parametrize(
    ("words", "blocks", "bits", "steps"),
    [
        (4, 2, 4, 2),  # a block is two words, and a step
        (8, 1, 4, 2),  # a step is at most 32 numbers
        (6, 2, 4, 6),  # whole steps to a block
        (16, 1, 8, 2),
    ],
)
@pytest.mark.parametrize("operand", ["factor", "sums"])
def test_rows_of_bytes_come_with_a_number_for_each_step(
    words: int, blocks: int, bits: int, steps: int, operand: str
) -> None:
    shapes: Shapes = {
        "a": (3, words * 8 // bits),
        "w": (2, words, 4),
        "factor": (3, steps),
        "sums": (3, steps),
        **dict.fromkeys(("scale", "zero_point"), (2, blocks, 4)),
    }
    assert node("matmul_byte_blocks", shapes, bits=bits).results[0].type.shape == (3, 7)
    for wrong in ((3, steps + 1), (2, steps)):
        with pytest.raises(ModelError, match=r"steps of|rows of"):
            node("matmul_byte_blocks", shapes | {operand: wrong}, bits=bits)
