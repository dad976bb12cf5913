"""Rows for products of vectors and matrices.

Source: the operators of ATen by name.
"""

from __future__ import annotations

from typing import Final

from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.mixtures import grouped_product
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.call import Call
from tilewright.compiler.frontends.torch.reduction import wide_type
from tilewright.compiler.frontends.torch.row import Build, Row, row


def matrix_product(
    e: NodeMaker, a: Tensor, b: Tensor, dtype: DType | None = None
) -> Tensor:
    """The product of two matrices or two stacks of them, of `dtype`; that over nothing is zero."""
    dtype = a.dtype if dtype is None else dtype
    if a.dtype.is_bool:
        raise UnsupportedError("products of truth values are not supported")
    if a.shape[-1] == 0 or any(size == 0 for size in (*a.shape, *b.shape)):
        outer = a.shape[:-2] if a.rank >= b.rank else b.shape[:-2]
        return e.full(0, dtype, (*outer, a.shape[-2], b.shape[-1]))
    return e.op("matmul", a, b, **({} if dtype == a.dtype else {"dtype": dtype}))


def _linear(call: Call) -> Tensor:
    e, x, weight = call.maker, call.tensor("input"), call.tensor("weight")
    bias = call.optional("bias")
    wide = x.dtype if bias is None else wide_type(x.dtype)
    if weight.rank == 1:
        weight = e.reshape(weight, (1, weight.shape[0]))
        turned = e.transpose(weight, (1, 0))
        found = e.squeeze(_product(e, x, turned, wide), (-1,))
    else:
        found = _product(e, x, e.transpose(weight, (1, 0)), wide)
    if bias is None:
        return found
    return call.finish(e.op("add", found, e.cast(bias, wide)))


def _product(e: NodeMaker, x: Tensor, turned: Tensor, dtype: DType) -> Tensor:
    if x.rank == 1:
        return e.squeeze(matrix_product(e, e.unsqueeze(x, (0,)), turned, dtype), (0,))
    if any(size == 0 for size in (*x.shape, *turned.shape)):
        return e.full(0, dtype, (*x.shape[:-1], turned.shape[-1]))
    return matrix_product(e, x, turned, dtype)


def _mm(name: str) -> Build:
    def build(call: Call) -> Tensor:
        return matrix_product(call.maker, call.tensor(), call.tensor(name))

    return build


def _whole_product(call: Call) -> Tensor:
    """Of bytes, with sums of 32 bits."""
    return matrix_product(call.maker, call.tensor(), call.tensor("mat2"), call.dtype())


def _matmul(call: Call) -> Tensor:
    e, a, b = call.maker, call.tensor(), call.tensor("other")
    left, right = a.rank == 1, b.rank == 1
    if any(size == 0 for size in (*a.shape, *b.shape)):
        return e.full(0, call.dtype(), call.shape())
    a = e.unsqueeze(a, (0,)) if left else a
    b = e.unsqueeze(b, (1,)) if right else b
    found = matrix_product(e, a, b)
    axes = [*([found.rank - 2] if left else []), *([found.rank - 1] if right else [])]
    return e.squeeze(found, axes) if axes else found


def _grouped(x: str, weight: str) -> Build:
    """Rows group by group, as mixtures of experts have them (transformers: `integrations/moe.py`)."""

    def build(call: Call) -> Tensor:
        a, b, offsets = call.tensor(x), call.tensor(weight), call.optional("offs")
        if offsets is None or (a.rank, b.rank) != (2, 3):
            raise UnsupportedError("only groups of rows are supported")
        return call.finish(grouped_product(call.maker, a, b, offsets))

    return build


def _dot(other: str) -> Build:
    def build(call: Call) -> Tensor:
        e, a, b = call.maker, call.tensor(), call.tensor(other)
        size: Dim = a.shape[0]
        row_, column = e.reshape(a, (1, size)), e.reshape(b, (size, 1))
        return e.reshape(matrix_product(e, row_, column), ())

    return build


def _mv(call: Call) -> Tensor:
    e, a, x = call.maker, call.tensor(), call.tensor("vec")
    return e.squeeze(matrix_product(e, a, e.unsqueeze(x, (1,))), (1,))


def _outer(call: Call) -> Tensor:
    e, dtype = call.maker, call.dtype()
    x, y = call.operand("self", dtype), call.operand("vec2", dtype)
    op = "logical_and" if dtype.is_bool else "mul"
    return e.op(op, e.unsqueeze(x, (1,)), e.unsqueeze(y, (0,)))


def _added(first: str, second: str, *, summed: bool = False, vector: bool = False) -> Build:
    """`beta * self + alpha * (first @ second)`."""

    def build(call: Call) -> Tensor:
        e, dtype = call.maker, call.dtype()
        if dtype.is_bool:
            raise UnsupportedError("products of truth values are not supported")
        wide = wide_type(dtype)
        beta, alpha = call.number("beta", 1), call.number("alpha", 1)
        a, b = call.tensor(first), call.tensor(second)
        # Halves are rounded once, after the sum.
        found = matrix_product(e, a, e.unsqueeze(b, (1,)) if vector else b, wide)
        found = e.squeeze(found, (1,)) if vector else found
        if summed:
            found = e.op("reduce_sum", found, axes=(0,), keepdims=False)
        if alpha != 1:
            found = e.op("mul", found, e.scalar(alpha, found.dtype))
        if beta == 0:
            call.argument("self")
        else:
            old = call.operand("self", found.dtype)
            if beta != 1:
                old = e.op("mul", old, e.scalar(beta, found.dtype))
            found = e.op("add", found, old)
        return e.broadcast_to(call.finish(found), call.shape())

    return build


ROWS: Final[tuple[Row, ...]] = (
    row("linear", _linear),
    row("mm", _mm("mat2")),
    row("_int_mm", _whole_product),
    row("_grouped_mm", _grouped("self", "mat2"), ignores=("out_dtype",)),
    row("transformers::grouped_mm_fallback", _grouped("input", "weight")),
    row("bmm", _mm("mat2")),
    row("matmul", _matmul),
    row("dot", _dot("tensor")),
    row("vdot", _dot("other")),
    row("mv", _mv),
    row("outer ger", _outer),
    row("addmm", _added("mat1", "mat2")),
    row("baddbmm", _added("batch1", "batch2")),
    row("addbmm", _added("batch1", "batch2", summed=True)),
    row("addmv", _added("mat", "vec", vector=True)),
)
