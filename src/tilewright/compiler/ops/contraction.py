"""Sums of products: matrix multiplication, and right operands packed for it.

A contraction is three things in a row: an accumulator nest `T = 0; T += a * b` in the compute
type, and a copy nest `result = cast(T)`, so that epilogues are moved into the store in one way
for all of them.  Convolutions are in `convolution.py`, packed forms of both in `contract.py`.

Operands may have types of their own, and their sum (`dtype`).  The packed forms may have four bytes or two bf16 in a
word of 32 bits, or eight bytes in one of 64: a product is then the sum of theirs (`product`).  So may two 16-bit numbers on the left meet two bytes
on the right, which are a word of 16 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import NUMERIC, DType
from tilewright.base.errors import ModelError
from tilewright.base.record import record
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.placement import empty_at_line
from tilewright.compiler.graph.schema import Attributes, Role, TensorType, Trait, Work
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.kernel.dot_products import (
    dot_of_bytes,
    dot_of_extended_bytes,
    dot_of_long_words,
    dot_of_pairs,
    dot_of_shorts,
)
from tilewright.compiler.kernel.expressions import bitcast
from tilewright.compiler.kernel.ir import Buffer, Call, Expression, Function
from tilewright.compiler.ops.bodies import Operands, Results, given
from tilewright.compiler.ops.declaration import Types, attr, declare, operand
from tilewright.compiler.ops.shapes import (
    aligned_sizes,
    broadcast_indices,
    broadcast_shapes,
    check_same,
    element_count,
    first,
    need,
)

CONTRACTION: Final = Trait.PURE | Trait.CONTRACTION


def widen(x: np.ndarray) -> np.ndarray:
    """Operands of an oracle: floats in f64, integers as they are (they wrap)."""
    return x.astype(np.float64) if dtypes.from_numpy(x.dtype).is_float else x


def narrow(value: np.ndarray, like: np.ndarray) -> np.ndarray:
    """The result of an oracle in the dtype of an operand."""
    return numerics.cast(value, dtypes.from_numpy(like.dtype))


def sum_of_products(axes: Callable[[Sequence[TensorType]], Sequence[Dim]]) -> Work:
    """The work where `axes` of the operands' types are those that are summed over."""
    return lambda types, results, _: (
        2 * results[0].element_count * element_count(axes(types))
    )


def sum_dtype(a: TensorType, b: TensorType, attributes: Attributes) -> DType:
    """The type of a contraction's result: stated, or that of operands which share one.

    Raises: ModelError for two types and no word about the result.
    """
    stated = cast("DType | None", attributes.get("dtype"))
    if stated is None and a.dtype is not b.dtype:
        raise ModelError(f"a product of {a} and {b} has no type of its own")
    return stated or a.dtype


def widened(x: np.ndarray, dtype: DType | None) -> np.ndarray:
    """An operand of an oracle whose sum has a type of its own: f64 holds sums of short integers."""
    return widen(x) if dtype is None else x.astype(np.float64)


def settled(total: np.ndarray, x: np.ndarray, dtype: DType | None) -> np.ndarray:
    """The sum that an oracle returns: in `dtype`, to which integers wrap, or in the type of an operand."""
    if dtype is None:
        return narrow(total, x)
    if dtype.is_float:
        return numerics.cast(total, dtype)
    return total.astype(np.int64).astype(dtype.numpy)


def accumulator_dtype(left: DType, result: DType) -> DType:
    """The type that a sum is taken in."""
    return compute_dtype(left) if left is result else compute_dtype(result)


# --- elements in words -------------------------------------------------------------------------

PRODUCT: Final = attr("product", "string", "")
WORD_BITS: Final = 32
WORDS: Final = {16: dtypes.i16, WORD_BITS: dtypes.i32, 64: dtypes.i64}
"""The types of words, by their bits."""


@final
@record
class WordProduct:
    """What a product of two words is: the sum of the products of the elements in them.

    A word on the right has as many elements as one on the left.

    Attributes:
        left, right: the types of the elements.
        result: that of the sum.
        function: the sum for one pair of words.
        left_bits: those of a word on the left.
    """

    left: DType
    right: DType
    result: DType
    function: Callable[[], Function]
    left_bits: int = WORD_BITS

    @property
    def elements(self) -> int:
        """Products of one step."""
        return per_word(self.left, self.left_bits)

    @property
    def right_bits(self) -> int:
        """Those of a word on the right."""
        return self.elements * self.right.bits

    @property
    def words(self) -> tuple[DType, DType]:
        """The types of both operands."""
        return WORDS[self.left_bits], WORDS[self.right_bits]


