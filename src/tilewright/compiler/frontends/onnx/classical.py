"""Rows for classical machine learning: features in, features out, and linear models.

Each is a composition of ops of the graph; strings are looked up by the host, which hands over numbers.

Source: ONNX ai.onnx.ml operator reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InputError, ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.contraction import matmul
from tilewright.compiler.frontends.onnx.row import CLASSICAL, Result, Row, row
from tilewright.compiler.frontends.onnx.scores import binary_scores, labelled, transformed
from tilewright.compiler.frontends.onnx.values import Held
from tilewright.compiler.graph.schema import TensorType

_MISSING_IS_A_KEY: Final = 4
"""The opset from which a NaN among the keys of LabelEncoder is met by NaN."""
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO")
Values = np.ndarray[Any, np.dtype[Any]]


def _floats(call: Call, name: str) -> Values:
    return np.array(call.attributes.floats(name) or (), np.float32)


def _real(call: Call, index: int = 0) -> Tensor:
    return call.maker.cast(call.tensor(index), dtypes.f32)


# --- features


def _extract(call: Call) -> Tensor:
    e, x, places = call.maker, call.tensor(0), call.tensor(1)
    flat = e.reshape(places, (places.type.element_count,))
    if x.rank == 1:
        x = e.unsqueeze(x, (0,))
    return e.op("gather", x, flat, axis=x.rank - 1)


def _extract_text(call: Call) -> Result:
    shape, places = call.shape(0), call.shape(1)
    count: Dim = 1
    for dim in places:
        count = count * dim
    lead = shape[:-1] if len(shape) > 1 else (1,)

    def pick(x: Values, indices: Values) -> Sequence[object]:
        return (np.take(x if x.ndim > 1 else x[None], indices.reshape(-1), -1),)

    return call.on_host(pick, [(*lead, count)])


def _binarize(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    above = e.op("greater", x, e.scalar(call.float("threshold", 0.0), x.dtype))
    return e.cast(above, x.dtype)


def _scale(call: Call) -> Tensor:
    e, x = call.maker, _real(call)
    offset, scale = _floats(call, "offset"), _floats(call, "scale")
    moved = e.op("sub", x, e.constant(offset)) if offset.size else x
    return e.op("mul", moved, e.constant(scale)) if scale.size else moved


def _normalize(call: Call) -> Tensor:
    """Rows divided by their norm; a row of norm 0 stays."""
    e, x = call.maker, _real(call)
    form = call.choice("norm", "MAX", ("MAX", "L1", "L2"))
    axes = (x.rank - 1,)
    if form == "MAX":
        norm = e.op("reduce_max", x, axes=axes, keepdims=True)
    elif form == "L1":
        norm = e.op("reduce_sum", e.op("abs", x), axes=axes, keepdims=True)
    else:
        square = e.op("reduce_sum", e.op("mul", x, x), axes=axes, keepdims=True)
        norm = e.op("sqrt", square)
    is_zero = e.op("equal", norm, e.scalar(0, dtypes.f32))
    return e.op("div", x, e.op("where", is_zero, e.scalar(1, dtypes.f32), norm))


def _impute(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    if x.dtype.is_float:
        values: Values = _floats(call, "imputed_value_floats").astype(x.dtype.numpy)
        replaced: float = call.float("replaced_value_float", 0.0)
    else:
        values = np.array(call.integers("imputed_value_int64s"), x.dtype.numpy)
        replaced = call.integer("replaced_value_int64", 0)
    for other in ("replaced_value_float", "replaced_value_int64", "imputed_value_floats",
                  "imputed_value_int64s"):  # fmt: skip
        call.attributes.has(other)
    is_lost = (
        e.op("is_nan", x)
        if np.isnan(replaced)
        else e.op("equal", x, e.scalar(replaced, x.dtype))
    )
    shaped = values.reshape(()) if values.size == 1 else values
    return e.op("where", is_lost, e.constant(shaped), x)


def _join_features(call: Call) -> Tensor:
    e, widths = call.maker, call.attributes.integers("inputdimensions")
    parts: list[Tensor] = []
    for place, x in enumerate(call.tensors()):
        flat = e.cast(x, dtypes.f32)
        flat = e.reshape(flat, (1, *flat.shape)) if flat.rank == 1 else flat
        if flat.rank != 2:
            raise ModelError(f"operand {place + 1} has type {x.type}, expected rows")
        if widths and place < len(widths):
            flat = e.slice(flat, 1, 0, widths[place])
        parts.append(flat)
    return e.concat(parts, 1)


# --- tables


def _tables(call: Call) -> tuple[Values, Values, Values]:
    """Keys, values, and the default of a label encoder."""
    a = call.attributes
    if a.has("classes_strings"):  # opset 1: names and their places
        names = np.array(a.strings("classes_strings"), object)
        default = call.integer("default_int64", -1)
        unknown = call.string("default_string", "_Unused")
        if call.is_text(0):
            return names, np.arange(len(names)), np.array(default, np.int64)
        return np.arange(len(names)), names, np.array(unknown, object)
    keys, values = _column(call, "keys"), _column(call, "values")
    if len(keys) != len(values):
        raise ModelError(f"there are {len(keys)} keys and {len(values)} values")
    tensor = a.tensor("default_tensor")
    given = None if tensor is None else call.text_or_array(tensor)
    text, whole = (
        call.string("default_string", "_Unused"),
        call.integer("default_int64", -1),
    )
    real = call.float("default_float", -0.0)
    if given is not None:
        return keys, values, given.reshape(())
    if values.dtype == object:
        return keys, values, np.array(text, object)
    default = real if values.dtype.kind == "f" else whole
    return keys, values, np.array(default, values.dtype)


def _column(call: Call, stem: str) -> Values:
    a = call.attributes
    text, whole = a.strings(f"{stem}_strings"), a.integers(f"{stem}_int64s")
    real, tensor = a.floats(f"{stem}_floats"), a.tensor(f"{stem}_tensor")
    if tensor is not None:
        return call.text_or_array(tensor).reshape(-1)
    if text is not None:
        return np.array(text, object)
    if whole is not None:
        return np.array(whole, np.int64)
    if real is not None:
        return np.array(real, np.float32)
    raise ModelError(f"attribute '{stem}_*' is missing")


def _by_table(x: Values, table: Mapping[Any, Any], default: Any, dtype: Any) -> Values:
    """The value of each key; a NaN is one key."""
    nan = next((value for key, value in table.items() if key != key), default)
    found = np.empty(x.size, dtype)
    found[:] = [
        table.get(key, default) if key == key else nan for key in x.reshape(-1).tolist()
    ]
    return found.reshape(x.shape)


def _encode(call: Call) -> Result:
    e = call.maker
    keys, values, default = _tables(call)
    if keys.dtype != object and call.opset < _MISSING_IS_A_KEY:
        kept = ~np.isnan(keys)
        keys, values = keys[kept], values[kept]
    if keys.dtype != object and values.dtype != object and not call.is_text(0):
        x = call.tensor(0)
        table = e.constant(keys.astype(x.dtype.numpy))
        return e.op("lookup", x, table, e.constant(values), e.constant(default))
    pairs = dict(zip(keys.tolist()[::-1], values.tolist()[::-1], strict=True))

    def look_up(x: Values) -> Sequence[object]:
        return (_by_table(x, pairs, default.item(), values.dtype),)

    shape = call.shape(0)
    if values.dtype == object:
        return call.on_host(look_up, [shape])
    return call.on_host(look_up, [TensorType(dtypes.from_numpy(values.dtype), shape)])


def _map_category(call: Call) -> Result:
    names = call.attributes.strings("cats_strings") or ()
    numbers = call.attributes.integers("cats_int64s") or ()
    whole, text = (
        call.integer("default_int64", -1),
        call.string("default_string", "_Unused"),
    )
    if call.is_text(0):
        to_number = dict(zip(names, numbers, strict=True))
        return call.on_host(
            lambda x: (_by_table(x, to_number, whole, np.int64),),
            [TensorType(dtypes.i64, call.shape(0))],
        )
    to_text = dict(zip(numbers, names, strict=True))
    return call.on_host(lambda x: (_by_table(x, to_text, text, object),), [call.shape(0)])


def _one_hot(call: Call) -> Result:
    e, zeros = call.maker, call.flag("zeros", default=True)
    names, numbers = (
        call.attributes.strings("cats_strings"),
        call.attributes.integers("cats_int64s"),
    )
    if call.is_text(0):
        places = {name: place for place, name in enumerate(names or ())}
        (held,) = call.on_host(
            lambda x: (_by_table(x, places, -1, np.int64),),
            [TensorType(dtypes.i64, call.shape(0))],
        )
        if not isinstance(held, Tensor):
            raise UnsupportedError("strings that are made of results are not encoded")
        x, known = held, np.arange(len(names or ()))
    else:
        x, known = call.tensor(0), np.array(numbers or ())
    table = e.constant(known.astype(x.dtype.numpy))
    column = e.reshape(x, (*x.shape, 1))
    hits = e.op("equal", column, table)
    if not zeros:
        _require_hits(e, hits)
    return e.cast(hits, dtypes.f32)


def _require_hits(e: NodeMaker, hits: Tensor) -> None:
    """Fail a call in which a row of categories has no hit."""
    counts = e.op(
        "reduce_sum", e.cast(hits, dtypes.i64), axes=(hits.rank - 1,), keepdims=False
    )
    missing = e.cast(e.op("equal", counts, e.scalar(0, dtypes.i64)), dtypes.i64)
    axes = tuple(range(missing.rank))
    total = e.op("reduce_sum", missing, axes=axes, keepdims=False) if axes else missing
    control.require(e, total, 0, "unknown")


# --- linear models


def _coefficients(call: Call, width: Dim) -> tuple[Values, Values]:
    """[features, targets] and what is added."""
    flat, added = _floats(call, "coefficients"), _floats(call, "intercepts")
    if not isinstance(width, int) or not width or flat.size % width:
        raise ModelError(f"there are {flat.size} coefficients for {width} features")
    return flat.reshape(-1, width).T, added


def _linear(call: Call) -> Tensor:
    e, x = call.maker, _real(call)
    x = e.unsqueeze(x, (0,)) if x.rank == 1 else x
    factors, added = _coefficients(call, x.shape[-1])
    scores = matmul(e, x, e.constant(np.ascontiguousarray(factors)))
    return e.op("add", scores, e.constant(added)) if added.size else scores


def _regress(call: Call) -> Tensor:
    call.integer("targets", 1)
    scores = _linear(call)
    return transformed(call, scores, call.choice("post_transform", "NONE", _TRANSFORMS))


def _classify(call: Call) -> list[Held]:
    call.integer("multi_class", 0)
    transform = call.choice("post_transform", "NONE", _TRANSFORMS)
    labels = call.attributes.strings("classlabels_strings") or call.integers(
        "classlabels_ints"
    )
    scores = _linear(call)
    if scores.shape[-1] == 1 and len(labels) == 2:
        return binary_scores(call, scores, labels, transform, probability=False)
    return labelled(call, scores, labels, transform)


# --- maps


def _zip_map(call: Call) -> Result:
    labels = call.attributes.strings("classlabels_strings") or call.integers(
        "classlabels_int64s"
    )

    def zipped(x: Values) -> Sequence[object]:
        rows = x if x.ndim == 2 else x[None]
        return ([dict(zip(labels, row, strict=True)) for row in rows.tolist()],)

    return call.on_host(zipped, [None])


def _vectorize_map(call: Call, dtype: DType) -> Result:
    words = call.attributes.strings("string_vocabulary") or call.integers(
        "int64_vocabulary"
    )

    def vectorize(x: Mapping[object, object]) -> Sequence[object]:
        return (np.array([[x.get(word, 0) for word in words]], dtype.numpy),)

    return call.on_host(vectorize, [TensorType(dtype, (1, len(words)))])


def _from_map(call: Call) -> Result:
    """A map as a vector; ONNX leaves its element type to the model: f32 is what converters write."""
    return _vectorize_map(call, dtypes.f32)


def _cast_map(call: Call) -> Result:
    form = call.choice("map_form", "DENSE", ("DENSE", "SPARSE"))
    kinds = {"TO_FLOAT": dtypes.f32, "TO_INT64": dtypes.i64}
    dtype = kinds[call.choice("cast_to", "TO_FLOAT", tuple(kinds))]
    size = call.integer("max_map", 1)

    def as_row(x: Mapping[int, Any]) -> Sequence[object]:
        pairs = sorted(x.items())
        if form == "DENSE":
            return (np.array([[value for _, value in pairs]]).astype(dtype.numpy),)
        found = np.zeros((1, size), dtype.numpy)
        for key, value in pairs:
            if not 0 <= key < size:
                raise InputError(f"has key {key}, expected 0 to {size - 1}")
            found[0, key] = value
        return (found,)

    if form == "DENSE":
        raise UnsupportedError("a map as a vector of as many elements has no known shape")
    return call.on_host(as_row, [TensorType(dtype, (1, size))])


# --- text features


def _grams(call: Call) -> Result:
    e, a = call.maker, call.attributes
    mode = call.choice("mode", "TF", ("TF", "IDF", "TFIDF"))
    starts, places = call.integers("ngram_counts"), call.integers("ngram_indexes")
    lengths = (call.integer("min_gram_length"), call.integer("max_gram_length"))
    skips = call.integer("max_skip_count")
    words, numbers = a.strings("pool_strings"), a.integers("pool_int64s")
    weights = _floats(call, "weights")
    if words is not None:
        known = {word: place for place, word in enumerate(dict.fromkeys(words))}
        (held,) = call.on_host(
            lambda x: (_by_table(x, known, -1, np.int64),),
            [TensorType(dtypes.i64, call.shape(0))],
        )
        if not isinstance(held, Tensor):
            raise UnsupportedError("strings that are made of results are not counted")
        x, pool = held, tuple(known[word] for word in words)
    else:
        x, pool = call.tensor(0), tuple(numbers or ())
    width = max(places, default=-1) + 1
    counts = e.op(
        "ngram_counts", x, pool=pool, starts=starts, places=places, lengths=lengths,
        skips=skips, width=width,
    )  # fmt: skip
    if mode == "TF":
        return counts
    factor = np.ones(width, np.float32)
    factor[list(places)] = weights if weights.size else 1
    if mode == "TFIDF":
        return e.op("mul", counts, e.constant(factor))
    return e.op(
        "where",
        e.op("greater", counts, e.scalar(0, dtypes.f32)),
        e.constant(factor),
        e.scalar(0, dtypes.f32),
    )


_row: Final[Callable[..., Row]] = partial(row, domain=CLASSICAL)
ROWS: Final[tuple[Row, ...]] = (
    _row("ArrayFeatureExtractor", _extract),
    _row("Binarizer", _binarize),
    _row("CastMap", _cast_map),
    _row("CategoryMapper", _map_category),
    _row("DictVectorizer", _from_map),
    _row("FeatureVectorizer", _join_features),
    _row("Imputer", _impute),
    _row("LabelEncoder", _encode),
    _row("LinearClassifier", _classify),
    _row("LinearRegressor", _regress),
    _row("Normalizer", _normalize),
    _row("OneHotEncoder", _one_hot),
    _row("Scaler", _scale),
    _row("ZipMap", _zip_map),
    row("TfIdfVectorizer", _grams),
)
TEXT_ROWS: Final[tuple[Row, ...]] = (_row("ArrayFeatureExtractor", _extract_text),)
