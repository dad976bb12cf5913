"""Products with weights that stay integers of 4 or 8 bits, or floats of 8, a scale to each block of them.

A word holds 8 or 4 numbers of one column, the first in its lowest bits; floats have a sign, an exponent and `mantissa` bits.  What a word stands for is made in
registers: its numbers as floats, exact, times those of the left operand, and their sum times the scale of the block.
Bytes that are read are those that are stored.  Called by the catalogue; `transforms.block_weights` makes the words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import DType, f8e4m3fn, f8e5m2, f32, i32, u8
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel.builder import KernelBuilder, Source
from tilewright.compiler.kernel.dot_products import dot_of_bytes, dot_of_small_bytes
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.ir import Buffer, Call, Expression, Intrinsic
from tilewright.compiler.ops.bodies import Operands, Results, given, maybe
from tilewright.compiler.ops.contraction import (
    CONTRACTION,
    WORD_BITS,
    panel_count,
    sum_of_products,
)
from tilewright.compiler.ops.declaration import (
    OpDecl,
    Types,
    attr,
    declare,
    operand,
    optional,
)
from tilewright.compiler.ops.shapes import check_same, element_count, need

NIBBLE: Final = 4
_BYTE: Final = 8
_MANTISSA_BITS: Final = 23
_EXPONENT_BIAS: Final = 127
_PLACES: Final = {
    4: ((0, 0), (4, 0), (0, -8), (4, -8), (0, -16), (4, -16), (0, -24), (4, -24)),
    8: ((0, 0), (8, 0), (0, -16), (8, -16)),
}
"""By the bits of an integer: in which bit of the mantissa each of a word is read, and how far left the word
is moved for it.  Few places, so that their masks and powers stay in registers; and every second number of 4 bits at
the bottom, where machines may look it up, so that both kinds of units have half of the work."""
_LOWEST: Final = INSTRUCTIONS["vpermps"]
"""What is added to -0.0 is what it was, so no addition is left of it."""
_TOP_BYTES: Final = tuple(
    INSTRUCTIONS[f"pshufb_{place}"] for place in range(WORD_BITS // _BYTE)
)
_EACH_BYTE: Final = 0x01010101
_EACH_HALF: Final = 0x11111111
_LOW_HALVES: Final = 0x0F0F0F0F
MANTISSAS: Final[Mapping[DType, int]] = {f8e4m3fn: 3, f8e5m2: 2}
"""The floats of 8 bits that words may hold, all finite, by the bits of their mantissa."""


def middle(bits: int) -> int:
    """What stands for zero where there are no zero points."""
    return 1 << (bits - 1)


def places_in_order(bits: int) -> tuple[int, ...]:
    """At which bits of a word its numbers stand, where they follow each other."""
    return tuple(range(0, WORD_BITS, bits))


def places_by_bytes(bits: int) -> tuple[int, ...]:
    """The same where each byte has one of four numbers, those of 4 bits the next four in its upper half."""
    return tuple(
        byte + half for half in range(0, _BYTE, bits) for byte in range(0, WORD_BITS, _BYTE)
    )


def _check_bits(bits: int) -> None:
    """Raises: ModelError."""
    if bits not in (NIBBLE, _BYTE):
        raise ModelError(f"weights of {bits} bits in words, expected 4 or 8")


def _check_panels(
    w: TensorType, scale: TensorType, zero: TensorType | None, columns: Dim
) -> None:
    """Raises: ModelError where scales and zero points are not those of the words."""
    panels, steps, panel = w.shape
    if not isinstance(panel, int):
        raise ModelError(f"the panel of {w} is not a number")
    check_same("panels of the words", panels, panel_count(columns, panel))
    if (panels, panel) != (scale.shape[0], scale.shape[2]) or not scale.shape[1]:
        raise ModelError(f"scales {scale} do not fit words {w}")
    if symbolic.mod(steps, scale.shape[1]) != 0:
        raise ModelError(f"blocks of {scale} are not whole words of {w}")
    if zero is not None and zero.shape != scale.shape:
        raise ModelError(f"zero points {zero} do not fit scales {scale}")


def _infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    a, w, scale, zero = need(types, 0), need(types, 1), need(types, 2), types[3]
    (columns,) = cast("tuple[Dim, ...]", attributes["columns"])
    bits = cast("int", attributes["bits"])
    _check_bits(bits)
    mantissa = cast("int", attributes["mantissa"])
    if mantissa and (bits != _BYTE or mantissa not in MANTISSAS.values() or types[3]):
        raise ModelError(f"floats of {bits} bits, {mantissa} of them of the mantissa")
    if a.rank < 2 or w.rank != 3 or scale.rank != 3:
        raise ModelError(
            f"expected [.., M, K], [P, words, panel] and [P, blocks, panel], got {a}, {w} and {scale}"
        )
    depth = w.shape[1] * (WORD_BITS // bits)
    check_same(f"inner dimensions of {a} and {w}", a.shape[-1], depth)
    _check_panels(w, scale, zero, columns)
    return (TensorType(f32, (*a.shape[:-1], columns)),)


def _numbers_at(words: np.ndarray, places: tuple[int, ...]) -> np.ndarray:
    """[P, words, panel] as [P, K, panel] integers, which stand at `places` in turn."""
    panels, steps, panel = words.shape
    shifts = np.array(places, np.uint32)[None, None, :, None]
    mask = np.uint32((1 << WORD_BITS // len(places)) - 1)
    found = words.view(np.uint32)[:, :, None, :] >> shifts & mask
    return found.reshape(panels, steps * len(places), panel)


def _oracle(
    a: np.ndarray,
    w: np.ndarray,
    scale: np.ndarray,
    zero: np.ndarray | None,
    *,
    columns: tuple[int],
    bits: int,
    mantissa: int,
    by_bytes: bool,
) -> np.ndarray:
    del by_bytes  # another way to the same
    values = _numbers_at(w, places_in_order(bits))
    block = values.shape[1] // scale.shape[1]
    shift = np.full(scale.shape, middle(bits)) if zero is None else zero
    for dtype in (t for t, size in MANTISSAS.items() if size == mantissa):
        values, shift = values.astype(np.uint8).view(dtype.numpy), np.zeros(scale.shape)
    values = values.astype(np.float64)
    real = (values - np.repeat(shift.astype(np.float64), block, 1)) * np.repeat(
        scale.astype(np.float64), block, 1
    )
    matrix = np.swapaxes(real, 0, 1).reshape(real.shape[1], -1)[:, : columns[0]]
    total = np.matmul(a.astype(np.float64), matrix)
    return total.astype(np.float32)


def _body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    left, words, scale = (given(operands, i) for i in range(3))
    zero, (result,) = maybe(operands, 3), results
    bits, mantissa = cast("int", attributes["bits"]), cast("int", attributes["mantissa"])
    panels, count, panel = words.shape
    blocks = scale.shape[1]
    steps = symbolic.floordiv(count, blocks)
    *batch_shape, rows, _ = result.shape
    names = (*(f"b{i}" for i in range(len(batch_shape))), "m", "p", "l")
    shape = (*batch_shape, rows, panels, panel)
    total = b.temporary(f32, shape, "acc")
    with b.nest(shape, names) as indices:
        *batch, m, p, lane = indices
        b.store(total, indices, 0)
        with b.reduce((blocks, steps), ("k", "w")) as (block, step):
            at = block * steps + step
            word = b.read(words, (p, at, lane))
            shift: Expression | None = None
            if zero is not None:
                shift = b.cast(b.read(zero, (p, block, lane)), f32)
            factor: Expression = b.read(scale, (p, block, lane))
            if mantissa:
                numbers = dict(enumerate(_floats(b, word, mantissa)))
            elif attributes["by_bytes"]:
                numbers = _numbers_by_bytes(b, word, shift, bits)
                factor = b.mul(factor, 0.5 ** (WORD_BITS - bits))
            else:
                numbers = dict(enumerate(_numbers(b, word, shift, bits)))
            value: Expression | None = None
            for part, number in numbers.items():
                x = b.read(left, (*batch, m, at * len(numbers) + part))
                product = b.mul(x, number)
                value = product if value is None else b.add(value, product)
            assert value is not None, "a word has numbers"
            b.accumulate("add", total, indices, b.mul(value, factor))
    _write_columns(b, total, result, names)


def _write_columns(
    b: KernelBuilder, total: Buffer, result: Buffer, names: Sequence[str]
) -> None:
    """Sums in panels, as the columns that are asked for."""
    with b.nest(total.shape, names) as indices:
        *outer, p, lane = indices
        column = p * cast("int", total.shape[-1]) + lane
        with b.when(b.lt(b.index(column), b.index(result.shape[-1]))):
            b.write(result, (*outer, column), b.load(total, indices))


def _numbers(
    b: KernelBuilder, word: Expression, zero: Expression | None, bits: int
) -> list[Expression]:
    """What the integers of a word stand for before they are scaled, exactly.

    Bits in the mantissa of a power of two are that power plus an integer, where the power is such that the
    integer's lowest bit weighs 1: no shift, and no conversion.  The lowest 4 bits are what an instruction
    takes, where there is one.
    """
    moved = {0: word}
    found: list[Expression] = []
    for place, left in _PLACES[bits]:
        if left not in moved:
            moved[left] = _moved(b, word, left)
        if not place and bits == NIBBLE:
            number: Expression = Intrinsic(_LOWEST, (b.const(-0.0, f32), moved[left]))
            found.append(
                number if zero is None else b.sub(number, b.sub(zero, middle(bits)))
            )
            continue
        power = 1 << (_MANTISSA_BITS - place)
        exponent = (_MANTISSA_BITS - place + _EXPONENT_BIAS) << _MANTISSA_BITS
        held = b.or_(b.and_(moved[left], ((1 << bits) - 1) << place), exponent)
        real = b.bitcast(held, f32)
        if zero is None:
            found.append(b.sub(real, power + middle(bits)))
        else:
            found.append(b.sub(real, b.add(zero, power)))
    return found


def _numbers_by_bytes(
    b: KernelBuilder, word: Expression, zero: Expression | None, bits: int
) -> dict[int, Expression]:
    """What the integers of a word stand for, times 2**(32 - bits), exactly, by their places.

    A byte around 0 at the top of a word, with zeros below, is what the word is worth: one instruction moves it there, where
    there is one that moves bytes, and one converts it.  Numbers of 4 bits are the upper halves of bytes, the even ones
    after a shift.
    """
    unit = 1 << (WORD_BITS - bits)
    each = _EACH_BYTE if bits == _BYTE else _EACH_HALF
    around = b.xor(word, ~((middle(bits) - 1) * each))  # the highest bit of every number
    halves = [around]
    if bits == NIBBLE:
        halves = [b.and_(moved, ~_LOW_HALVES) for moved in (b.shl(around, NIBBLE), around)]
    found: dict[int, Expression] = {}
    # All lower halves, then all upper ones: of either there are as many vectors as a tile has.
    for half, held in enumerate(halves):
        for place, instruction in enumerate(_TOP_BYTES):
            top = Intrinsic(instruction, (b.const(0, i32), held))
            number: Expression = b.cast(top, f32)
            if zero is not None:
                number = b.sub(number, b.mul(b.sub(zero, middle(bits)), unit))
            found[place * len(halves) + half] = number
    return found


def _floats(b: KernelBuilder, word: Expression, mantissa: int) -> list[Expression]:
    """The finite floats of 8 bits in a word, exactly.

    Bits of exponent and mantissa in their places of an f32, with its bias, are the number where it is normal.
    Where it is not, they are half of it and half of the least normal number; only there is twice that less the
    least normal number the smaller one.  No step meets a subnormal f32.
    """
    place = _MANTISSA_BITS - mantissa
    bias = (1 << (_BYTE - 2 - mantissa)) - 1
    least = 2.0 ** (1 - bias)
    found: list[Expression] = []
    for low in range(0, WORD_BITS, _BYTE):
        held = b.and_(_moved(b, word, place - low), ((1 << (_BYTE - 1)) - 1) << place)
        real = b.bitcast(b.add(held, (_EXPONENT_BIAS - bias) << _MANTISSA_BITS), f32)
        size = b.min(real, b.sub(b.mul(real, 2.0), least))
        sign = b.and_(_moved(b, word, WORD_BITS - _BYTE - low), -(1 << (WORD_BITS - 1)))
        found.append(b.bitcast(b.or_(b.bitcast(size, i32), sign), f32))
    return found


def _moved(b: KernelBuilder, word: Expression, left: int) -> Expression:
    if not left:
        return word
    return b.shl(word, left) if left > 0 else b.shr(word, -left)


matmul_blocks: Final = declare(
    name="matmul_blocks",
    summary="Matrix product with integers of `bits` in words, in panels (`pack_panels`), times the scale of "
    "their block, around zero points, 2**(bits - 1) if there are none, or with finite floats of 8 bits, `mantissa` "
    "of them the mantissa's; `columns` = N; `by_bytes`: integers are converted where bytes of words are moved to their top",
    operands=(
        operand("a", (f32,)), operand("w", (i32,)), operand("scale", (f32,)),
        optional("zero_point", (u8,)),
    ),
    attributes=(attr("columns", "dims"), attr("bits", "int", 4), attr("mantissa", "int", 0), attr("by_bytes", "bool", False)),
    infer=_infer,
    evaluate=_oracle,
    body=_body,
    traits=CONTRACTION,
    work=sum_of_products(lambda types: types[0].shape[-1:]),
    cases=(
        "f32[3,32] i32[2,4,4]:words f32[2,2,4]; columns=(7,)",
        "f32[1,64] i32[2,8,8]:words f32[2,1,8]; columns=(16,)",
        "f32[2,3,32]:index(4) i32[1,4,16]:words f32[1,2,16]:index(3) u8[1,2,16]:count(16); columns=(9,)",
        "f32[2,32]:index(4) i32[3,8,2]:words f32[3,2,2]:index(3); columns=(5,) bits=8",
        "f32[1,32]:index(4) i32[1,8,4]:words f32[1,1,4] u8[1,1,4]:count(255); columns=(1,) bits=8",
        "f32[0,32] i32[2,4,4]:words f32[2,2,4]; columns=(7,)",
        "f32[9,64]:index(4) i32[3,8,8]:words f32[3,2,8]:index(3) u8[3,2,8]:count(16); columns=(19,)",
        "f32[8,32]:index(4) i32[2,8,4]:words f32[2,1,4]:index(3); columns=(8,) bits=8",
        "f32[1,64]:index(4) i32[2,8,8]:words f32[2,1,8]; columns=(16,) by_bytes=True",
        "f32[2,3,32]:index(4) i32[1,4,16]:words f32[1,2,16]:index(3) u8[1,2,16]:count(16); columns=(9,) by_bytes=True",
        "f32[9,64]:index(4) i32[3,8,8]:words f32[3,2,8]:index(3) u8[3,2,8]:count(16); columns=(19,) by_bytes=True",
        "f32[2,32]:index(4) i32[3,8,2]:words f32[3,2,2]:index(3); columns=(5,) bits=8 by_bytes=True",
        "f32[1,32]:index(4) i32[1,8,4]:words f32[1,1,4] u8[1,1,4]:count(255); columns=(1,) bits=8 by_bytes=True",
        "f32[2,8]:index(4) i32[2,2,4]:count(127) f32[2,1,4]; columns=(7,) bits=8 mantissa=3",
        "f32[1,8]:index(4) i32[1,2,8]:count(124) f32[1,2,8]; columns=(8,) bits=8 mantissa=2",
    ),
    source="onnxruntime MatMulNBits",
)  # fmt: skip

# --- with a left operand of bytes -------------------------------------------------------------

_TOGETHER: Final = 32
"""Numbers of a column whose sum is scaled once, as many as blocks usually have at least."""


def words_together(words: int, bits: int) -> int:
    """How many of the words of a block are one step of a sum."""
    return math.gcd(words, _TOGETHER * bits // WORD_BITS)


def _bytes_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    a, factor, sums, w, scale, zero = (*(need(types, i) for i in range(5)), types[5])
    (columns,) = cast("tuple[Dim, ...]", attributes["columns"])
    bits = cast("int", attributes["bits"])
    _check_bits(bits)
    if [x.rank for x in (a, factor, sums, w, scale)] != [2, 2, 2, 3, 3]:
        raise ModelError(
            f"expected [M, K/4], [P, words, panel] and [P, blocks, panel], got {a}, {w} and {scale}"
        )
    _, count, panel = w.shape
    blocks = scale.shape[1]
    if not all(isinstance(n, int) for n in (panel, count, blocks)) or not blocks:
        raise ModelError(f"words {w} and scales {scale} are not of known sizes")
    count, blocks = cast("int", count), cast("int", blocks)
    check_same(f"words of {a} and {w}", a.shape[1], count * _BYTE // bits)
    _check_panels(w, scale, zero, columns)
    steps = count // words_together(count // blocks, bits)
    for each in (factor, sums):
        check_same(f"rows of {a} and {each}", a.shape[0], each.shape[0])
        check_same(f"steps of {each}", each.shape[1], steps)
    return (TensorType(f32, (a.shape[0], columns)),)


def _bytes_oracle(
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
    numbers = _numbers_at(w, places_by_bytes(bits)).astype(np.int64)
    panels, depth, panel = numbers.shape
    rows, steps = factor.shape
    numbers = numbers.reshape(panels, steps, depth // steps, panel)
    left = np.ascontiguousarray(a).view(np.int8).reshape(rows, steps, depth // steps)
    products = np.einsum("msk,pskl->mpsl", left.astype(np.int64), numbers)
    shift = np.full(scale.shape, middle(bits)) if zero is None else zero
    per_step = [np.repeat(x, steps // scale.shape[1], 1) for x in (shift, scale)]
    products -= sums[:, None, :, None].astype(np.int64) * per_step[0][None].astype(np.int64)
    real = products * per_step[1][None].astype(np.float64) * factor[:, None, :, None]
    return real.sum(2).reshape(rows, panels * panel)[:, : columns[0]].astype(np.float32)


def _bytes_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    left, factor, sums, words, scale = (given(operands, i) for i in range(5))
    zero, (result,) = maybe(operands, 5), results
    bits = cast("int", attributes["bits"])
    panels, count, panel = words.shape
    blocks = cast("int", scale.shape[1])
    per_block = cast("int", count) // blocks
    together = words_together(per_block, bits)
    shape = (result.shape[0], panels, panel)
    total = b.temporary(f32, shape, "acc")
    with b.nest(shape, ("m", "p", "l")) as (m, p, lane):
        place = (m, p, lane)
        b.store(total, place, 0)
        with b.reduce((blocks, per_block // together), ("k", "w")) as (block, within):
            step = block * (per_block // together) + within
            value: Expression | None = None
            for number in range(together):
                at = step * together + number
                word = b.read(words, (p, at, lane))
                for product in _products_of_word(b, word, left, m, at, bits):
                    value = product if value is None else b.add(value, product)
            assert value is not None, "a step has words"
            shift: Expression = b.const(-middle(bits), i32)
            if zero is not None:
                shift = b.sub(b.const(0, i32), b.cast(b.read(zero, (p, block, lane)), i32))
            value = b.add(value, b.mul(b.read(sums, (m, step)), shift))
            both = b.mul(b.read(scale, (p, block, lane)), b.read(factor, (m, step)))
            b.accumulate("add", total, place, b.mul(b.cast(value, f32), both))
    _write_columns(b, total, result, ("m", "p", "l"))


def _products_of_word(
    b: KernelBuilder, word: Expression, left: Source, row: Dim, at: Dim, bits: int
) -> list[Expression]:
    """The products of the numbers in word `at`, which stand by bytes, by the row's bytes, four at a time."""
    if bits == _BYTE:
        return [Call(dot_of_bytes(), (word, b.read(left, (row, at))))]
    found: list[Expression] = []
    for half in (0, 1):
        numbers = b.and_(_moved(b, word, -NIBBLE * half), _LOW_HALVES)
        bytes_ = b.read(left, (row, at * 2 + half))
        found.append(Call(dot_of_small_bytes(), (numbers, bytes_)))
    return found