WORD_PRODUCTS: Final = {
    "bytes": WordProduct(dtypes.u8, dtypes.i8, dtypes.i32, dot_of_bytes),
    "long_bytes": WordProduct(
        dtypes.u8, dtypes.i8, dtypes.i32, dot_of_long_words, left_bits=64
    ),
    "extended": WordProduct(dtypes.i16, dtypes.i8, dtypes.i32, dot_of_extended_bytes),
    "shorts": WordProduct(dtypes.i16, dtypes.i16, dtypes.i32, dot_of_shorts),
    "pairs": WordProduct(dtypes.bf16, dtypes.bf16, dtypes.f32, dot_of_pairs),
}
"""By the attribute `product`."""
BYTE_PRODUCTS: Final = frozenset(
    name for name, row in WORD_PRODUCTS.items() if row.right is dtypes.i8
)
INTEGER_PRODUCTS: Final = BYTE_PRODUCTS | {"shorts"}


def per_word(dtype: DType, bits: int = WORD_BITS) -> int:
    """Elements of a type in a word of so many bits."""
    return bits // dtype.bits


def word_product(attributes: Attributes) -> WordProduct | None:
    """What a step multiplies, if it is words.  Raises: ModelError for an unknown one."""
    name = cast("str", attributes.get("product", ""))
    if name and name not in WORD_PRODUCTS:
        raise ModelError(f"there is no product '{name}' (known: {' '.join(WORD_PRODUCTS)})")
    return WORD_PRODUCTS.get(name)


def product(
    b: KernelBuilder, attributes: Attributes, x: Expression, y: Expression, sums: DType
) -> Expression:
    """What one step adds to a sum of type `sums`."""
    row = word_product(attributes)
    if row is None:
        return b.mul(b.cast(x, sums), b.cast(y, sums))
    return Call(row.function(), (x, y))


def elements_of(words: np.ndarray, dtype: DType) -> np.ndarray:
    """[..., K] words as [..., K, n] elements of a type, widened."""
    flat = np.ascontiguousarray(words).view(dtype.numpy)
    wide = np.float64 if dtype.is_float else np.int32
    return flat.reshape(*words.shape, -1 if flat.size else 1).astype(wide)


_IN_WORDS: Final = (dtypes.u8, dtypes.i8, dtypes.i16, dtypes.bf16)


def _word_dtype(x: TensorType, bits: int) -> DType:
    """The type of words of so many bits.  Raises: ModelError where the elements of `x` do not make such words."""
    if x.dtype not in _IN_WORDS or bits not in WORDS or x.dtype.bits >= bits:
        raise ModelError(
            f"words of {bits} bits are not made of {x}: several bytes or 16-bit numbers fill 64, 32 or 16 bits"
        )
    return WORDS[bits]


def _words_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, bits = first(types), cast("int", attributes["bits"])
    if not x.rank:
        raise ModelError(f"words are made along an axis, got {x}")
    dtype, count = _word_dtype(x, bits), per_word(x.dtype, bits)
    if symbolic.mod(x.shape[-1], count) != 0:
        raise ModelError(f"the last axis of {x} is not whole words")
    return (TensorType(dtype, (*x.shape[:-1], symbolic.floordiv(x.shape[-1], count))),)


as_words: Final = declare(
    name="as_words",
    summary="The same bytes as words: as many elements of the last axis as fill one i32, or with `bits` one i16 or i64, "
    "the first in its lowest bits",
    operands=(operand("x", _IN_WORDS),),
    attributes=(attr("bits", "int", WORD_BITS),),
    infer=_words_infer,
    evaluate=lambda x, *, bits: np.ascontiguousarray(x).view(WORDS[bits].numpy),
    traits=Trait.PURE | Trait.VIEW,
    on_host="a view is no code: it is read where it lies",
    cases=(
        "u8[3,8]:count(255)",
        "i8[2,4]:index(128)",
        "i16[3,6]:index(300)",
        "i8[3,6]:index(128); bits=16",
        "u8[3,16]:count(255); bits=64",
        "bf16[3,6]",
    ),
)

