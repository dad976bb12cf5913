"""Sums of products: matrix multiplication and its packed form.

A contraction is three things in a row: an accumulator nest `T = 0; T += a * b` in the compute
type, and a copy nest `result = cast(T)`, so that epilogues are moved into the store in one way
for all of them.  Convolutions are in `convolution.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import NUMERIC
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType, Trait
from tilewright.compiler.kernel import numerics
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.kernel.ir import Buffer
from tilewright.compiler.ops.bodies import Operands, Results, given
from tilewright.compiler.ops.declaration import Types, attr, declare, operand
from tilewright.compiler.ops.shapes import (
    broadcast_indices,
    broadcast_shapes,
    check_same,
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


def panel_count(columns: Dim, panel: int) -> Dim:
    """How many panels of `panel` columns hold `columns`."""
    return symbolic.ceildiv(columns, panel)


# --- matmul ----------------------------------------------------------------------------------


def _matmul_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    a, b = need(types, 0), need(types, 1)
    if a.rank < 2 or b.rank < 2:
        raise ModelError(f"matmul needs matrices, got {a} and {b}")
    check_same(f"inner dimensions of {a} and {b}", a.shape[-1], b.shape[-2])
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return (a.with_shape((*batch, a.shape[-2], b.shape[-1])),)


def _matmul_oracle(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return narrow(np.matmul(widen(a), widen(b)), a)


def _matmul_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    del attributes
    left, right, (result,) = given(operands, 0), given(operands, 1), results
    total = b.temporary(compute_dtype(left.dtype), result.shape, "acc")
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
            b.accumulate("add", total, indices, b.mul(x, y))
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
    summary="Matrix product of the last two axes, the others broadcast",
    operands=(operand("a", NUMERIC), operand("b", NUMERIC, like="a")),
    infer=_matmul_infer,
    evaluate=_matmul_oracle,
    body=_matmul_body,
    traits=CONTRACTION,
    cases=(
        "[3,5] [5,7]",
        "[1,5] [5,1]",
        "[2,3,5] [5,4]",
        "[2,1,3,4] [3,4,5]",
        "[3,0] [0,2]",
        "[0,3] [3,2]",
        "[4,1] [1,3]",
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
    return (x.with_shape((*batch, panel_count(columns, panel), rows, panel)),)


def _pack_oracle(x: np.ndarray, *, panel: int) -> np.ndarray:
    *batch, rows, columns = x.shape
    panels = -(-columns // panel)
    wide = np.zeros((*batch, rows, panels * panel), x.dtype)
    wide[..., :columns] = x
    split = wide.reshape(*batch, rows, panels, panel)
    return np.ascontiguousarray(np.swapaxes(split, -3, -2))


def _pack_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    panel = cast("int", attributes["panel"])
    with b.nest(result.shape) as indices:
        *batch, p, k, lane = indices
        column = p * panel + lane
        inside = b.lt(b.index(column), b.index(x.shape[-1]))
        b.store(result, indices, b.load(x, (*batch, k, column), inside))


pack_panels: Final = declare(
    name="pack_panels",
    summary="Columns grouped in panels, zero padded: [..., K, N] to [..., ceil(N/panel), K, panel]",
    operands=(operand("x", NUMERIC),),
    attributes=(attr("panel", "int"),),
    infer=_pack_infer,
    evaluate=_pack_oracle,
    body=_pack_body,
    traits=Trait.PURE | Trait.MOVEMENT,
    cases=("[5,7]; panel=4", "[2,3,8]; panel=4", "[5,3]; panel=16", "[4,5]; panel=1"),
)


def _packed_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    a, w = need(types, 0), need(types, 1)
    (columns,) = cast("tuple[Dim, ...]", attributes["columns"])
    if a.rank < 2 or w.rank < 3:
        raise ModelError(
            f"matmul_packed needs [.., M, K] and [.., P, K, panel], got {a} and {w}"
        )
    check_same(f"inner dimensions of {a} and {w}", a.shape[-1], w.shape[-2])
    panel = w.shape[-1]
    if not isinstance(panel, int):
        raise ModelError(f"the panel of {w} is not a number")
    check_same("panels of the packed operand", w.shape[-3], panel_count(columns, panel))
    batch = broadcast_shapes(a.shape[:-2], w.shape[:-3])
    return (a.with_shape((*batch, a.shape[-2], columns)),)


def unpack_panels(w: np.ndarray, columns: int) -> np.ndarray:
    """[..., P, K, panel] back to [..., K, columns]."""
    *batch, panels, rows, panel = w.shape
    return np.swapaxes(w, -3, -2).reshape(*batch, rows, panels * panel)[..., :columns]


def _packed_oracle(a: np.ndarray, w: np.ndarray, *, columns: tuple[int]) -> np.ndarray:
    return narrow(np.matmul(widen(a), widen(unpack_panels(w, columns[0]))), a)


def _packed_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    left, right, (result,) = given(operands, 0), given(operands, 1), results
    (columns,) = cast("tuple[Dim, ...]", attributes["columns"])
    panels, depth, panel = right.shape[-3:]
    *batch_shape, rows, _ = result.shape
    names = (*(f"b{i}" for i in range(len(batch_shape))), "m", "p", "l")
    shape = (*batch_shape, rows, panels, panel)
    total = b.temporary(compute_dtype(left.dtype), shape, "acc")
    with b.nest(shape, names) as indices:
        *batch, m, p, lane = indices
        b.store(total, indices, 0)
        with b.reduce((depth,), ("k",)) as (k,):
            x = b.read(left, (*broadcast_indices(left.shape[:-2], batch), m, k))
            y = b.read(right, (*broadcast_indices(right.shape[:-3], batch), p, k, lane))
            b.accumulate("add", total, indices, b.mul(x, y))
    with b.nest(shape, names) as indices:
        *outer, p, lane = indices
        column = p * cast("int", panel) + lane
        with b.when(b.lt(b.index(column), b.index(columns))):
            b.write(result, (*outer, column), b.load(total, indices))


matmul_packed: Final = declare(
    name="matmul_packed",
    summary="Matrix product with a right operand in panels (`pack_panels`); `columns` = N",
    operands=(operand("a", NUMERIC), operand("w", NUMERIC)),
    attributes=(attr("columns", "dims"),),
    infer=_packed_infer,
    evaluate=_packed_oracle,
    body=_packed_body,
    traits=CONTRACTION,
    cases=(
        "[3,5] [2,5,4]; columns=(7,)",
        "[3,5] [2,5,4]; columns=(8,)",
        "[2,3,5] [1,5,16]; columns=(9,)",
        "[1,5] [3,5,1]; columns=(3,)",
        "[2,3,4] [2,2,4,4]; columns=(6,)",
        "[0,5] [2,5,4]; columns=(7,)",
        "f32[3,5] f16[2,5,4]; columns=(7,)",
    ),
)

OPS: Final = (matmul, pack_panels, matmul_packed)
