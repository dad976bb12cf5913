"""Rows for contractions: matmul, Gemm, Einsum, FusedMatMul, Attention of onnxruntime.

Source: ONNX operator reference (MatMul, Gemm, Einsum); numpy.matmul for ranks below 2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.diagonal import diagonal
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.activations import fused_activation
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.reduction import reduce
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Build, Row, as_of, row
from tilewright.compiler.ops.shapes import element_count

MAX_DETERMINANT: Final = 4


def matmul(
    e: NodeMaker, left: Tensor, right: Tensor, *, rounds_to: DType | None = None
) -> Tensor:
    """The numpy product, vectors included; `rounds_to`: what rows on the left may be rounded to."""
    if left.rank == 0 or right.rank == 0:
        raise ModelError(f"cannot multiply {left.type} by {right.type}")
    row_vector, column_vector = left.rank == 1, right.rank == 1
    if row_vector:
        left = e.unsqueeze(left, (0,))
    if column_vector:
        right = e.unsqueeze(right, (1,))
    result = e.op("matmul", left, right, rounds_to=rounds_to)
    dropped = [-2] * row_vector + [-1] * column_vector
    return e.squeeze(result, dropped) if dropped else result


def _matmul(call: Call) -> Tensor:
    return matmul(call.maker, call.tensor(0), call.tensor(1))


def swap_last(e: NodeMaker, x: Tensor) -> Tensor:
    """The last two axes exchanged."""
    order = list(range(x.rank))
    order[-2:] = reversed(order[-2:])
    return e.transpose(x, order)


def _scaled(e: NodeMaker, x: Tensor, factor: float) -> Tensor:
    return x if factor == 1.0 else e.op("mul", x, e.scalar(factor, x.dtype))


def _gemm(call: Call) -> Tensor:
    e, a, b, c = call.maker, call.tensor(0), call.tensor(1), call.optional(2)
    alpha, beta = call.float("alpha", 1.0), call.float("beta", 1.0)
    if call.opset < 7:
        call.integer("broadcast", 0)
    if a.rank != 2 or b.rank != 2:
        raise ModelError(f"operands have types {a.type} and {b.type}, expected matrices")
    a = swap_last(e, a) if call.flag("transA") else a
    b = swap_last(e, b) if call.flag("transB") else b
    result = _scaled(e, e.op("matmul", a, b), alpha)
    if c is None or beta == 0.0:
        return result
    return e.op("add", result, _scaled(e, c, beta))


def _fused_matmul(call: Call) -> Tensor:
    e, a, b = call.maker, call.tensor(0), call.tensor(1)
    if call.flag("transBatchA"):
        a = _rows_first(e, a)
    if call.flag("transBatchB"):
        b = _rows_first(e, b)
    a = swap_last(e, a) if call.flag("transA") else a
    b = swap_last(e, b) if call.flag("transB") else b
    return _scaled(e, matmul(e, a, b), call.float("alpha", 1.0))


def _rows_first(e: NodeMaker, x: Tensor) -> Tensor:
    """The first axis behind those of the batch: `[rows, batch..., columns]` as `[batch..., rows, columns]`."""
    return e.transpose(x, (*range(1, x.rank - 1), 0, x.rank - 1))


def _with_activation(build: Build) -> Build:
    """A product whose result is activated."""

    def activated(call: Call) -> Tensor:
        call.integer("activation_axis", 0)
        numbers = [
            number
            for key in ("alpha", "beta", "gamma")
            if (number := call.attributes.float(f"activation_{key}")) is not None
        ]
        result = build(call)
        assert isinstance(result, Tensor), "products have one result"
        return fused_activation(call.maker, result, call.string("activation", ""), numbers)

    return activated


def _gemm_fast_gelu(call: Call) -> Tensor:
    e, bias = call.maker, call.optional(2)
    product = matmul(e, call.tensor(0), call.tensor(1))
    product = product if bias is None else e.op("add", product, bias)
    return e.op("gelu", product, approximate="tanh")


def _distances(call: Call) -> Tensor:
    """Between each two rows."""
    e = call.maker
    metric = call.choice("metric", "sqeuclidean", ("euclidean", "sqeuclidean"))
    rows, others = e.unsqueeze(call.tensor(0), (1,)), e.unsqueeze(call.tensor(1), (0,))
    apart = e.op("sub", rows, others)
    square = reduce(e, "reduce_sum", e.op("mul", apart, apart), (2,), keepdims=False)
    return e.op("sqrt", square) if metric == "euclidean" else square


# --- einsum


def _einsum_terms(call: Call) -> tuple[list[str], str]:
    """The letters of every operand and of the result; an ellipsis becomes capital letters."""
    equation = call.string("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    operands = call.tensors()
    if len(terms) != len(operands):
        raise ModelError(
            f"equation '{equation:.200}' has {len(terms)} operands, got {len(operands)}"
        )
    spread = 0
    for term, x in zip(terms, operands, strict=True):
        if "..." in term:
            spread = max(spread, x.rank - len(term.replace("...", "")))
    used = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation]
    dots = "".join(used[:spread])
    expanded: list[str] = []
    for term, x in zip(terms, operands, strict=True):
        missing = x.rank - len(term.replace("...", ""))
        full = term.replace("...", dots[spread - missing :] if missing > 0 else "")
        if len(full) != x.rank or (not full.isalpha() and full):
            raise ModelError(f"equation '{equation:.200}' does not fit operand {x.type}")
        expanded.append(full)
    if not arrow:
        letters = "".join(expanded)
        right = dots + "".join(
            sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots)
        )
    return expanded, right.replace("...", dots)


def _diagonal(e: NodeMaker, x: Tensor, term: str) -> tuple[Tensor, str]:
    """Repeated letters of one operand reduced to their diagonal."""
    for letter in dict.fromkeys(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            size = x.shape[first]
            order = [i for i in range(x.rank) if i not in (first, second)] + [first, second]
            x = diagonal(e, e.transpose(x, order), size)
            term = "".join(term[i] for i in order[:-1])
    return x, term


def _pair(
    e: NodeMaker, x: Tensor, left: str, y: Tensor, right: str, kept: set[str]
) -> tuple[Tensor, str]:
    """Two operands contracted into one by a batched matmul."""
    x, left = _sum_out(e, x, left, set(right) | kept)
    y, right = _sum_out(e, y, right, set(left) | kept)
    batch = [c for c in left if c in right and c in kept]
    inner = [c for c in left if c in right and c not in kept]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    sizes = {
        c: d
        for t, s in ((left, x.shape), (right, y.shape))
        for c, d in zip(t, s, strict=True)
        if d != 1
    }

    def size(letters: Sequence[str]) -> list[Dim]:
        return [sizes.get(c, 1) for c in letters]

    a = _arranged(e, x, left, [batch, rows, inner], size)
    b = _arranged(e, y, right, [batch, inner, columns], size)
    product = e.op("matmul", a, b)
    letters = [*batch, *rows, *columns]
    return e.reshape(product, size(letters)), "".join(letters)


def _arranged(
    e: NodeMaker,
    x: Tensor,
    term: str,
    groups: Sequence[Sequence[str]],
    size: Callable[[Sequence[str]], list[Dim]],
) -> Tensor:
    """`x` with its axes in groups, the last two groups flattened to one axis each."""
    batch, first, second = groups
    letters = [*batch, *first, *second]
    moved = e.transpose(x, [term.index(c) for c in letters])
    wanted = size(letters)
    moved = e.broadcast_to(moved, wanted)
    return e.reshape(
        moved, (*size(batch), element_count(size(first)), element_count(size(second)))
    )


def _sum_out(e: NodeMaker, x: Tensor, term: str, needed: set[str]) -> tuple[Tensor, str]:
    """Letters that nobody else needs are summed at once."""
    axes = [i for i, c in enumerate(term) if c not in needed]
    if not axes:
        return x, term
    result = reduce(e, "reduce_sum", x, axes, keepdims=False)
    return result, "".join(c for c in term if c in needed)


def _einsum(call: Call) -> Tensor:
    e = call.maker
    terms, result = _einsum_terms(call)
    if len(set(result)) != len(result) or not set(result) <= set("".join(terms)):
        raise ModelError(f"einsum result '{result}' does not follow from its operands")
    work = [_diagonal(e, x, t) for x, t in zip(call.tensors(), terms, strict=True)]
    x, term = work[0]
    for index, (y, other) in enumerate(work[1:], 2):
        later = {c for _, t in work[index:] for c in t}
        x, term = _pair(e, x, term, y, other, later | set(result))
    x, term = _sum_out(e, x, term, set(result))
    return e.transpose(x, [term.index(c) for c in result])


def _determinant(call: Call) -> Tensor:
    """Expansion along the first row for the small matrices of geometry, elimination for others."""
    e, x = call.maker, call.tensor(0)
    if x.rank < 2 or not e.may_be(x.shape[-1], x.shape[-2]):
        raise ModelError(f"the determinant of {x.type}")
    size = x.shape[-1]
    if not isinstance(size, int) or not 1 <= size <= MAX_DETERMINANT:
        return _product_of_pivots(e, x)
    rows = [e.squeeze(e.slice(x, x.rank - 2, i, 1), (-2,)) for i in range(size)]
    columns = [
        [e.squeeze(e.slice(r, r.rank - 1, j, 1), (-1,)) for j in range(size)] for r in rows
    ]
    return _minor(e, columns, tuple(range(size)))


def _product_of_pivots(e: NodeMaker, x: Tensor) -> Tensor:
    """The determinant by elimination: each exchange of rows changes its sign."""
    wide = x if x.dtype == dtypes.f64 else e.cast(x, dtypes.f32)
    factors, pivots, _ = e.ops("lu", wide)
    last = factors.rank - 1
    found = diagonal(e, factors, factors.shape[last])
    # Rows are counted from 1.
    own = e.op("add", e.iota(pivots.shape, last - 1), e.scalar(1, dtypes.i64))
    stays = e.op("equal", e.cast(pivots, dtypes.i64), own)
    signed = e.op("where", stays, found, e.op("neg", found))
    product = e.op("reduce_prod", signed, axes=(last - 1,), keepdims=False)
    return product if x.dtype == wide.dtype else e.cast(product, x.dtype)


def _minor(
    e: NodeMaker, rows: Sequence[Sequence[Tensor]], columns: tuple[int, ...]
) -> Tensor:
    """The determinant of the last `len(columns)` rows in these columns."""
    row_ = rows[len(rows) - len(columns)]
    if len(columns) == 1:
        return row_[columns[0]]
    total: Tensor | None = None
    for index, column in enumerate(columns):
        rest = columns[:index] + columns[index + 1 :]
        term = e.op("mul", row_[column], _minor(e, rows, rest))
        sign = "sub" if index % 2 else "add"
        total = term if total is None else e.op(sign, total, term)
    assert total is not None
    return total


def _inverse(call: Call) -> Tensor:
    """Of square matrices, by elimination; one that has none gives infinities or NaN."""
    e, x = call.maker, call.tensor(0)
    if x.rank < 2 or not e.may_be(x.shape[-1], x.shape[-2]):
        raise ModelError(f"operand 1 has type {x.type}, expected square matrices")
    wide = x if x.dtype == dtypes.f64 else e.cast(x, dtypes.f32)
    factors, pivots, _ = e.ops("lu", wide)
    *batch, size, _ = x.shape
    order = e.op("exchanged_rows", pivots, rows=(size,))
    places = e.iota((*batch, size, size), len(batch) + 1)
    moved = e.op("equal", e.unsqueeze(order, (order.rank,)), places)
    part = e.op(
        "triangular_solve", factors, e.cast(moved, wide.dtype), lower=True, unit=True
    )
    return e.cast(e.op("triangular_solve", factors, part, lower=False), x.dtype)


ROWS: Final[tuple[Row, ...]] = (
    row("Det", _determinant),
    row("Inverse", _inverse, domain=MICROSOFT),
    row("Einsum", _einsum),
    row("Gemm", _gemm),
    row("MatMul", _matmul),
    row("CDist", _distances, domain=MICROSOFT),
    row("FusedGemm", _with_activation(as_of(13, _gemm)), domain=MICROSOFT),
    row("FusedMatMul", _fused_matmul, domain=MICROSOFT),
    row("FusedMatMulActivation", _with_activation(_fused_matmul), domain=MICROSOFT),
    row("GemmFastGelu", _gemm_fast_gelu, domain=MICROSOFT),
    row("TransposeMatMul", _fused_matmul, domain=MICROSOFT),
)