# --- matmul ----------------------------------------------------------------------------------


def panel_count(columns: Dim, panel: int) -> Dim:
    """How many panels of `panel` columns hold `columns`."""
    return symbolic.ceildiv(columns, panel)


def _matmul_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    a, b = need(types, 0), need(types, 1)
    if a.rank < 2 or b.rank < 2:
        raise ModelError(f"matmul needs matrices, got {a} and {b}")
    check_same(f"inner dimensions of {a} and {b}", a.shape[-1], b.shape[-2])
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    dtype = sum_dtype(a, b, attributes)
    return (TensorType(dtype, (*batch, a.shape[-2], b.shape[-1])),)


def _matmul_sizes(
    types: Sequence[TensorType], result: TensorType, _: Attributes
) -> Iterator[tuple[Dim, Dim]]:
    for type_ in types:
        yield from aligned_sizes(type_.shape[:-2], result.shape[:-2])


def _matmul_oracle(
    a: np.ndarray, b: np.ndarray, *, dtype: DType | None, rounds_to: DType | None
) -> np.ndarray:
    del rounds_to  # which is a permission
    total = np.matmul(widened(a, dtype), widened(b, dtype))
    return settled(total, a, dtype)


def _matmul_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    del attributes
    left, right, (result,) = given(operands, 0), given(operands, 1), results
    sums = accumulator_dtype(left.dtype, result.dtype)
    total = b.temporary(sums, result.shape, "acc")
    with b.nest(result.shape, _names(len(result.shape))) as indices:
        *batch, m, n = indices
        b.store(total, indices, 0)
        with b.reduce((left.shape[-1],), ("k",)) as (k,):
            x = b.read(
                left,
                (*broadcast_indices(left.shape[:-2], batch), _at(left.shape[-2], m), k),
            )
            y = b.read(
                right,
                (*broadcast_indices(right.shape[:-2], batch), k, _at(right.shape[-1], n)),
            )
            b.accumulate("add", total, indices, b.mul(b.cast(x, sums), b.cast(y, sums)))
    copy_out(b, total, result, _names(len(result.shape)))


def _at(extent: Dim, index: Dim) -> Dim:
    return 0 if extent == 1 else index


def _names(rank: int) -> tuple[str, ...]:
    return (*(f"b{i}" for i in range(rank - 2)), "m", "n")


def copy_out(
    b: KernelBuilder, total: Buffer, result: Buffer, names: Sequence[str] = ()
) -> None:
    """The copy nest of a contraction whose accumulator has the result's shape."""
    with b.nest(result.shape, names) as indices:
        b.write(result, indices, b.load(total, indices))


matmul: Final = declare(
    name="matmul",
    summary="Matrix product of the last two axes, the others broadcast; `rounds_to`: what rows of `a` may be rounded to, in the blocks that "
    "weights `b` have scales for, where that is faster",
    operands=(operand("a", NUMERIC), operand("b", NUMERIC)),
    attributes=(attr("dtype", "dtype", None), attr("rounds_to", "dtype", None)),
    infer=_matmul_infer,
    evaluate=_matmul_oracle,
    body=_matmul_body,
    traits=CONTRACTION | Trait.STRIDED,
    work=sum_of_products(lambda types: types[0].shape[-1:]),
    equal_sizes=_matmul_sizes,
    cases=(
        "[3,5] [5,7]",
        "[1,5] [5,1]",
        "[2,3,5] [5,4]",
        "[2,1,3,4] [3,4,5]",
        "[3,0] [0,2]",
        "[0,3] [3,2]",
        "[4,1] [1,3]",
        "u8[3,9]:count(255) i8[9,5]:index(127); dtype=i32",
        "i8[2,3,5]:index(128) u8[2,5,4]:count(255); dtype=i32",
    ),
    source="ONNX MatMul, opset 13 (operands of rank 2 and more)",
)

# --- packed weights --------------------------------------------------------------------------


