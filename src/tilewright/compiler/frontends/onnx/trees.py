"""Rows for decision trees: every tree of an ensemble is walked to a leaf, and the leaves' weights are summed.

The nodes of all trees become vectors that `tree_leaves` walks; a comparison with a set of values becomes
a chain of comparisons with one.  Trees are checked here: no cycle, no child that is not there.

Source: ONNX ai.onnx.ml operator reference (TreeEnsemble, TreeEnsembleClassifier, TreeEnsembleRegressor).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.record import field, record
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.call import Call
from tilewright.compiler.frontends.onnx.row import CLASSICAL, Row, row
from tilewright.compiler.frontends.onnx.scores import binary_scores, labelled, transformed
from tilewright.compiler.frontends.onnx.values import Held

_MODES: Final = (
    "BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER",
)  # fmt: skip
_EQUAL: Final = 4
_MEMBER: Final = 6
_TRANSFORMS: Final = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MOST_WEIGHTS: Final = 1 << 28

Values = np.ndarray[Any, np.dtype[Any]]


@final
@record(frozen=False)
class _Forest:
    """Nodes in one numbering; a leaf is its own child on both sides."""

    features: list[int] = field(default_factory=list[int])
    thresholds: list[float] = field(default_factory=list[float])
    modes: list[int] = field(default_factory=list[int])
    missing: list[bool] = field(default_factory=list[bool])
    accepted: list[int] = field(default_factory=list[int])
    refused: list[int] = field(default_factory=list[int])
    roots: list[int] = field(default_factory=list[int])

    def add(self, feature: int, threshold: float, mode: int, *, missing: bool) -> int:
        """A node that is a leaf until its children are set."""
        place = len(self.features)
        self.features.append(feature)
        self.thresholds.append(threshold)
        self.modes.append(mode)
        self.missing.append(missing)
        self.accepted.append(place)
        self.refused.append(place)
        return place

    def leaves(self) -> list[int]:
        """The nodes that a walk may end at."""
        children = zip(self.accepted, self.refused, strict=True)
        return [node for node, pair in enumerate(children) if node in pair]

    def depth(self) -> int:
        """The most comparisons on the way to a leaf.

        Raises: ModelError where a walk never ends.
        """
        level, deepest, visited = set(self.roots), 0, 0
        while level:
            below = {
                child
                for node in level
                for child in (self.accepted[node], self.refused[node])
                if child != node
            }
            visited += len(level)
            if below and deepest >= len(self.features):
                raise ModelError("a tree has a cycle")
            deepest += bool(below)
            level = below
        return deepest

    def walk(self, call: Call, x: Tensor) -> Tensor:
        """The leaf of every row in every tree, `[rows, trees]` i32."""
        e, depth = call.maker, self.depth()
        width = x.shape[1]
        if isinstance(width, int) and any(f >= width for f in self.features):
            raise ModelError(f"a tree asks for feature {max(self.features)} of {width}")
        numbers = [np.array(v, np.int32) for v in (self.features, self.modes)]
        children = [np.array(v, np.int32) for v in (self.accepted, self.refused)]
        return e.op(
            "tree_leaves",
            x,
            e.constant(numbers[0]),
            e.constant(np.array(self.thresholds, x.dtype.numpy)),
            e.constant(numbers[1]),
            e.constant(np.array(self.missing, np.bool_)),
            *map(e.constant, children),
            e.constant(np.array(self.roots, np.int32)),
            depth=depth,
        )


def _table(call: Call) -> Tensor:
    """The rows of features, in f32 or f64."""
    e, x = call.maker, call.tensor(0)
    x = x if x.dtype is dtypes.f64 else e.cast(x, dtypes.f32)
    if x.rank == 1:
        return e.unsqueeze(x, (0,))
    if x.rank != 2:
        raise ModelError(f"operand 1 has type {x.type}, expected rows of features")
    return x


@final
@record
class _Aggregate:
    """How weights become one.

    Attributes:
        of_numbers: of two weights of one leaf.
        empty: what a leaf says of a target of which it has no weight.
        op: of the leaves of a row.
    """

    of_numbers: Callable[[float, float], float]
    empty: float
    op: str


_SUM: Final = _Aggregate(operator.add, 0.0, "reduce_sum")
_AGGREGATES: Final = {
    "AVERAGE": _SUM,
    "SUM": _SUM,
    "MIN": _Aggregate(min, np.inf, "reduce_min"),
    "MAX": _Aggregate(max, -np.inf, "reduce_max"),
}


def _aggregated(
    call: Call,
    forest: _Forest,
    x: Tensor,
    entries: Sequence[tuple[int, int, float]],
    targets: int,
    aggregate: str = "SUM",
) -> Tensor:
    """What the trees say together of rows of features, `[rows, targets]`.

    It is 0 of a target of which none of a row's leaves has a weight.

    Args:
        call: of the node.
        forest: the trees.
        x: rows of features.
        entries: node, target and weight.
        targets: how many there are.
        aggregate: how weights become one.
    """
    e, how, leaves = call.maker, _AGGREGATES[aggregate], forest.walk(call, x)
    weights, told = _weights((len(forest.features), targets), entries, how)

    def of_leaves(table: Values, op: str) -> Tensor:
        picked = e.op("gather", e.constant(table), leaves, axis=0)
        return e.op(op, picked, axes=(1,), keepdims=False)

    total = of_leaves(weights.astype(x.dtype.numpy), how.op)
    if how is not _SUM and not told[forest.leaves()].all():
        is_told = e.cast(of_leaves(told.astype(np.uint8), "reduce_max"), dtypes.bool_)
        total = e.op("where", is_told, total, e.scalar(0.0, x.dtype))
    if aggregate == "AVERAGE":
        total = e.op("div", total, e.cast(e.dim(leaves.shape[1]), x.dtype))
    return total


def _weights(
    shape: tuple[int, int], entries: Sequence[tuple[int, int, float]], how: _Aggregate
) -> tuple[Values, Values]:
    """The weights of all nodes for all targets, and of which a leaf says something."""
    count, targets = shape
    if count * targets > _MOST_WEIGHTS:
        raise UnsupportedError(f"{count} nodes with {targets} targets each are too many")
    found, told = np.full(shape, how.empty), np.zeros(shape, np.bool_)
    for node, target, weight in entries:
        if not 0 <= target < targets:
            raise ModelError(f"a leaf has target {target}, of {targets}")
        known = told[node, target]
        found[node, target] = (
            how.of_numbers(found[node, target], weight) if known else weight
        )
        told[node, target] = True
    return found, told


# --- up to opset 4: nodes by tree and number


def _numbers(call: Call, name: str) -> Values:
    """Floats that stand in a list, or in a tensor of their own."""
    tensor = call.array_attribute(f"{name}_as_tensor")
    if tensor is not None:
        return tensor
    return np.array(call.attributes.floats(name) or (), np.float32)


def _forest_by_number(call: Call) -> tuple[_Forest, dict[tuple[int, int], int]]:
    """The forest, and the place of every (tree, number)."""
    a = call.attributes
    call.attributes.has("nodes_hitrates")
    call.attributes.has("nodes_hitrates_as_tensor")
    trees, numbers = call.integers("nodes_treeids"), call.integers("nodes_nodeids")
    modes = a.strings("nodes_modes") or ()
    columns = (
        call.integers("nodes_featureids"), _numbers(call, "nodes_values").tolist(), modes,
        a.integers("nodes_missing_value_tracks_true") or [0] * len(trees),
        call.integers("nodes_truenodeids"), call.integers("nodes_falsenodeids"),
    )  # fmt: skip
    if any(len(c) != len(trees) for c in (numbers, *columns)):
        raise ModelError("the attributes of nodes have different lengths")
    forest, places, seen = _Forest(), dict[tuple[int, int], int](), set[int]()
    for tree, number, feature, threshold, mode, missing in zip(
        trees, numbers, *columns[:4], strict=True
    ):
        leaf = mode == "LEAF"
        if not leaf and (mode not in _MODES or mode == "BRANCH_MEMBER"):
            raise UnsupportedError(f"nodes of mode '{mode}' are not supported")
        if feature < 0 and not leaf:
            raise ModelError(f"a node asks for feature {feature}")
        place = forest.add(
            0 if leaf else feature,
            threshold,
            0 if leaf else _MODES.index(mode),
            missing=bool(missing),
        )
        if tree not in seen:
            seen.add(tree)
            forest.roots.append(place)
        places[tree, number] = place
    for place, (tree, mode, yes, no) in enumerate(
        zip(trees, modes, columns[4], columns[5], strict=True)
    ):
        if mode == "LEAF":
            continue
        try:
            forest.accepted[place], forest.refused[place] = (
                places[tree, yes],
                places[tree, no],
            )
        except KeyError as error:
            raise ModelError(f"tree {tree} has no node {yes} or {no}") from error
    return forest, places


def _entries(
    call: Call, places: dict[tuple[int, int], int], stem: str, weights: str
) -> list[tuple[int, int, float]]:
    """(node, target, weight) of the leaves."""
    columns = (
        call.integers(f"{stem}_treeids"), call.integers(f"{stem}_nodeids"),
        call.integers(f"{stem}_ids"), _numbers(call, weights).tolist(),
    )  # fmt: skip
    if len({len(c) for c in columns}) != 1:
        raise ModelError("the attributes of leaves have different lengths")
    try:
        return [(places[t, n], i, float(w)) for t, n, i, w in zip(*columns, strict=True)]
    except KeyError as error:
        raise ModelError(f"there is no leaf {error}") from error


def _one_of_each(
    forest: _Forest, entries: Iterable[tuple[int, int, float]]
) -> list[tuple[int, int, float]]:
    """The first weight of each leaf, 0 of one that has none: of one target, onnxruntime knows no other.

    Converters of scikit-learn rely on it: for the leaf of a row (`decision_leaf`, `decision_path`) they write the
    number of a leaf once per class.
    """
    first = dict[int, tuple[int, int, float]]()
    for entry in entries:
        first.setdefault(entry[0], entry)
    for leaf in forest.leaves():
        first.setdefault(leaf, (leaf, 0, 0.0))
    return list(first.values())


def _regressor(call: Call) -> Tensor:
    e, x = call.maker, _table(call)
    forest, places = _forest_by_number(call)
    aggregate = call.choice("aggregate_function", "SUM", tuple(_AGGREGATES))
    targets = call.integer("n_targets", 1)
    entries = _entries(call, places, "target", "target_weights")
    if targets == 1:
        entries = _one_of_each(forest, entries)
    total = _aggregated(call, forest, x, entries, targets, aggregate)
    base = _numbers(call, "base_values")
    if base.size:
        total = e.op("add", total, e.constant(base.astype(x.dtype.numpy)))
    result = transformed(call, total, call.choice("post_transform", "NONE", _TRANSFORMS))
    return e.cast(result, dtypes.f32)


def _classifier(call: Call) -> list[Held]:
    e, x = call.maker, _table(call)
    forest, places = _forest_by_number(call)
    entries = _entries(call, places, "class", "class_weights")
    transform = call.choice("post_transform", "NONE", _TRANSFORMS)
    labels = call.attributes.strings("classlabels_strings") or call.integers(
        "classlabels_int64s"
    )
    base = _numbers(call, "base_values")
    classes = {target for _, target, _ in entries}
    if len(labels) == 2 and len(classes) == 1:
        one = [(node, 0, weight) for node, _, weight in entries]
        score = _aggregated(call, forest, x, one, 1)
        if base.size:
            score = e.op("add", score, e.scalar(float(base[-1]), score.dtype))
        certain = all(weight >= 0 for _, _, weight in entries)
        return binary_scores(call, score, labels, transform, probability=certain)
    total = _aggregated(call, forest, x, entries, len(labels))
    if base.size:
        total = e.op("add", total, e.constant(base.astype(x.dtype.numpy)))
    return labelled(call, total, labels, transform)


# --- since opset 5: inner nodes and leaves apart


def _forest_of_nodes(call: Call) -> tuple[_Forest, int]:
    """The forest, and where its leaves begin."""
    modes, splits = (
        call.array_attribute("nodes_modes"),
        call.array_attribute("nodes_splits"),
    )
    if modes is None or splits is None:
        raise ModelError("attribute 'nodes_modes' or 'nodes_splits' is missing")
    count, leaf_count = len(modes), len(call.integers("leaf_targetids"))
    features = call.integers("nodes_featureids")
    missing = call.attributes.integers("nodes_missing_value_tracks_true") or [0] * count
    call.attributes.has("nodes_hitrates")
    children = [_children(call, side, count, leaf_count) for side in ("true", "false")]
    if any(len(c) != count for c in (splits, features, missing, *children)):
        raise ModelError("the attributes of nodes have different lengths")
    numbers: list[int] = np.asarray(modes, np.int64).tolist()
    if any(m > _MEMBER for m in numbers) or any(f < 0 for f in features):
        raise ModelError("a node has no such mode or feature")
    forest, sets = _Forest(), iter(_member_sets(call, numbers))
    for mode, split, feature, lost in zip(
        numbers, np.asarray(splits, np.float64).tolist(), features, missing, strict=True
    ):
        forest.add(feature, split, mode, missing=bool(lost))
    for _ in range(leaf_count):
        forest.add(0, 0.0, 0, missing=False)
    for place, mode in enumerate(numbers):
        forest.accepted[place], forest.refused[place] = (
            children[0][place],
            children[1][place],
        )
        if mode == _MEMBER:
            _chain(forest, place, next(sets) or [float("nan")])
    roots = call.integers("tree_roots")
    if any(not 0 <= root < count for root in roots):
        raise ModelError("a tree begins at a node that there is not")
    forest.roots.extend(roots)
    return forest, count


def _children(call: Call, side: str, count: int, leaf_count: int) -> list[int]:
    """Where walks go on: leaves stand behind the nodes."""
    numbers = call.integers(f"nodes_{side}nodeids")
    leaves = call.integers(f"nodes_{side}leafs")
    if len(leaves) != len(numbers):
        raise ModelError("the attributes of nodes have different lengths")
    for number, leaf in zip(numbers, leaves, strict=True):
        if not 0 <= number < (leaf_count if leaf else count):
            raise ModelError(f"there is no {'leaf' if leaf else 'node'} {number}")
    return [
        number + count if leaf else number
        for number, leaf in zip(numbers, leaves, strict=True)
    ]


def _chain(forest: _Forest, place: int, values: Sequence[float]) -> None:
    """Make a node that asks for one of several values as many nodes that ask for one each."""
    yes, no = forest.accepted[place], forest.refused[place]
    forest.modes[place], forest.thresholds[place] = _EQUAL, values[0]
    for value in values[1:]:
        added = forest.add(
            forest.features[place], value, _EQUAL, missing=forest.missing[place]
        )
        forest.refused[place] = added
        place = added
        forest.accepted[place] = yes
    forest.refused[place] = no


def _member_sets(call: Call, modes: Sequence[int]) -> list[list[float]]:
    values = call.array_attribute("membership_values")
    sets: list[list[float]] = [[]]
    for value in () if values is None else np.asarray(values, np.float64).tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    wanted = sum(mode == _MEMBER for mode in modes)
    if len(sets) < wanted:
        raise ModelError(f"there are {len(sets)} sets of values for {wanted} nodes")
    return sets


def _ensemble(call: Call) -> Tensor:
    e, x = call.maker, call.tensor(0)
    x = x if x.dtype is dtypes.f64 else e.cast(x, dtypes.f32)
    forest, first = _forest_of_nodes(call)
    targets = call.integer("n_targets")
    aggregate = _named(call, "aggregate_function", 1, tuple(_AGGREGATES))
    transform = _named(call, "post_transform", 0, _TRANSFORMS)
    leaf_weights = call.array_attribute("leaf_weights")
    ids = call.integers("leaf_targetids")
    if leaf_weights is None or len(leaf_weights) != len(ids):
        raise ModelError("the attributes of leaves have different lengths")
    numbers: list[float] = np.asarray(leaf_weights, np.float64).tolist()
    entries = [
        (first + place, target, weight)
        for place, (target, weight) in enumerate(zip(ids, numbers, strict=True))
    ]
    total = _aggregated(call, forest, x, entries, targets, aggregate)
    return e.cast(transformed(call, total, transform), call.tensor(0).dtype)


def _named(call: Call, name: str, default: int, known: Sequence[str]) -> str:
    number = call.integer(name, default)
    if not 0 <= number < len(known):
        raise ModelError(f"attribute '{name}' is {number}, expected 0 to {len(known) - 1}")
    return known[number]


ROWS: Final[tuple[Row, ...]] = (
    row("TreeEnsemble", _ensemble, domain=CLASSICAL),
    row("TreeEnsembleClassifier", _classifier, domain=CLASSICAL),
    row("TreeEnsembleRegressor", _regressor, domain=CLASSICAL),
)
