"""What operators of classical machine learning make of scores: transforms, labels, a second class.

Called by rows for trees, linear models and support vectors.

Source: ONNX ai.onnx.ml operator reference (`post_transform`); onnxruntime's `ml_common.h` for the second
class of a model that scores one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.values import Held

Labels = Sequence[str] | Sequence[int]


def transformed(call: Call, scores: Tensor, transform: str) -> Tensor:
    """`[rows, targets]` scores after their `post_transform`."""
    e = call.maker
    match transform:
        case "NONE":
            return scores
        case "SOFTMAX":
            return e.op("softmax", scores, axis=-1)
        case "LOGISTIC":
            return e.op("sigmoid", scores)
        case "SOFTMAX_ZERO":
            zero = e.scalar(0, scores.dtype)
            is_zero = e.op("equal", scores, zero)
            least = e.scalar(-np.inf, scores.dtype)
            kept = e.op("softmax", e.op("where", is_zero, least, scores), axis=-1)
            return e.op("where", is_zero, zero, kept)
        case _:
            raise UnsupportedError(f"post_transform '{transform}' is not supported")


def labels_at(call: Call, places: Tensor, labels: Labels) -> Held:
    """The label at each place: a tensor of integers, or strings that the host looks up."""
    if all(isinstance(label, int) for label in labels):
        table = call.maker.constant(np.array(labels, np.int64))
        return call.maker.op("gather", table, places, axis=0)
    names = np.array(labels, object)

    def pick(x: np.ndarray[Any, Any]) -> Sequence[object]:
        return (names[x],)

    return call.host.apply(call.maker, pick, [places], [places.shape])[0]


def labelled(call: Call, scores: Tensor, labels: Labels, transform: str) -> list[Held]:
    """The label of the largest score of a row, the first of equals, and the transformed scores."""
    e = call.maker
    if scores.shape[-1] != len(labels):
        raise ModelError(f"there are {len(labels)} labels for {scores.type} scores")
    best = e.op("arg_max", scores, axis=1, keepdims=False, select_last=False)
    result = transformed(call, scores, transform)
    return [labels_at(call, best, labels), e.cast(result, dtypes.f32)]


def binary_scores(
    call: Call, score: Tensor, labels: Labels, transform: str, *, probability: bool
) -> list[Held]:
    """Labels and two scores of a model that scores the second of two classes.

    A probability p is decided at one half and becomes [1 - p, p]; another score at 0, and becomes
    [-s, s], or by `LOGISTIC` two probabilities.
    """
    e = call.maker
    limit = e.scalar(0.5 if probability else 0.0, score.dtype)
    chosen = e.cast(e.op("greater", score, limit), dtypes.i64)
    places = e.reshape(chosen, (score.shape[0],))
    if probability:
        first = e.op("sub", e.scalar(1, score.dtype), score)
    else:
        first = e.op("neg", score)
    both = e.concat([first, score], 1)
    if transform == "LOGISTIC" and not probability:
        both = e.op("sigmoid", both)
    elif transform not in ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"):
        raise UnsupportedError(f"post_transform '{transform}' is not supported")
    return [labels_at(call, places, labels), e.cast(both, dtypes.f32)]
