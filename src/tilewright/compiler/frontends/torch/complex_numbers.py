"""Rows for complex numbers, which are two tensors each, and the names of what is done to both parts alike.

Looked up by the importer where an operand or a result is complex; what is not here is refused.

Source: the operators of ATen by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import tilewright.compiler.frontends.torch.movement as movement
import tilewright.compiler.frontends.torch.random_numbers as random_numbers
import tilewright.compiler.frontends.torch.splits as splits
from tilewright.base import dtypes, symbolic
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import fourier, open_fourier
from tilewright.compiler.frontends.kit.complex_pairs import Pair, quotient
from tilewright.compiler.frontends.kit.complex_parts import Complex, product
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.axes import keep_filled, normal
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.complex_functions import ROWS as FUNCTIONS
from tilewright.compiler.frontends.torch.complex_linear_algebra import (
    ROWS as LINEAR_ALGEBRA,
)
from tilewright.compiler.frontends.torch.complex_operands import (
    Held,
    as_complex,
    multiple,
    on_parts,
    operand_of,
    pair_of,
)
from tilewright.compiler.frontends.torch.contraction import matrix_product
from tilewright.compiler.frontends.torch.creation import identity
from tilewright.compiler.frontends.torch.elementwise import angle_of, convert
from tilewright.compiler.frontends.torch.program import Operation, Ref
from tilewright.formats.plan.size_relations import at_most

Build = Callable[[Call], Held | Sequence[Held]]


def _convert(call: Call) -> Held:
    call.argument("dtype")
    pair = pair_of(call)
    if not call.is_complex():
        return convert(call.maker, pair.real, call.dtype())
    parts = [
        convert(call.maker, part, call.dtype()) for part in (pair.real, pair.imaginary)
    ]
    return Complex(*parts)


def _conjugate(call: Call) -> Complex:
    pair = pair_of(call)
    return Complex(pair.real, call.op("neg", pair.imaginary))


def _turned_over(call: Call) -> Complex:
    """The conjugates of transposed matrices."""
    pair = _conjugate(call)
    axes = [*range(len(call.shape()))]
    axes[-2:] = reversed(axes[-2:])
    parts = (pair.real, pair.imaginary)
    return Complex(*(call.maker.transpose(part, axes) for part in parts))


def _of_parts(call: Call) -> Complex:
    shape, dtype = call.shape(), call.dtype()
    parts = [
        call.maker.broadcast_to(call.operand(name, dtype), shape)
        for name in ("real", "imag")
    ]
    return Complex(*parts)


def _polar(call: Call) -> Complex:
    size, angle = (call.operand(name, call.dtype()) for name in ("abs", "angle"))
    parts = [call.op("mul", size, call.op(op, angle)) for op in ("cos", "sin")]
    return Complex(*(call.maker.broadcast_to(part, call.shape()) for part in parts))


def _of_pairs(call: Call) -> Complex:
    return _beside_each_other(call.maker, call.tensor())


def _beside_each_other(e: NodeMaker, x: Tensor) -> Complex:
    axis = x.rank - 1
    return Complex(*(e.squeeze(e.slice(x, axis, i, 1), (axis,)) for i in (0, 1)))


def _pairs(call: Call) -> Tensor:
    e, pair = call.maker, pair_of(call)
    axis = pair.real.rank
    return e.concat(
        [e.unsqueeze(part, (axis,)) for part in (pair.real, pair.imaginary)], axis
    )


def _viewed(call: Call) -> Held:
    """Bits of complex numbers as real ones, or of real ones as complex."""
    call.argument("dtype")
    e, held = call.maker, call.held("self")
    if (held.real if isinstance(held, Complex) else held).dtype != call.dtype():
        raise UnsupportedError(
            "the bits of complex numbers as another type are not supported"
        )
    if not isinstance(held, Complex):
        return _beside_each_other(e, e.reshape(held, (*call.shape(), 2)))
    return held if call.is_complex() else e.reshape(_pairs(call), call.shape())


def _real(call: Call) -> Tensor:
    return pair_of(call).real


def _imaginary(call: Call) -> Tensor:
    return pair_of(call).imaginary


def _size(call: Call) -> Tensor:
    return call.finish(Pair.of(call.maker, pair_of(call)).size().tensor)


def _angle(call: Call) -> Tensor:
    pair = pair_of(call)
    return call.finish(angle_of(call.maker, pair.imaginary, pair.real))


def _filled(number: complex | None = None) -> Build:
    """One number everywhere; None: the argument `fill_value`."""

    def build(call: Call) -> Complex:
        found = call.argument("fill_value") if number is None else number
        if not isinstance(found, int | float | complex):
            raise UnsupportedError("argument 'fill_value' is no number that is known")
        for name in ("self", "size", "dtype"):
            call.argument(name)
        whole, dtype, shape = complex(found), call.dtype(), call.shape()
        parts = (whole.real, whole.imag)
        return Complex(*(call.maker.full(part, dtype, shape) for part in parts))

    return build


def _identity(call: Call) -> Complex:
    return as_complex(call.maker, identity(call))


def _filled_with(call: Call) -> Complex:
    """The number or the tensor of one element `value` everywhere."""
    call.argument("self")
    pair, shape = operand_of(call, "value"), call.shape()
    parts = (pair.real, pair.imaginary)
    return Complex(*(call.maker.broadcast_to(part, shape) for part in parts))


def _copied(call: Call) -> Complex:
    """What is written, in the shape of what it is written to; real numbers have an imaginary part of 0."""
    call.argument("self")
    pair = on_parts(call, pair_of(call, "src"))
    shape = call.shape()
    return Complex(
        *(call.maker.broadcast_to(p, shape) for p in (pair.real, pair.imaginary))
    )


def _chosen(call: Call) -> Complex:
    condition = call.tensor("condition")
    x, y = operand_of(call, "self"), operand_of(call, "other")
    pairs = ((x.real, y.real), (x.imaginary, y.imaginary))
    return Complex(*(call.op("where", condition, a, b) for a, b in pairs))


def _sum(op: str, *, turned: bool = False) -> Build:
    """A sum or a difference; turned, the second operand comes first."""

    def build(call: Call) -> Complex:
        x, y = operand_of(call, "self"), operand_of(call, "other")
        x, y = (y, x) if turned else (x, y)
        y = multiple(call, y, "alpha")
        return Complex(call.op(op, x.real, y.real), call.op(op, x.imaginary, y.imaginary))

    return build


def _by_number(call: Call, op: str, x: Complex) -> Complex | None:
    """Both parts by the other operand; None: it is no real number."""
    if not isinstance(call.argument("other"), int | float):
        return None
    number = call.operand("other", call.dtype())
    return Complex(call.op(op, x.real, number), call.op(op, x.imaginary, number))


def _product(call: Call) -> Complex:
    x = operand_of(call, "self")
    found = _by_number(call, "mul", x)
    if found is not None:
        return found
    other = operand_of(call, "other")
    return product(call.maker, x, other, lambda a, b: call.op("mul", a, b))


def _over(e: NodeMaker, x: Complex, y: Complex) -> Complex:
    """The quotient; over zero, parts of x over zero without its sign, as torch has it."""
    z, w = Pair.of(e, x), Pair.of(e, y)
    zero = abs(w.x)
    found = Pair(z.x / zero, z.y / zero).where(w.is_zero(), quotient(z, w))
    return found.rounded(x.real.dtype)


def _quotient(call: Call) -> Complex:
    x = operand_of(call, "self")
    found = _by_number(call, "div", x)
    return _over(call.maker, x, operand_of(call, "other")) if found is None else found


def _reciprocal(call: Call) -> Complex:
    one = Complex(*(call.maker.scalar(n, call.dtype()) for n in (1, 0)))
    return _over(call.maker, one, operand_of(call, "self"))


def _matrix_product(other: str) -> Build:
    def build(call: Call) -> Complex:
        x, y = operand_of(call, "self"), operand_of(call, other)
        e = call.maker
        is_row, is_column = x.real.rank == 1, y.real.rank == 1
        if is_row:
            x = x.map(lambda part: e.unsqueeze(part, (0,)))
        if is_column:
            y = y.map(lambda part: e.unsqueeze(part, (1,)))
        found = product(e, x, y, lambda a, b: matrix_product(e, a, b))
        rank = found.real.rank
        gone = (rank - 2,) * is_row + (rank - 1,) * is_column
        return found.map(lambda part: e.squeeze(part, gone))

    return build


def _joined(axis_name: str, *, stacked: bool = False) -> Build:
    """One after the other along an axis, a new one if `stacked`."""

    def build(call: Call) -> Complex:
        e, items = call.maker, call.argument("tensors")
        if not isinstance(items, tuple):
            raise ModelError("argument 'tensors' is no list")
        pairs: list[Complex] = []
        for item in items:
            held = call.hold(item) if isinstance(item, Ref) else None
            if held is None:
                raise ModelError("argument 'tensors' lacks a tensor")
            pairs.append(on_parts(call, as_complex(e, held)))
        if not stacked:  # What has one empty axis is no part, whatever the others have.
            pairs = [pair for pair in pairs if pair.real.shape != (0,)] or pairs[:1]
        axis = normal(call.integer(axis_name, 0), len(call.shape()))
        columns = zip(*((pair.real, pair.imaginary) for pair in pairs), strict=True)
        parts = (
            e.concat([e.unsqueeze(t, (axis,)) if stacked else t for t in column], axis)
            for column in columns
        )
        return Complex(*parts)

    return build


# --- Fourier transforms -------------------------------------------------------------------------


_LONGEST: Final = 4096
"""Elements of a transform whose length a call decides: its matrix has as many rows and columns."""


def _scaled(
    call: Call, pair: tuple[Tensor, Tensor], lengths: Sequence[Dim]
) -> list[Tensor]:
    """Sums in the type of the result, as the normalization says (0: sums, 1: over the root, 2: over the number)."""
    kind = call.integer("normalization")
    if not kind:
        return [call.finish(part) for part in pair]
    scale = _scale(call.maker, math.prod(lengths), is_root=kind == 1)
    return [call.finish(call.op("mul", part, scale)) for part in pair]


def _scale(e: NodeMaker, count: Dim, *, is_root: bool) -> Tensor:
    if isinstance(count, int):
        return e.scalar(1 / (math.sqrt(count) if is_root else count), dtypes.f64)
    total = e.cast(e.dim(count), dtypes.f64)
    divisor = e.op("sqrt", total) if is_root else total
    return e.op("div", e.scalar(1, dtypes.f64), divisor)


def _wide_parts(call: Call) -> tuple[Tensor, Tensor]:
    pair = pair_of(call)
    real, imaginary = (call.maker.cast(p, dtypes.f64) for p in (pair.real, pair.imaginary))
    return real, imaginary


def _axes(call: Call, shape: Sequence[Dim]) -> list[int]:
    return [normal(axis, len(shape)) for axis in call.integers("dim")]


def _length(call: Call, axis: int, shape: Sequence[Dim]) -> Dim:
    """How many elements are transformed; one that a call decides is neither 0 nor too large for a matrix."""
    size = shape[axis]
    if not isinstance(size, int):
        keep_filled(call.maker, size)
        call.maker.assume(*at_most(size, _LONGEST))
    return size


def _transformed(
    e: NodeMaker, pair: tuple[Tensor, Tensor], axis: int, size: Dim, sign: int
) -> tuple[Tensor, Tensor]:
    if isinstance(size, int):
        return fourier.transform(e, pair, axis, size, sign)
    return open_fourier.transform(e, pair, axis, size, sign)


def _transform(call: Call) -> Complex:
    """Of complex numbers, axis by axis."""
    pair = _wide_parts(call)
    sign = -1 if call.flag("forward") else 1
    lengths: list[Dim] = []
    for axis in _axes(call, call.shape()):
        size = _length(call, axis, call.shape())
        lengths.append(size)
        pair = _transformed(call.maker, pair, axis, size, sign)
    return Complex(*_scaled(call, pair, lengths))


def _of_real(call: Call) -> Complex:
    """Of real numbers; the last axis may end in the middle, behind which all is mirrored."""
    e, (x, _) = call.maker, _wide_parts(call)
    shape = x.shape
    axes = _axes(call, shape)
    lengths = [_length(call, axis, shape) for axis in axes]
    *rest, (last, size) = zip(axes, lengths, strict=True)
    is_half = call.flag("onesided")
    if isinstance(size, int):
        pair = fourier.of_real(e, x, last, size, size // 2 + 1 if is_half else size)
    else:
        count = open_fourier.half_of(size) if is_half else size
        pair = open_fourier.of_real(e, x, last, size, count)
    for axis, n in reversed(rest):
        pair = _transformed(e, pair, axis, n, -1)
    return Complex(*_scaled(call, pair, lengths))


def _to_real(call: Call) -> Tensor:
    """The inverse transform of half a spectrum."""
    e, pair = call.maker, _wide_parts(call)
    axes, shape = _axes(call, call.shape()), call.shape()
    call.argument("last_dim_size")
    lengths = [_length(call, axis, shape) for axis in axes]
    for axis, size in zip(axes[:-1], lengths[:-1], strict=True):
        pair = _transformed(e, pair, axis, size, 1)
    size, last = lengths[-1], axes[-1]
    given, wanted = pair[0].shape[last], open_fourier.half_of(size)
    if isinstance(size, int) and isinstance(given, int):
        if given != wanted:
            raise ModelError(f"{given} elements are no half of {size}")
        found = fourier.to_real(e, pair, last, size)
    else:
        if not symbolic.proves_equal(given, wanted):
            e.assume(given, wanted)
        found = open_fourier.to_real(e, pair, last, size)
    return _scaled(call, (found, found), lengths)[0]


_ROWS: Final[dict[str, Build]] = {
    **FUNCTIONS,
    **LINEAR_ALGEBRA,
    **random_numbers.COMPLEX,
    "_to_copy": _convert, "_conj": _conjugate, "conj_physical": _conjugate,
    "_conj_physical": _conjugate, "adjoint": _turned_over, "mH": _turned_over, "complex": _of_parts, "polar": _polar,
    "view_as_complex": _of_pairs, "view.dtype": _viewed, "view_as_real": _pairs, "view_as_real_copy": _pairs,
    "real": _real, "imag": _imaginary, "abs": _size, "add.Tensor": _sum("add"),
    "add.Scalar": _sum("add"), "sub.Tensor": _sum("sub"), "sub.Scalar": _sum("sub"),
    **dict.fromkeys(("rsub.Scalar", "rsub.Tensor"), _sum("sub", turned=True)), "mul.Tensor": _product, "mul.Scalar": _product,
    **dict.fromkeys(("div.Tensor", "div.Scalar", "true_divide.Tensor", "true_divide.Scalar"), _quotient), "reciprocal": _reciprocal,
    **dict.fromkeys(("where.Scalar", "where.ScalarOther", "where.ScalarSelf"), _chosen),
    **dict.fromkeys(("fill.Tensor", "fill.Scalar"), _filled_with),
    "matmul": _matrix_product("other"), "mm": _matrix_product("mat2"), "mv": _matrix_product("vec"),
    "bmm": _matrix_product("mat2"), **dict.fromkeys(("cat", "concat", "concatenate"), _joined("dim")), "stack": _joined("dim", stacked=True),
    "_fft_c2c": _transform, "_fft_r2c": _of_real, "_fft_c2r": _to_real,
    "angle": _angle, "copy": _copied, "where.self": _chosen,
    **dict.fromkeys(("eye", "eye.m"), _identity),
    **dict.fromkeys(("zeros", "zeros_like", "new_zeros"), _filled(0)),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), _filled(1)),
    **dict.fromkeys(("full", "full_like", "new_full"), _filled()),
}  # fmt: skip
_BY_PARTS: Final = (
    "_unsafe_index.Tensor", "_unsafe_index_put", "alias", "alias_copy", "clone", "contiguous", "cumsum", "detach", "detach_copy", "embedding", "empty.memory_format", "empty_like", "empty_permuted", "empty_strided", "gather", "index.Tensor", "index_add",
    "index_copy", "index_fill.int_Scalar", "index_fill.int_Tensor", "index_put", "index_select", "lift", "lift_fresh", "lift_fresh_copy", "masked_fill.Scalar", "masked_fill.Tensor", "masked_select", "mean", "mean.dim", "nan_to_num", "neg", "new_empty", "new_empty_strided", "positive", "resolve_conj", "resolve_neg", "scatter.src", "scatter.value",
    "scatter_add", "select_scatter", "slice_scatter", "sum", "sum.dim_IntList", "take",
)  # fmt: skip


def _full(name: str) -> str:
    return f"aten.{name}" if "." in name else f"aten.{name}.default"


ROWS: Final = {_full(name): build for name, build in _ROWS.items()}
"""By the names of overloads."""
# What moves elements moves both parts; where several tensors become one, some of them may be real.
_ALIKE: Final = (
    frozenset(map(_full, _BY_PARTS))
    | {name for row in (*movement.ROWS, *splits.ROWS) for name in row.names}
) - frozenset(ROWS)


def is_by_parts(operation: Operation) -> bool:
    """Whether the same is done to the real and the imaginary part."""
    return operation.target in _ALIKE


def _sizes(e: NodeMaker, held: Complex) -> Tensor:
    return Pair.of(e, held).size().rounded(held.real.dtype)


def _truths(e: NodeMaker, held: Complex) -> Tensor:
    """Where a number is not zero; what is no number is not."""
    return e.op("logical_not", Pair.of(e, held).is_zero())


REAL_FORMS: Final[dict[str, Callable[[NodeMaker, Complex], Tensor]]] = {
    **{
        _full(name): _sizes
        for name in ("linalg_vector_norm", "norm.Scalar", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype", "norm.ScalarOpt_dtype")
    },
    **{
        _full(name): _truths
        for name in ("all", "all.dim", "all.dims", "any", "any.dim", "any.dims", "logical_and", "logical_not", "logical_or", "logical_xor", "nonzero")
    },
}  # fmt: skip
"""Operators that look at nothing but how large complex numbers are, or whether they are zero."""


def for_part(operation: Operation, part: str) -> Operation:
    """What is done to the `real` or the `imaginary` part: of a number that is filled in, each takes its own."""
    value = operation.arguments.get("value")
    if not isinstance(value, int | float | complex):
        return operation
    number = complex(value)
    own = number.real if part == "real" else number.imag
    return replace(operation, arguments={**operation.arguments, "value": own})


NAMES: Final = frozenset(ROWS) - {_full("_to_copy")}
"""What stays whole."""
