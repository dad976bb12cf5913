"""Row for words as vectors of what their characters look like: embedded, convolved, the largest of every filter.

Source: onnxruntime ContribOperators.md (WordConvEmbedding), in the meaning of its CPU kernel: a word is as long as it
has characters above 0, wherever these stand, and at least as long as the kernel; what begins with none is 0 here (there
it is whatever stood in memory).
"""

from __future__ import annotations

import math
from typing import Final

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import FIXED_SIZE, Call
from tilewright.compiler.frontends.onnx.row import MICROSOFT, Row, row


def _word_conv_embedding(call: Call) -> Tensor:
    e = call.maker
    words, weights, bias, table = (call.tensor(i) for i in range(4))
    if weights.rank != 4 or weights.shape[1] != 1:
        raise ModelError(f"weights {weights.type}, expected [filters, 1, kernel, features]")
    filters, _, kernel, features = weights.shape
    if not (isinstance(kernel, int) and isinstance(features, int)):
        raise UnsupportedError(
            "a kernel of a dynamic size is not supported", hint=FIXED_SIZE
        )
    e.assume(table.shape[-1], features)
    if words.rank != 2:
        raise ModelError(f"words {words.type}, expected [words, characters]")
    length = words.shape[-1]
    if isinstance(length, int) and length < kernel:
        raise ModelError(
            f"words of {length} characters are shorter than the kernel {kernel}"
        )
    places = length - kernel + 1
    found = e.op("gather", table, words, axis=0)
    axis = words.rank - 1
    taps = [e.slice(found, axis, place, places) for place in range(kernel)]
    columns = e.concat(taps, axis + 1)
    matrix = e.transpose(e.reshape(weights, (filters, kernel * features)), (1, 0))
    # tanh rises: the largest of it is that of the largest sum.
    sums = e.op("add", e.op("matmul", columns, matrix), bias)
    sizes = _lengths(e, words)
    last = e.op(
        "max", e.op("sub", sizes, e.scalar(kernel, dtypes.i64)), e.scalar(0, dtypes.i64)
    )
    place = e.iota((*[1] * axis, places), axis)
    counts = e.op("less_equal", place, e.unsqueeze(last, (axis,)))
    least = e.scalar(-math.inf, sums.dtype)
    sums = e.op("where", e.unsqueeze(counts, (axis + 1,)), sums, least)
    best = e.op("tanh", e.op("reduce_max", sums, axes=(axis,), keepdims=False))
    is_word = e.op("greater", sizes, e.scalar(0, dtypes.i64))
    return e.op("where", e.unsqueeze(is_word, (axis,)), best, e.scalar(0, best.dtype))


def _lengths(e: NodeMaker, words: Tensor) -> Tensor:
    """How many characters each word has, wherever they stand; none if it does not begin with one."""
    axis, zero = words.rank - 1, e.scalar(0, words.dtype)
    is_there = e.cast(e.op("greater", words, zero), dtypes.i64)
    counts = e.op("reduce_sum", is_there, axes=(axis,), keepdims=False)
    return e.op("mul", counts, e.squeeze(e.slice(is_there, axis, 0, 1), (axis,)))


ROWS: Final[tuple[Row, ...]] = (
    row("WordConvEmbedding", _word_conv_embedding, domain=MICROSOFT),
)
