"""Padding: constant, edge, reflect, wrap; negative amounts crop.

A constant border is a copy of the interior and one fill nest per side, so that a schedule can
let the producer write the interior in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import ALL, bool_
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, Layout, Role, TensorType, Trait
from tilewright.compiler.kernel.builder import KernelBuilder, Source
from tilewright.compiler.kernel.ir import Buffer, Expression
from tilewright.compiler.ops import layouts, ranges
from tilewright.compiler.ops.bodies import Operands, Results, given, maybe
from tilewright.compiler.ops.declaration import Types, attr, declare, operand, optional
from tilewright.compiler.ops.shapes import first

M: Final = Trait.PURE | Trait.MOVEMENT
_SHORT_ROW: Final = 8


def _dims(attributes: Attributes, name: str) -> tuple[Dim, ...]:
    return cast("tuple[Dim, ...]", attributes[name])


def _pad_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, pads = first(types), _dims(attributes, "pads")
    if len(pads) != 2 * x.rank:
        raise ModelError(f"{len(pads)} pads for {x}, expected {2 * x.rank}")
    if attributes["mode"] not in ("constant", "edge", "reflect", "wrap"):
        raise ModelError(f"pad mode '{attributes['mode']}' is unknown")
    return (x.with_shape([d + pads[i] + pads[x.rank + i] for i, d in enumerate(x.shape)]),)


def _pad_oracle(
    x: np.ndarray, value: np.ndarray | None, *, pads: tuple[int, ...], mode: str
) -> np.ndarray:
    rank = x.ndim
    cut = tuple(
        slice(max(-pads[i], 0), x.shape[i] - max(-pads[rank + i], 0)) for i in range(rank)
    )
    borders = [(max(pads[i], 0), max(pads[rank + i], 0)) for i in range(rank)]
    if mode == "constant":
        fill = np.zeros((), x.dtype) if value is None else np.reshape(value, ())
        result = np.full([d + lo + hi for d, (lo, hi) in zip(x[cut].shape, borders, strict=True)],
                         fill, x.dtype)  # fmt: skip
        inner = tuple(
            slice(lo, lo + d) for d, (lo, _) in zip(x[cut].shape, borders, strict=True)
        )
        result[inner] = x[cut]
        return result
    for axis in range(rank):
        places = np.arange(
            -borders[axis][0] + cut[axis].start, cut[axis].stop + borders[axis][1]
        )
        x = np.take(x, _folded(places, x.shape[axis], mode), axis)
    return x


def _folded(places: np.ndarray, size: int, mode: str) -> np.ndarray:
    """Positions outside `0 .. size` brought back inside."""
    if mode == "edge" or size == 1:
        return np.clip(places, 0, size - 1)
    if mode == "wrap":
        return places % size
    turned = places % (2 * (size - 1))
    return np.minimum(turned, 2 * (size - 1) - turned)


def _folded_index(place: Dim, size: Dim, mode: str) -> Dim:
    if size == 1:
        return 0
    if mode == "edge":
        return symbolic.minimum(symbolic.maximum(place, 0), size - 1)
    if mode == "wrap":
        return symbolic.mod(place, size)
    period = symbolic.maximum((size - 1) * 2, 1)
    turned = symbolic.mod(place, period)
    return symbolic.minimum(turned, period - turned)


def _pad_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, (result,) = given(operands, 0), results
    pads, mode = _dims(attributes, "pads"), cast("str", attributes["mode"])
    rank = len(x.shape)
    low, high = pads[:rank], pads[rank:]
    if mode != "constant":
        _copy_folded(b, x, result, low, high, mode)
        return
    value = maybe(operands, 1)
    fill = b.const(0, x.dtype) if value is None else b.load(value, (0,) * len(value.shape))
    if not _is_interleaved(x.shape, low, high) and all(map(_nonnegative, pads)):
        _fill_borders(b, result, x.shape, low, high, fill)
        with b.nest(x.shape) as indices:
            target = tuple(indices[i] + low[i] for i in range(rank))
            b.store(result, target, b.load(x, indices))
        return
    _pad_by_selection(b, x, result, low, fill)


def _copy_folded(
    b: KernelBuilder,
    x: Source,
    result: Buffer,
    low: Sequence[Dim],
    high: Sequence[Dim],
    mode: str,
) -> None:
    """Copy with folded indices: both borders of the last axis, and its inside as it lies."""
    last = len(x.shape) - 1
    begin, end, size = low[last], high[last], x.shape[last]
    parts: list[tuple[Dim, Dim, bool]] = [(0, result.shape[last], begin != 0 or end != 0)]
    if _nonnegative(begin) and _nonnegative(end):
        parts = [(0, begin, True), (begin, size, False), (begin + size, end, True)]
    for start, extent, folds in parts:
        if extent == 0:
            continue
        with b.nest((*result.shape[:last], extent)) as indices:
            target = (*indices[:last], indices[last] + start)
            places = [at - before for at, before in zip(target, low, strict=True)]
            source = [
                _folded_index(place, d, mode) if before != 0 or after != 0 else place
                for place, d, before, after in zip(places, x.shape, low, high, strict=True)
            ]
            if not folds:
                source[last] = places[last]
            b.store(result, target, b.load(x, source))


def _is_interleaved(size: Sequence[Dim], low: Sequence[Dim], high: Sequence[Dim]) -> bool:
    """Whether all that is filled are a few elements behind every short row, such as a fourth colour.

    A nest of its own would write them one by one; chosen with their row they are part of its lanes.
    """
    if not size or any(d != 0 for d in (*low, *high[:-1])):
        return False
    return all(isinstance(d, int) and 0 < d < _SHORT_ROW for d in (size[-1], high[-1]))


def _nonnegative(pad: Dim) -> bool:
    lower = symbolic.bounds(pad)[0]
    return lower is not None and lower >= 0


def _fill_borders(
    b: KernelBuilder,
    result: Buffer,
    inner: Sequence[Dim],
    low: Sequence[Dim],
    high: Sequence[Dim],
    fill: Expression,
) -> None:
    """Fill nests for both sides of every axis; axes before it are restricted to the inside."""
    for axis in range(len(inner)):
        shape = [*inner[:axis], 0, *result.shape[axis + 1 :]]
        base = [*low[:axis], 0, *([0] * (len(inner) - axis - 1))]
        for extent, start in ((low[axis], 0), (high[axis], low[axis] + inner[axis])):
            if extent == 0:
                continue
            shape[axis], base[axis] = extent, start
            with b.nest(shape) as indices:
                target = tuple(i + s for i, s in zip(indices, base, strict=True))
                b.store(result, target, fill)


def _pad_by_selection(
    b: KernelBuilder, x: Source, result: Buffer, low: Sequence[Dim], fill: Expression
) -> None:
    """One nest with a masked load: pads that may be negative crop."""
    with b.nest(result.shape) as indices:
        source = [i - p for i, p in zip(indices, low, strict=True)]
        inside: Expression = b.const(True, bool_)
        for place, extent in zip(source, x.shape, strict=True):
            inside = b.and_(inside, b.within(place, 0, extent))
        b.store(result, indices, b.select(inside, b.load(x, source, inside), fill))


def _adds_border(attributes: Attributes, size: tuple[Dim, ...]) -> bool:
    """Whether what is filled has nests of its own, so that who makes the inside can write it in place."""
    pads = _dims(attributes, "pads")
    known = all(isinstance(p, int) and p >= 0 for p in pads)
    if attributes["mode"] != "constant" or not known:
        return False
    return not _is_interleaved(size, pads[: len(size)], pads[len(size) :])


pad: Final = declare(
    name="pad",
    summary="Borders of `pads` (begin…, end…; negative crops): constant, edge, reflect or wrap",
    operands=(operand("x", ALL), optional("value", ALL, like="x")),
    attributes=(attr("pads", "dims"), attr("mode", "string", "constant")),
    infer=_pad_infer,
    evaluate=_pad_oracle,
    body=_pad_body,
    traits=M,
    role=Role.PLACE,
    adds_border=_adds_border,
    ranges=ranges.padded,
    layout=Layout(layouts.per_axis("pads", 2)),
    cases=(
        "[3,4] []; pads=(1,2,0,3)",
        "[2,3,4]; pads=(0,1,1,0,1,2)",
        "[3,4] []; pads=(-1,2,1,-2)",
        "[5]; pads=(2,3) mode=edge",
        "[2,5]; pads=(1,3,0,4) mode=reflect",
        "[2,4]; pads=(1,3,2,4) mode=wrap",
        "[5,40]; pads=(1,3,2,17) mode=reflect",
        "[3,20]; pads=(0,-3,1,5) mode=edge",
        "[2,33,17]; pads=(0,2,0,1,0,0) mode=edge",
        "[2,17,3]; pads=(0,2,0,0,1,4) mode=reflect",
        "[1]; pads=(2,1) mode=edge",
        "[3] []; pads=(0,0)",
        "[2,33,3] []; pads=(0,0,0,0,0,1)",
        "[1]; pads=(0,2)",
    ),
    source="ONNX Pad, opset 25",
)

OPS: Final = (pad,)
