"""Products of few rows with weights that stay integers of 4 or 8 bits, where making numbers of words is what takes the time.

A word has eight digits of base 16, or four of base 256, one for each weight.  A digit is converted where it stands: in
place `j` a unit counts base**j, by which the element that it meets is divided beforehand, without loss.  So a weight
takes a mask and a conversion.  Digits start at 0; what that is too much, the zero point times the sum of the elements,
is taken off word by word.  Rows are brought to the size of 1 by a power of two, `factor`, so that no product leaves the range of
f32 that the result does not leave.  Called by the catalogue; `transforms.block_weights` makes the operands.
"""

from __future__ import annotations

from typing import Final, cast

import numpy as np

from tilewright.base.dtypes import f32, i32, u8
from tilewright.base.errors import ModelError
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops.block_products import (
    check_bits,
    check_panels,
    middle,
    numbers_at,
    places_in_order,
    write_columns,
)
from tilewright.compiler.ops.bodies import Operands, Results, given, maybe
from tilewright.compiler.ops.contraction import CONTRACTION, WORD_BITS, sum_of_products
from tilewright.compiler.ops.declaration import (
    OpDecl,
    Types,
    attr,
    declare,
    operand,
    optional,
)
from tilewright.compiler.ops.shapes import check_same, need


def units(bits: int) -> tuple[int, ...]:
    """How much a unit counts in each place of a word; the last digit would reach the sign and is moved to the bottom."""
    last = WORD_BITS // bits - 1
    return (*(1 << (bits * j) for j in range(last)), 1)


def _infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    a, factor, sums, w, scale = (need(types, i) for i in range(5))
    (columns,) = cast("tuple[int, ...]", attributes["columns"])
    bits = cast("int", attributes["bits"])
    check_bits(bits)
    if [x.rank for x in (a, factor, sums, w, scale)] != [2, 1, 2, 3, 3]:
        raise ModelError(
            f"expected [M, K], [M], [M, words], [P, words, panel] and [P, blocks, panel], got {a}, {factor}, {sums}, {w} and {scale}"
        )
    check_panels(w, scale, types[5], columns)
    for each in (factor, sums):
        check_same(f"rows of {a} and {each}", a.shape[0], each.shape[0])
    check_same(f"words of {sums} and {w}", sums.shape[1], w.shape[1])
    check_same(
        f"inner dimensions of {a} and {w}", a.shape[1], w.shape[1] * len(units(bits))
    )
    return (TensorType(f32, (a.shape[0], columns)),)


def _oracle(
    a: np.ndarray,
    factor: np.ndarray,
    sums: np.ndarray,
    w: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    *,
    columns: tuple[int],
    bits: int,
) -> np.ndarray:
    panels, words, panel = w.shape
    digits = numbers_at(w, places_in_order(bits)).astype(np.float64)
    each = np.array(units(bits), np.float64)
    left = a.astype(np.float64) * np.tile(each, words)
    products = np.einsum(
        "mwj,pwjl->mpwl",
        left.reshape(-1, words, each.size),
        digits.reshape(panels, words, each.size, panel),
    )
    shift = np.full(scale.shape, middle(bits)) if zero is None else zero
    shift, scales = (
        np.repeat(x.astype(np.float64), words // scale.shape[1], 1) for x in (shift, scale)
    )
    real = (products - sums[:, None, :, None] * shift) * scales
    total = real.sum(2).reshape(a.shape[0], panels * panel)[:, : columns[0]]
    return (total * factor[:, None]).astype(np.float32)


def _body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    left, factor, sums, words, scale = (given(operands, i) for i in range(5))
    zero, (result,) = maybe(operands, 5), results
    bits = cast("int", attributes["bits"])
    panels, count, panel = words.shape
    blocks = cast("int", scale.shape[1])
    steps = cast("int", count) // blocks
    shape = (result.shape[0], panels, panel)
    total = b.temporary(f32, shape, "acc")
    with b.nest(shape, ("m", "p", "l")) as place:
        m, p, lane = place
        b.store(total, place, 0)
        with b.reduce((blocks, steps), ("k", "w")) as (block, step):
            at = block * steps + step
            word = b.read(words, (p, at, lane))
            if zero is None:
                value = b.mul(b.read(sums, (m, at)), -middle(bits))
            else:
                shift = b.cast(b.read(zero, (p, block, lane)), f32)
                value = b.sub(0.0, b.mul(b.read(sums, (m, at)), shift))
            digits = _digits(b, word, bits)
            for j, digit in enumerate(digits):
                x = b.read(left, (m, at * len(digits) + j))
                value = b.add(value, b.mul(x, digit))
            b.accumulate("add", total, place, b.mul(value, b.read(scale, (p, block, lane))))
    write_columns(b, total, result, ("m", "p", "l"), factor)


def _digits(b: KernelBuilder, word: Expression, bits: int) -> list[Expression]:
    """The digits of a word as floats, where they stand."""
    mask, last = (1 << bits) - 1, WORD_BITS - bits
    found = [b.and_(word, mask << place) for place in range(0, last, bits)]
    found.append(b.and_(b.shr(word, last), mask))
    return [b.cast(digit, f32) for digit in found]


matmul_digit_blocks: Final = declare(
    name="matmul_digit_blocks",
    summary="Matrix product with integers of `bits` in words, in panels (`pack_panels`), times the scale of their block, around zero points, "
    "2**(bits - 1) if there are none, times the row's `factor`; elements are divided by what a unit counts in their places of a word, and `sums` are those of "
    "a word's elements before that; `columns` = N",
    operands=(
        operand("a", (f32,)), operand("factor", (f32,)), operand("sums", (f32,)), operand("w", (i32,)),
        operand("scale", (f32,)), optional("zero_point", (u8,)),
    ),
    attributes=(attr("columns", "dims"), attr("bits", "int", 4)),
    infer=_infer,
    evaluate=_oracle,
    body=_body,
    traits=CONTRACTION,
    work=sum_of_products(lambda types: types[0].shape[-1:]),
    cases=(
        "f32[3,32] f32[3] f32[3,4] i32[2,4,4]:words f32[2,2,4]; columns=(7,)",
        "f32[1,64] f32[1] f32[1,8] i32[2,8,8]:words f32[2,1,8]; columns=(16,)",
        "f32[2,32]:index(4) f32[2] f32[2,4]:index(4) i32[1,4,16]:words f32[1,2,16]:index(3) u8[1,2,16]:count(16); columns=(9,)",
        "f32[0,32] f32[0] f32[0,4] i32[2,4,4]:words f32[2,2,4]; columns=(7,)",
        "f32[2,32]:index(4) f32[2] f32[2,8]:index(4) i32[3,8,2]:words f32[3,2,2]:index(3); columns=(5,) bits=8",
        "f32[1,32]:index(4) f32[1] f32[1,8]:index(4) i32[1,8,4]:words f32[1,1,4] u8[1,1,4]:count(255); columns=(1,) bits=8",
    ),
    source="onnxruntime MatMulNBits",
)  # fmt: skip

OPS: Final[tuple[OpDecl, ...]] = (matmul_digit_blocks,)