def _pack_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x = first(types)
    panel = cast("int", attributes["panel"])
    if x.rank < 2:
        raise ModelError(f"pack_panels needs a matrix, got {x}")
    *batch, rows, columns = x.shape
    missing = cast("int", attributes["least"]) - 1
    shape = (*batch, panel_count(columns - missing, panel), rows, panel)
    bits = cast("int", attributes["words"])
    if not bits:
        return (x.with_shape(shape),)
    dtype, steps = _word_dtype(x, bits), panel_count(rows, per_word(x.dtype, bits))
    return (TensorType(dtype, (*shape[:-2], steps, panel)),)


def _pack_oracle(x: np.ndarray, *, panel: int, words: int, least: int) -> np.ndarray:
    if 0 < x.shape[-1] % panel < least:
        x = x[..., : x.shape[-1] // panel * panel]
    *batch, rows, columns = x.shape
    together = per_word(dtypes.from_numpy(x.dtype), words) if words else 1
    panels, steps = -(-columns // panel), -(-rows // together)
    if rows % together:
        x = np.concatenate([x, np.zeros((*batch, -rows % together, columns), x.dtype)], -2)
    packed = empty_at_line((*batch, panels, steps, panel, together), x.dtype)
    whole = columns // panel
    for part in range(together):
        # Row by row of the steps, so that numpy's innermost loop is as long as a panel.
        own, place = x[..., part::together, :], packed[..., part]
        inside = own[..., : whole * panel].reshape(*batch, steps, whole, panel)
        place[..., :whole, :, :] = np.moveaxis(inside, -2, -3)
        if whole < panels:  # by itself, so that the rest is not copied to get a border
            last = place[..., whole, :, :]
            last[..., : columns % panel] = own[..., whole * panel :]
            last[..., columns % panel :] = 0
    if words:
        packed = packed.view(WORDS[words].numpy)
    return packed.reshape(*batch, panels, steps, panel)


def _pack_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    panel, width = cast("int", attributes["panel"]), cast("int", attributes["words"])
    with b.nest(result.shape) as indices:
        *batch, p, k, lane = indices
        column = p * panel + lane
        inside = b.lt(b.index(column), b.index(x.shape[-1]))
        if not width:
            b.store(result, indices, b.load(x, (*batch, k, column), inside))
            return
        word: Expression | None = None
        count = per_word(x.dtype, width)
        bits = {8: dtypes.u8, 16: dtypes.u16}[x.dtype.bits]
        for part in range(count):
            row = k * count + part
            there = b.and_(inside, b.lt(b.index(row), b.index(x.shape[-2])))
            element = bitcast(b.load(x, (*batch, row, column), there), bits)
            element = b.shl(b.cast(element, result.dtype), bits.bits * part)
            word = element if word is None else b.or_(word, element)
        assert word is not None, "a word has bytes"
        b.store(result, indices, word)


pack_panels: Final = declare(
    name="pack_panels",
    summary="Columns grouped in panels, zero padded: [..., K, N] to [..., ceil(N/panel), K, panel], without a last one of fewer than `least`; "
    "with `words` the rows that fill a word of so many bits are one: [..., ceil(N/panel), ceil(K/4), panel] of bytes in 32",
    operands=(operand("x", NUMERIC),),
    attributes=(attr("panel", "int"), attr("words", "int", 0), attr("least", "int", 1)),
    infer=_pack_infer,
    evaluate=_pack_oracle,
    body=_pack_body,
    traits=Trait.PURE | Trait.MOVEMENT,
    role=Role.PACKING,
    cases=(
        "[5,7]; panel=4",
        "[2,3,8]; panel=4",
        "[5,3]; panel=16",
        "[4,5]; panel=1",
        "[5,7]; panel=4 least=3",
        "[5,6]; panel=4 least=3",
        "[2,5,2]; panel=4 least=3",
        "i8[8,5]:index(127); panel=4 words=32",
        "i8[2,7,3]:index(127); panel=2 words=32",
        "i8[2,7,3]:index(128); panel=2 words=16",
        "i8[2,9,3]:index(128); panel=2 words=64",
        "bf16[7,5]; panel=4 words=32",
        "i16[7,5]:index(30000); panel=4 words=32",
    ),
)


OPS: Final = (as_words, matmul, pack_panels)
