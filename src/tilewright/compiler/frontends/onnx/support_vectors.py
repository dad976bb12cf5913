"""Rows for support vector machines: sums of kernels of a row and the vectors of the model.

Every pair of classes has a score; which coefficients belong to it is known while importing, so all pairs are
one product of the kernels with a matrix.

Source: ONNX ai.onnx.ml operator reference (SVMClassifier, SVMRegressor); LIBSVM, `svm_predict_values` and
`svm_predict_probability`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import matmul
from tilewright.compiler.frontends.onnx.row import CLASSICAL, Row, row
from tilewright.compiler.frontends.onnx.scores import labels_at, transformed
from tilewright.compiler.frontends.onnx.values import Held

_KERNELS: Final = ("LINEAR", "POLY", "RBF", "SIGMOID")
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
Values = np.ndarray[Any, np.dtype[Any]]


def _floats(call: Call, name: str) -> Values:
    return np.array(call.attributes.floats(name) or (), np.float32)


def _rows(call: Call) -> Tensor:
    e, x = call.maker, call.maker.cast(call.tensor(0), dtypes.f32)
    x = e.unsqueeze(x, (0,)) if x.rank == 1 else x
    if x.rank != 2 or not isinstance(x.shape[1], int) or not x.shape[1]:
        raise ModelError(f"operand 1 has type {x.type}, expected rows of features")
    return x


def _kernels(call: Call, x: Tensor, vectors: Values) -> Tensor:
    """`[rows, vectors]`: the kernel of every row and every vector."""
    e = call.maker
    form = call.choice("kernel_type", "LINEAR", _KERNELS)
    given = _floats(call, "kernel_params").tolist()
    gamma, shift, degree = given if len(given) == 3 else (0.0, 0.0, 0.0)
    if form == "RBF":
        # Of differences: squares that are subtracted from each other would lose what is small.
        apart = e.op("sub", e.unsqueeze(x, (1,)), e.constant(vectors[None]))
        square = e.op("reduce_sum", e.op("mul", apart, apart), axes=(2,), keepdims=False)
        return e.op("exp", e.op("mul", square, e.scalar(-gamma, dtypes.f32)))
    product = matmul(e, x, e.constant(np.ascontiguousarray(vectors.T)))
    if form == "LINEAR":
        return product
    moved = e.op(
        "add",
        e.op("mul", product, e.scalar(gamma, dtypes.f32)),
        e.scalar(shift, dtypes.f32),
    )
    if form == "SIGMOID":
        return e.op("tanh", moved)
    return e.op("pow", moved, e.scalar(degree, dtypes.f32))


def _vectors(flat: Values, width: int) -> Values:
    if flat.size % width:
        raise ModelError(f"there are {flat.size} numbers of vectors of {width} features")
    return flat.reshape(-1, width)


def _regress(call: Call) -> Tensor:
    e, x = call.maker, _rows(call)
    width = x.shape[1]
    assert isinstance(width, int)
    vectors = _vectors(_floats(call, "support_vectors"), width)
    factors, shift = _floats(call, "coefficients"), _floats(call, "rho")
    count = call.integer("n_supports", 0)
    one_class = call.flag("one_class")
    if count:
        values = _kernels(call, x, vectors)
    else:
        values = x
        call.attributes.has("kernel_type")
        call.attributes.has("kernel_params")
    if factors.size != values.shape[1] or shift.size != 1:
        raise ModelError(f"there are {factors.size} coefficients for {values.type}")
    total = e.op("add", matmul(e, values, e.constant(factors[:, None])), e.constant(shift))
    if one_class:
        inside = e.op("greater", total, e.scalar(0, dtypes.f32))
        one = e.scalar(1, dtypes.f32)
        return e.op("where", inside, one, e.scalar(-1, dtypes.f32))
    return transformed(call, total, call.choice("post_transform", "NONE", _TRANSFORMS))


def _pair_factors(factors: Values, sizes: Sequence[int]) -> Values:
    """`[vectors, pairs]`: for the pair i, j what the vectors of i and of j count."""
    classes, count = len(sizes), sum(sizes)
    if factors.size != (classes - 1) * count:
        raise ModelError(f"there are {factors.size} coefficients for {count} vectors")
    table, starts = factors.reshape(classes - 1, count), np.cumsum([0, *sizes])
    columns: list[Values] = []
    for i in range(classes):
        for j in range(i + 1, classes):
            column = np.zeros(count, np.float32)
            first, second = (slice(starts[k], starts[k + 1]) for k in (i, j))
            column[first], column[second] = table[j - 1, first], table[i, second]
            columns.append(column)
    return np.stack(columns, 1)


def _probabilities(call: Call, scores: Tensor, classes: int) -> Tensor:
    """Of the classes, from scores of pairs."""
    e = call.maker
    slope, offset = _floats(call, "prob_a"), _floats(call, "prob_b")
    if slope.size != offset.size or slope.size != scores.shape[1]:
        raise ModelError(f"there are {slope.size} slopes for {scores.type} scores")
    moved = e.op("add", e.op("mul", scores, e.constant(slope)), e.constant(offset))
    chance = e.op("sigmoid", e.op("neg", moved))
    least = e.scalar(1e-7, dtypes.f32)
    chance = e.op("clip", chance, least, e.scalar(1 - 1e-7, dtypes.f32))
    return e.op("couple_probabilities", chance, classes=classes)


def _votes(call: Call, scores: Tensor, classes: int) -> Tensor:
    """How many pairs each class wins."""
    e = call.maker
    pairs = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    wins = np.zeros((len(pairs), classes), np.float32)
    losses = np.zeros_like(wins)
    for place, (i, j) in enumerate(pairs):
        wins[place, i], losses[place, j] = 1, 1
    first = e.cast(e.op("greater", scores, e.scalar(0, dtypes.f32)), dtypes.f32)
    second = e.op("sub", e.scalar(1, dtypes.f32), first)
    return e.op(
        "add", matmul(e, first, e.constant(wins)), matmul(e, second, e.constant(losses))
    )


def _classify(call: Call) -> list[Held]:
    e, x = call.maker, _rows(call)
    width = x.shape[1]
    assert isinstance(width, int)
    labels = call.attributes.strings("classlabels_strings") or call.integers(
        "classlabels_ints"
    )
    transform = call.choice("post_transform", "NONE", _TRANSFORMS)
    vectors = _vectors(_floats(call, "support_vectors"), width)
    sizes = call.attributes.integers("vectors_per_class") or ()
    factors, shift = _floats(call, "coefficients"), _floats(call, "rho")
    classes = len(labels)
    if not vectors.size:
        return _classify_plainly(call, x, factors, labels, transform)
    if sum(sizes) != len(vectors) or len(sizes) != classes or min(sizes, default=-1) < 0:
        raise ModelError(f"there are {len(vectors)} vectors for {classes} classes")
    if classes < 2 or shift.size != classes * (classes - 1) // 2:
        raise ModelError(
            f"there are {shift.size} offsets for the pairs of {classes} classes"
        )
    kernels = _kernels(call, x, vectors)
    product = matmul(e, kernels, e.constant(_pair_factors(factors, sizes)))
    scores = e.op("add", product, e.constant(shift))
    # The pairs decide, also where there are probabilities, which may say otherwise near one half.
    votes = _votes(call, scores, classes)
    best = e.op("arg_max", votes, axis=1, keepdims=False, select_last=False)
    result = scores
    if _floats(call, "prob_a").size:
        result = _probabilities(call, scores, classes)
    elif classes == 2:
        result = e.concat([e.op("neg", scores), scores], 1)
    call.attributes.has("prob_b")
    return [labels_at(call, best, labels), transformed(call, result, transform)]


def _classify_plainly(
    call: Call,
    x: Tensor,
    factors: Values,
    labels: Sequence[str] | Sequence[int],
    transform: str,
) -> list[Held]:
    """Without vectors: one row of coefficients per class."""
    e = call.maker
    for name in ("kernel_type", "kernel_params", "prob_a", "prob_b"):
        call.attributes.has(name)
    table = _vectors(factors, int(str(x.shape[1])))
    shift = _floats(call, "rho")
    scores = matmul(e, x, e.constant(np.ascontiguousarray(table.T)))
    scores = e.op("add", scores, e.constant(shift[:1]))
    if scores.shape[1] != len(labels):
        raise ModelError(f"there are {len(labels)} labels for {scores.type} scores")
    best = e.op("arg_max", scores, axis=1, keepdims=False, select_last=False)
    return [labels_at(call, best, labels), transformed(call, scores, transform)]


ROWS: Final[tuple[Row, ...]] = (
    row("SVMClassifier", _classify, domain=CLASSICAL),
    row("SVMRegressor", _regress, domain=CLASSICAL),
)
