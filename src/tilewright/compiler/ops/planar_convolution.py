"""Convolutions along one axis of places that whole images are laid out on.

Lanes run along the places: for convolutions whose filters would leave lanes empty.  Made by the pass of
the same name; those along channels are in `convolution.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, Final, cast

import numpy as np

from tilewright.base import symbolic
from tilewright.base.dtypes import NUMERIC
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel.builder import KernelBuilder, compute_dtype
from tilewright.compiler.ops.bodies import Operands, Results, given
from tilewright.compiler.ops.contraction import (
    CONTRACTION,
    copy_out,
    narrow,
    sum_of_products,
    widen,
)
from tilewright.compiler.ops.convolution import spatial_names
from tilewright.compiler.ops.declaration import Types, attr, declare, operand
from tilewright.compiler.ops.shapes import check_same, need

Ints = tuple[int, ...]


def _planar_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    w, x = need(types, 0), need(types, 1)
    steps = cast("Ints", attributes["steps"])
    (places,) = cast("tuple[Dim, ...]", attributes["places"])
    if x.rank != 3 or w.rank != len(steps) + 2 or any(step < 0 for step in steps):
        raise ModelError(
            f"conv_planar of {x} with weights {w} and steps {steps}: do not fit"
        )
    check_same(f"channels of {x} and {w}", x.shape[1], w.shape[0])
    first = cast("int", attributes["first"])
    end = places + first + _reach(w.shape[1:-1], steps)
    unread = symbolic.bounds(x.shape[2] - end)[1]
    if first < 0 or (unread is not None and unread < 0):
        raise ModelError(
            f"conv_planar of {x} with {w}: {places} places read beyond its end"
        )
    return (x.with_shape((x.shape[0], w.shape[-1], places)),)


def _reach(kernel: Sequence[Dim], steps: Ints) -> Dim:
    """How far behind a place its last tap reads."""
    total: Dim = 0
    for taps, step in zip(kernel, steps, strict=True):
        total = total + (taps - 1) * step
    return total


def _planar_oracle(w: np.ndarray, x: np.ndarray, **attributes: Any) -> np.ndarray:
    (places,) = attributes["places"]
    data, table = widen(x), widen(w)
    total = np.zeros((x.shape[0], w.shape[-1], places), data.dtype)
    for taps in itertools.product(*(range(k) for k in w.shape[1:-1])):
        first = attributes["first"]
        first += sum(t * step for t, step in zip(taps, attributes["steps"], strict=True))
        filters = table[(slice(None), *taps)].T
        total += np.matmul(filters, data[:, :, first : first + places])
    return narrow(total, x)


def _planar_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    w, x, (result,) = given(operands, 0), given(operands, 1), results
    steps = cast("Ints", attributes["steps"])
    names = ("n", "f", "p")
    total = b.temporary(compute_dtype(x.dtype), result.shape, "acc")
    with b.nest(result.shape, names) as indices:
        n, out, place = indices
        b.store(total, indices, 0)
        with b.reduce(w.shape[:-1], ("c", *spatial_names("k", len(steps)))) as inner:
            c, *taps = inner
            place = place + cast("int", attributes["first"])
            for tap, step in zip(taps, steps, strict=True):
                place = place + tap * step
            weight = b.read(w, (c, *taps, out))
            b.accumulate("add", total, indices, b.mul(weight, b.read(x, (n, c, place))))
    copy_out(b, total, result, names)


conv_planar: Final = declare(
    name="conv_planar",
    summary="Convolution along one axis of places that images are laid out on, w [C, kernel…, F]",
    operands=(operand("w", NUMERIC), operand("x", NUMERIC, like="w")),
    attributes=(attr("steps", "ints"), attr("places", "dims"), attr("first", "int", 0)),
    infer=_planar_infer,
    evaluate=_planar_oracle,
    body=_planar_body,
    traits=CONTRACTION,
    work=sum_of_products(lambda types: types[0].shape[:-1]),
    cases=(
        "[3,3,3,2] [1,3,119]; steps=(17,1) places=(83,)",
        "[5,2,3,9] [2,5,40]; steps=(7,2) places=(29,)",
        "[4,3,1] [1,4,40]; steps=(3,) places=(31,) first=2",
        "[2,2,1,3,2] [1,2,90]; steps=(30,6,1) places=(55,)",
    ),
)

OPS: Final = (conv_planar,)
