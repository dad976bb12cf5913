"""Rows for strings, which the host computes: before the compiled part of a model, or after it.

`TEXT_ROWS` are taken where an operand is text (or another value of the host), whatever the operator
means for numbers.

Source: ONNX operator reference (String*, RegexFullMatch, Cast, Equal, TfIdfVectorizer).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InputError, ModelError, index_error
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.host import as_text, check_count, common_shape
from tilewright.compiler.frontends.onnx.regular_expressions import (
    regular_expression,
)
from tilewright.compiler.frontends.onnx.row import Result, Row, row
from tilewright.compiler.frontends.onnx.tensors import dtype_of
from tilewright.compiler.frontends.onnx.values import Held
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.shapes import (
    broadcast_shapes,
    element_count,
    normal_axis,
)

STRING: Final = 8  # TensorProto.STRING
Values = np.ndarray[Any, np.dtype[Any]]


def each(function: Callable[[str], Any], x: Values, dtype: Any = object) -> Values:
    """The function of every string."""
    found = np.empty(x.size, dtype)
    found[:] = [function(text) for text in x.flat]
    return found.reshape(x.shape)


def _concat_text(call: Call) -> Result:
    shape = broadcast_shapes(call.shape(0), call.shape(1))

    def concat(x: Values, y: Values) -> Sequence[object]:
        common_shape(x.shape, y.shape)
        return (np.asarray(x + y, object),)

    return call.on_host(concat, [shape])


def _equal_text(call: Call) -> Result:
    shape = broadcast_shapes(call.shape(0), call.shape(1))
    kind = TensorType(dtypes.bool_, shape)

    def equal(x: Values, y: Values) -> Sequence[object]:
        common_shape(x.shape, y.shape)
        return (np.asarray(x == y, np.bool_),)

    return call.on_host(equal, [kind])


def _full_match(call: Call) -> Result:
    compiled = regular_expression(call.string("pattern", ""))

    def match(x: Values) -> Sequence[object]:
        return (each(compiled.matches, x, np.bool_),)

    return call.on_host(match, [TensorType(dtypes.bool_, call.shape(0))])


def _split_text(call: Call) -> Result:
    delimiter = call.string("delimiter", "") or None
    limit = call.attributes.integer("maxsplit")

    def pieces(text: str) -> list[str]:
        return text.split(delimiter, -1 if limit is None else limit)

    def split(x: Values) -> Sequence[object]:
        rows = [pieces(text) for text in x.flat]
        width = max(map(len, rows), default=0)
        check_count((len(rows), width))
        found = np.full((len(rows), width), "", object)
        for place, parts in enumerate(rows):
            found[place, : len(parts)] = parts
        counts = np.array([len(parts) for parts in rows], np.int64)
        return found.reshape((*x.shape, width)), counts.reshape(x.shape)

    return call.on_host(split, [None, TensorType(dtypes.i64, call.shape(0))])


def _normalize_text(call: Call) -> Result:
    action = call.choice("case_change_action", "NONE", ("NONE", "LOWER", "UPPER"))
    exact = call.flag("is_case_sensitive")
    is_plain = call.string("locale", "en_US") in ("C", "POSIX")
    stopwords = call.attributes.strings("stopwords") or ()
    change: Callable[[str], str] = {"LOWER": str.lower, "UPPER": str.upper}.get(action, str)
    change = partial(_of_ascii, change) if is_plain else change
    dropped = set(stopwords) if exact else {w.lower() for w in stopwords}

    def normalize(x: Values) -> Sequence[object]:
        rows = x.reshape(1, -1) if x.ndim == 1 else x
        if rows.ndim != 2 or rows.shape[0] != 1:
            raise InputError(f"has shape {list(x.shape)}, expected [N] or [1, N]")
        kept = [w for w in rows[0] if (w if exact else w.lower()) not in dropped]
        found = np.empty(max(len(kept), 1), object)
        found[:] = [change(word) for word in kept] or [""]
        return (found.reshape((*x.shape[:-1], found.size)),)

    return call.on_host(normalize, [_words(call, dropped)])


def _of_ascii(change: Callable[[str], str], text: str) -> str:
    """Another case for letters of ASCII alone, as locales without a language have it."""
    return "".join(change(letter) if letter.isascii() else letter for letter in text)


def _words(call: Call, dropped: Collection[str]) -> tuple[Dim, ...]:
    """The shape of words of which some are dropped; where all are, one is left that is empty."""
    shape = call.shape(0)
    is_kept = not dropped and shape[-1] != 0
    last = shape[-1] if is_kept else control.fresh_symbol(call.maker, "words", 1)
    return (*shape[:-1], last)


def _number(text: str, dtype: DType) -> object:
    try:
        number = float(text) if dtype.is_float else int(text)
    except ValueError as error:
        raise InputError(f"'{text[:40]}' is not a number") from error
    return number


def _cast_text(call: Call) -> Result:
    """Strings as numbers."""
    call.flag("saturate", default=True)
    call.attributes.string("round_mode")
    code = call.integer("to")
    if code == STRING:
        return call.held(0) or []
    dtype = dtype_of(code)

    def parse(x: Values) -> Sequence[object]:
        if dtype.is_bool:
            return (each(lambda text: text.lower() not in ("0", "false", ""), x, np.bool_),)
        wide = np.float64 if dtype.is_float else object
        return (each(partial(_number, dtype=dtype), x, wide).astype(dtype.numpy),)

    return call.on_host(parse, [TensorType(dtype, call.shape(0))])


def cast_to_text(call: Call) -> list[Held]:
    """Numbers as strings, as short as they come back exactly."""

    def write(x: Values) -> Sequence[object]:
        wide = x.astype(np.float32) if dtypes.from_numpy(x.dtype) not in dtypes.ANY else x
        return (as_text(wide.astype(np.str_).astype(object)),)

    return call.on_host(write, [call.shape(0)])


# --- moving strings


def _reshape_text(call: Call) -> Result:
    shape = call.numbers(1, "the shape")
    if call.flag("allowzero") or any(d == 0 for d in shape):
        raise UnsupportedError("a shape with 0 is not supported for strings")
    known = None if -1 in shape else shape
    return call.on_host(lambda x, _: (x.reshape(shape),), [known or _free(call, shape)])


def _free(call: Call, shape: Sequence[int]) -> tuple[Dim, ...] | None:
    """The shape with its open size computed, where that is exact."""
    total: Dim = 1
    for dim in call.shape(0):
        total = total * dim
    rest = 1
    for size in shape:
        rest *= size if size > 0 else 1
    open_size = total if rest == 1 else total // rest
    return tuple(open_size if size == -1 else size for size in shape)


def _join_text(call: Call) -> Result:
    shapes = [call.shape(i) for i in range(len(call.inputs))]
    axis = normal_axis(call.integer("axis"), len(shapes[0]))
    size: Dim = 0
    for shape in shapes:
        size = size + shape[axis]
    shape = (*shapes[0][:axis], size, *shapes[0][axis + 1 :])

    def join(*parts: Values) -> Sequence[object]:
        return (np.concatenate(parts, axis),)

    return call.on_host(join, [shape])


def _gather_text(call: Call) -> Result:
    shape, places = call.shape(0), call.shape(1)
    axis = call.axis(len(shape), 0)

    def gather(x: Values, indices: Values) -> Sequence[object]:
        _check_indices(indices, axis, x.shape[axis])
        check_count((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))
        return (np.take(x, indices, axis),)

    return call.on_host(gather, [(*shape[:axis], *places, *shape[axis + 1 :])])


def _check_indices(indices: Values, axis: int, size: int) -> None:
    """Raises: InputError for the first index that lies outside the axis."""
    outside = indices[(indices < -size) | (indices >= size)]
    if outside.size:
        raise index_error(int(outside.flat[0]), -size, size - 1, axis=axis, size=size)


def _flatten_text(call: Call) -> Result:
    shape = call.shape(0)
    axis = normal_axis(call.integer("axis", 1), len(shape) + 1)
    sizes: list[Dim] = [1, 1]
    for place, dim in enumerate(shape):
        sizes[place >= axis] = sizes[place >= axis] * dim

    def flatten(x: Values) -> Sequence[object]:
        sides = (x.shape[:axis], x.shape[axis:])
        return (x.reshape([math.prod(side) for side in sides]),)

    return call.on_host(flatten, [tuple(sizes)])


def _unique_text(call: Call) -> Result:
    """Strings in the order of their characters' numbers; how many are distinct is a size of its own."""
    shape, axis = call.shape(0), call.attributes.integer("axis")
    is_sorted = call.flag("sorted", default=True)
    count = control.fresh_symbol(call.maker, "distinct")
    place = None if axis is None else normal_axis(axis, len(shape))

    def unique(x: Values) -> Sequence[object]:
        flat = x.reshape(-1, 1) if place is None else np.moveaxis(x, place, 0)
        slices = [tuple(line.ravel().tolist()) for line in flat]
        firsts: dict[tuple[str, ...], int] = {}
        for number, line in enumerate(slices):
            firsts.setdefault(line, number)
        keys = sorted(firsts) if is_sorted else list(firsts)
        places = np.array([firsts[key] for key in keys], np.int64)
        rank = {key: number for number, key in enumerate(keys)}
        inverse = np.array([rank[line] for line in slices], np.int64)
        counts = np.bincount(inverse, minlength=len(keys)).astype(np.int64)
        source, along = (x.reshape(-1), 0) if place is None else (x, place)
        return np.take(source, places, along), places, inverse, counts

    if place is None:
        total, values = element_count(shape), (count,)
    else:
        total, values = shape[place], (*shape[:place], count, *shape[place + 1 :])
    if not isinstance(total, int):
        # No input of the compiled part has the strings' sizes.
        total = control.fresh_symbol(call.maker, "strings")
    number, whole = TensorType(dtypes.i64, (count,)), TensorType(dtypes.i64, (total,))
    return call.on_host(unique, [values, number, whole, number])


def _same(call: Call) -> Result:
    held = call.held(0)
    if held is None:
        raise ModelError("operand 1 is missing")
    return held


TEXT_ROWS: Final[tuple[Row, ...]] = (
    row("Cast", _cast_text),
    row("Concat", _join_text),
    row("Equal", _equal_text),
    row("Flatten", _flatten_text),
    row("Gather", _gather_text),
    row("Identity", _same),
    row("RegexFullMatch", _full_match),
    row("Reshape", _reshape_text),
    row("StringConcat", _concat_text),
    row("StringNormalizer", _normalize_text),
    row("StringSplit", _split_text),
    row("Unique", _unique_text),
)
