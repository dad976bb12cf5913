"""Ops of classical machine learning: walks down decision trees, tables of values, counts of sequences.

A tree is rows of arrays: at a node one feature is compared with one threshold, and the walk goes on at
one of two nodes; at a leaf both are the leaf itself, so that every walk may take as many steps as the
deepest tree has.  What is made of the leaves is not here: sums are `gather` and `reduce_sum`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, cast

import numpy as np

from tilewright.base.dtypes import ANY, bool_, f32, f64, i32, i64
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim
from tilewright.compiler.graph.schema import Attributes, TensorType
from tilewright.compiler.kernel.builder import KernelBuilder, Source
from tilewright.compiler.kernel.ir import Expression
from tilewright.compiler.ops.bodies import Operands, Results, given
from tilewright.compiler.ops.declaration import OpDecl, Types, attr, declare, operand
from tilewright.compiler.ops.shapes import check_positive, first, need

_COMPARE: Final = (
    np.less_equal,
    np.less,
    np.greater_equal,
    np.greater,
    np.equal,
    np.not_equal,
)
"""How a value is compared with the threshold of a node, by number."""


def _leaves_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, features, roots = need(types, 0), need(types, 1), need(types, 7)
    if x.rank != 2 or features.rank != 1 or roots.rank != 1:
        raise ModelError(f"op 'tree_leaves': {x} is no table, or the trees are no vectors")
    if any(need(types, i).shape != features.shape for i in range(2, 7)):
        raise ModelError("op 'tree_leaves': the vectors of nodes have different lengths")
    if cast("int", attributes["depth"]) < 0:
        raise ModelError("op 'tree_leaves': the depth is negative")
    return (TensorType(i32, (x.shape[0], roots.shape[0])),)


def _leaves_oracle(x: np.ndarray, *trees: np.ndarray, depth: int) -> np.ndarray:
    features, thresholds, modes, missing, accepted, refused, roots = trees
    nodes = np.broadcast_to(roots, (len(x), len(roots)))
    rows = np.arange(len(x))[:, None]
    for _ in range(depth if features.size and x.size else 0):
        nodes = np.clip(nodes, 0, len(features) - 1)
        values = x[rows, np.clip(features[nodes], 0, x.shape[1] - 1)]
        found = [compare(values, thresholds[nodes]) for compare in _COMPARE]
        goes = np.select([modes[nodes] == i for i in range(len(found))], found, found[-1])
        goes = np.where(np.isnan(values), missing[nodes], goes)
        nodes = np.where(goes, accepted[nodes], refused[nodes])
    return nodes


def _within(b: KernelBuilder, value: Expression, size: Dim) -> Dim:
    """A loaded number as an index, in range whatever it is."""
    wide = b.cast(value, b.index(0).dtype)
    return b.as_index(b.min(b.max(wide, 0), b.index(size - 1)))


def _goes(
    b: KernelBuilder, modes: Source, node: Dim, left: Expression, right: Expression
) -> Expression:
    """What the comparison of the node says."""
    mode = b.load(modes, (node,))
    chosen = b.ne(left, right)
    for place, compare in enumerate((b.le, b.lt, b.ge, b.gt, b.eq)):
        chosen = b.select(b.eq(mode, place), compare(left, right), chosen)
    return chosen


def _leaves_body(
    b: KernelBuilder, attributes: Attributes, operands: Operands, results: Results
) -> None:
    x, features, thresholds, modes, missing, accepted, refused, roots = (
        given(operands, i) for i in range(8)
    )
    (result,), depth = results, cast("int", attributes["depth"])
    count, width = features.shape[0], x.shape[1]
    nodes = b.temporary(i32, result.shape, "node")
    with b.nest(result.shape, ("row", "tree")) as (row, tree):
        b.store(nodes, (row, tree), b.load(roots, (tree,)))
        if count != 0 and width != 0:
            with b.loop(depth, "step"):
                node = _within(b, b.load(nodes, (row, tree)), count)
                feature = _within(b, b.load(features, (node,)), width)
                value = b.load(x, (row, feature))
                goes = _goes(b, modes, node, value, b.load(thresholds, (node,)))
                lost = b.load(missing, (node,))
                goes = b.select(b.is_nan(value), lost, goes)
                then = b.select(goes, b.load(accepted, (node,)), b.load(refused, (node,)))
                b.store(nodes, (row, tree), then)
        b.store(result, (row, tree), b.load(nodes, (row, tree)))


_NODES: Final = "i32[7]:count(3) [7] i32[7]:count(6) [7] i32[7]:count(7) i32[7]:count(7)"

tree_leaves: Final = declare(
    name="tree_leaves",
    summary="The leaf of every tree that every row of x ends at, after `depth` comparisons",
    operands=(
        operand("x", (f32, f64)),
        operand("features", (i32,)),
        operand("thresholds", (f32, f64), like="x"),
        operand("modes", (i32,)),
        operand("missing", (bool_,)),
        operand("accepted", (i32,)),
        operand("refused", (i32,)),
        operand("roots", (i32,)),
    ),
    attributes=(attr("depth", "int"),),
    infer=_leaves_infer,
    evaluate=_leaves_oracle,
    body=_leaves_body,
    cases=(
        f"[5,3] {_NODES} i32[2]:count(7); depth=4",
        f"[17,3] {_NODES} i32[9]:count(7); depth=1",
        "[1,1] i32[1]:=0 [1] i32[1]:=0 [1] i32[1]:=0 i32[1]:=0 i32[3]:=0; depth=1",
        f"[0,2] {_NODES} i32[2]:count(3); depth=0",
    ),
    source="ONNX ai.onnx.ml TreeEnsemble, opset 5",
)


def _lookup_infer(types: Types, _: Attributes) -> tuple[TensorType, ...]:
    x, keys, values, default = (need(types, i) for i in range(4))
    if keys.rank != 1 or keys.shape != values.shape or default.rank:
        raise ModelError(f"op 'lookup': {keys}, {values} and {default} are no table")
    return (x.with_dtype(values.dtype),)


def _lookup_oracle(
    x: np.ndarray, keys: np.ndarray, values: np.ndarray, default: np.ndarray
) -> np.ndarray:
    result = np.broadcast_to(default, x.shape)
    for key, value in zip(keys[::-1], values[::-1], strict=True):
        both_missing = (x != x) & (key != key)
        result = np.where((x == key) | both_missing, value, result)
    return result


def _lookup_body(
    b: KernelBuilder, _: Attributes, operands: Operands, results: Results
) -> None:
    x, keys, values, default = (given(operands, i) for i in range(4))
    (result,), count = results, keys.shape[0]
    with b.nest(result.shape) as place:
        b.store(result, place, b.load(default, ()))
        with b.loop(count, "key") as index:
            last = (
                count - 1 - index
            )  # so that the first of equal keys is the last to be written
            value, key = b.read(x, place), b.read(keys, (last,))
            same = b.eq(value, key)
            if x.dtype.is_float:
                same = b.or_(same, b.and_(b.is_nan(value), b.is_nan(key)))
            found = b.select(same, b.load(values, (last,)), b.load(result, place))
            b.store(result, place, found)


lookup: Final = declare(
    name="lookup",
    summary="The value of the first key that equals x, NaN equal to NaN, or the default",
    operands=(
        operand("x", ANY), operand("keys", ANY, like="x"), operand("values", ANY),
        operand("default", ANY, like="values"),
    ),
    infer=_lookup_infer,
    evaluate=_lookup_oracle,
    body=_lookup_body,
    cases=(
        "i64[3,5]:index(4) i64[4]:=3,-1,0,3 f32[4] f32[]:=-1",
        "f32[7]:=1,2,nan,-0.0,5,0.5,1 f32[3]:=nan,1,0 i64[3] i64[]:=9",
        "i32[]:=1 i32[1]:=1 i32[1]:=7 i32[]:=0",
        "f64[0,2] f64[2]:=1,2 f64[2] f64[]:=0",
    ),
    source="ONNX ai.onnx.ml LabelEncoder, opset 4",
)  # fmt: skip


def _ngram_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, width = first(types), cast("int", attributes["width"])
    if x.rank not in (1, 2) or width < 0:
        raise ModelError(f"op 'ngram_counts': {x} is no line or table of numbers")
    starts, lengths = (cast("Sequence[int]", attributes[n]) for n in ("starts", "lengths"))
    places = cast("Sequence[int]", attributes["places"])
    ends = (*starts[1:], len(cast("Sequence[int]", attributes["pool"])))
    ascend = all(0 <= start <= end for start, end in zip(starts, ends, strict=True))
    sizes = enumerate(zip(starts, ends, strict=True), 1)
    if not ascend or len(places) < sum(-((a - b) // n) for n, (a, b) in sizes):
        raise ModelError(
            f"op 'ngram_counts': {len(places)} places for pools from {list(starts)}"
        )
    if any(not 0 <= place < width for place in places):
        raise ModelError(f"op 'ngram_counts': places beyond the width {width}")
    check_positive("lengths of n-grams are", lengths)
    return (TensorType(f32, (*x.shape[:-1], width)),)


def _ngram_oracle(
    x: np.ndarray,
    *,
    pool: Sequence[int],
    starts: Sequence[int],
    places: Sequence[int],
    lengths: Sequence[int],
    skips: int,
    width: int,
) -> np.ndarray:
    """Grams of length n begin in the pool at `starts[n - 1]`; places are those of their counts."""
    table: dict[tuple[int, ...], int] = {}
    ends = [*starts[1:], len(pool)]
    order = iter(places)
    for length, (start, end) in enumerate(zip(starts, ends, strict=True), 1):
        for begin in range(start, end, length):
            table[tuple(pool[begin : begin + length])] = next(order)
    rows = x if x.ndim == 2 else x[None]
    result = np.zeros((len(rows), width), np.float32)
    for counts, row in zip(result, rows.tolist(), strict=True):
        # Longer ones are not in the pool, and steps beyond the row find nothing.
        for length in range(lengths[0], min(lengths[1], len(starts)) + 1):
            most = 1 if length == 1 else min(skips + 1, (len(row) - 1) // (length - 1))
            for step in range(1, most + 1):
                for begin in range(len(row) - (length - 1) * step):
                    gram = tuple(row[begin : begin + (length - 1) * step + 1 : step])
                    place = table.get(gram)
                    if place is not None:
                        counts[place] += 1
    return result.reshape(*x.shape[:-1], width)


_POOL: Final = "pool=(1,3,1,2,2,3) starts=(0,2) places=(0,2,1,3)"

ngram_counts: Final = declare(
    name="ngram_counts",
    summary="How often each of the known sequences of numbers stands in every row of x",
    operands=(operand("x", (i32, i64)),),
    attributes=(
        attr("pool", "ints"), attr("starts", "ints"), attr("places", "ints"),
        attr("lengths", "ints"), attr("skips", "int", 0), attr("width", "int"),
    ),
    infer=_ngram_infer,
    evaluate=_ngram_oracle,
    on_host="sequences are looked up in a table, which numpy and Python do",
    cases=(
        f"[2,6]:=1,2,3,1,2,1,3,3 ; {_POOL} lengths=(1,2) skips=1 width=4",
        f"[2,6]:=1,2,3,1,2,1,3,3 ; {_POOL} lengths=(1,1099511627776) skips=1099511627776 width=4",
        "[4]:=1 ; pool=(1,1) starts=(0,0) places=(0,) lengths=(2,2) width=1",
        "[0,3] ; pool=(1,) starts=(0,) places=(0,) lengths=(1,1) width=2",
        "[2,0] ; pool=(1,) starts=(0,) places=(0,) lengths=(1,1) width=2",
    ),
    source="ONNX TfIdfVectorizer, opset 9",
)  # fmt: skip


def _couple_infer(types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    x, classes = first(types), cast("int", attributes["classes"])
    if x.rank != 2 or classes < 2 or x.shape[1] != classes * (classes - 1) // 2:
        raise ModelError(
            f"op 'couple_probabilities': {x} has no pairs of {classes} classes"
        )
    return (x.with_shape((x.shape[0], classes)),)


def _couple_oracle(x: np.ndarray, *, classes: int) -> np.ndarray:
    """LIBSVM's iteration, for all rows at once; a row that has converged stays as it is."""
    pairs = np.zeros((len(x), classes, classes))
    first, second = np.triu_indices(classes, 1)
    pairs[:, first, second], pairs[:, second, first] = x, 1 - x.astype(np.float64)
    q = -pairs.swapaxes(1, 2) * pairs
    places = np.arange(classes)
    q[:, places, places] = (pairs**2).sum(1)
    result = np.full((len(x), classes), 1 / classes)
    active = np.ones(len(x), np.bool_)
    for _ in range(max(100, classes)):
        products = np.einsum("nij,nj->ni", q, result)
        whole = (result * products).sum(1)
        error = np.abs(products - whole[:, None]).max(1, initial=0)
        active &= error >= 0.005 / classes
        if not active.any():
            break
        current = result.copy()
        for place in range(classes):
            step = (whole - products[:, place]) / q[:, place, place]
            current[:, place] += step
            inner = whole + step * (step * q[:, place, place] + 2 * products[:, place])
            whole = inner / (1 + step) ** 2
            products = (products + step[:, None] * q[:, place]) / (1 + step)[:, None]
            current /= (1 + step)[:, None]
        result = np.where(active[:, None], current, result)
    return result


couple_probabilities: Final = declare(
    name="couple_probabilities",
    summary="Probabilities of classes from those of the first of every pair of them",
    operands=(operand("x", (f32, f64)),),
    attributes=(attr("classes", "int"),),
    infer=_couple_infer,
    evaluate=_couple_oracle,
    on_host="every row is iterated until it has converged",
    cases=(
        "[5,3]:=0.3,0.9,0.2,0.6,0.5,0.01; classes=3",
        "[4,1]:=0.2,0.7; classes=2",
        "[0,6]; classes=4",
    ),
    source="Wu, Lin, Weng: Probability Estimates for Multi-class Classification by Pairwise Coupling, 2004",
)

OPS: Final[tuple[OpDecl, ...]] = (
    tree_leaves,
    lookup,
    ngram_counts,
    couple_probabilities,
)