matmul_byte_blocks: Final = declare(
    name="matmul_byte_blocks",
    summary="Matrix product of bytes, four to a word, with integers of `bits` in words, in panels (`pack_panels`), times the scale of their block, "
    "around zero points, 2**(bits - 1) if there are none; sums of up to 32 products are multiplied by the row's `factor` for them, and `sums` are those of "
    "the row's bytes; `columns` = N",
    operands=(
        operand("a", (i32,)), operand("factor", (f32,)), operand("sums", (i32,)),
        operand("w", (i32,)), operand("scale", (f32,)), optional("zero_point", (u8,)),
    ),
    attributes=(attr("columns", "dims"), attr("bits", "int", 4)),
    infer=_bytes_infer,
    evaluate=_bytes_oracle,
    body=_bytes_body,
    traits=CONTRACTION,
    work=lambda types, results, _: 8 * results[0].element_count * element_count(types[0].shape[-1:]),
    cases=(
        "i32[3,8]:words f32[3,2] i32[3,2]:index(300) i32[2,4,4]:words f32[2,2,4]; columns=(7,)",
        "i32[1,16]:index(127) f32[1,2] i32[1,2]:index(300) i32[2,8,8]:words f32[2,1,8]; columns=(16,)",
        "i32[2,8]:words f32[2,2] i32[2,2]:index(300) i32[1,4,16]:words f32[1,2,16] u8[1,2,16]:count(16); columns=(9,)",
        "i32[1,6]:words f32[1,3] i32[1,3]:index(300) i32[3,3,2]:words f32[3,3,2]; columns=(5,)",
        "i32[2,16]:words f32[2,2] i32[2,2]:index(300) i32[2,16,4]:words f32[2,2,4]; columns=(7,) bits=8",
        "i32[1,3]:words f32[1,1] i32[1,1]:index(300) i32[1,3,8]:words f32[1,1,8] u8[1,1,8]:count(255); columns=(8,) bits=8",
        "i32[0,8]:words f32[0,1] i32[0,1] i32[2,4,4]:words f32[2,1,4]; columns=(7,)",
    ),
    source="onnxruntime MatMulNBits, accuracy_level 4",
)  # fmt: skip

OPS: Final[tuple[OpDecl, ...]] = (matmul_blocks, matmul_byte_blocks)
