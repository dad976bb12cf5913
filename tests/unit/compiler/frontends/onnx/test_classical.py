"""Classical machine learning against onnxruntime on random data: encoders, linear models, trees, vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilewright.onnx_backend as backend
from tilewright.base.errors import InputError, ModelError

TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64, "O": TensorProto.STRING}
RNG = np.random.default_rng(7)


def single(
    op: str, inputs: list[np.ndarray], outputs: int, *, opset: int = 3, **attributes: Any
) -> onnx.ModelProto:
    names = [f"x{i}" for i in range(len(inputs))]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, domain="ai.onnx.ml", **attributes)
    infos = [
        helper.make_tensor_value_info(n, TYPES[x.dtype.kind], [None, *x.shape[1:]])
        for n, x in zip(names, inputs, strict=True)
    ]
    graph = helper.make_graph(
        [node], op, infos, [onnx.ValueInfoProto(name=r) for r in results]
    )
    imports = [helper.make_opsetid("", 19), helper.make_opsetid("ai.onnx.ml", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def check(op: str, *inputs: np.ndarray, outputs: int = 1, **attributes: Any) -> None:
    found = single(op, list(inputs), outputs, **attributes)
    session = onnxruntime.InferenceSession(
        found.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, {f"x{i}": x for i, x in enumerate(inputs)})
    actual = backend.run_model(found, list(inputs))
    for got, want in zip(actual, expected, strict=True):
        assert got.shape == want.shape
        if want.dtype.kind in "OU":
            assert got.tolist() == want.tolist()
        else:
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


def table(rows: int, columns: int) -> np.ndarray:
    return RNG.normal(0, 1, (rows, columns)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, pytest.param(7, marks=pytest.mark.slow)])
def test_features_are_scaled_normalized_and_cut(rows: int) -> None:
    x = table(rows, 5)
    check("Scaler", x, offset=[0.5] * 5, scale=[1.0, 2.0, 3.0, -1.0, 0.0])
    for norm in ("L1", "L2"):
        check("Normalizer", x, norm=norm)
    check("Normalizer", np.abs(x), norm="MAX")
    check("Binarizer", x, threshold=0.1)
    check("FeatureVectorizer", x, table(rows, 2), inputdimensions=[5, 2])
    check("ArrayFeatureExtractor", x, np.array([4, 0, 0]))
    lost = np.where(x > 0.5, np.float32(np.nan), x)
    check("Imputer", lost, imputed_value_floats=[9.0], replaced_value_float=float("nan"))


@pytest.mark.slow
def test_labels_are_looked_up_whatever_they_are() -> None:
    words = np.array([["b", "?"], ["a", "b"]], object)
    numbers = np.array([[3, 1], [-5, 2]])
    reals = np.array([0.5, np.nan, 2], np.float32)
    check(
        "LabelEncoder",
        words,
        keys_strings=["a", "b"],
        values_int64s=[4, 5],
        default_int64=-7,
    )
    check("LabelEncoder", words, keys_strings=["a", "b"], values_strings=["x", "y"])
    check("LabelEncoder", numbers, keys_int64s=[1, 2], values_strings=["x", "y"])
    check("LabelEncoder", numbers, keys_int64s=[1, 3], values_floats=[0.5, 1.5])
    check("LabelEncoder", reals, keys_floats=[0.5, 2.0], values_int64s=[1, 2])
    check("OneHotEncoder", numbers, cats_int64s=[1, 2, 3])
    check("OneHotEncoder", words, cats_strings=["b", "a"])
    for opset in (3, 4):  # where a NaN is no key, and where it is
        for options in ({"values_strings": ["x", "y"]}, {"values_int64s": [1, 2]}):
            check("LabelEncoder", reals, opset=opset, keys_floats=[2.0, np.nan], **options)
    check("CategoryMapper", words, cats_int64s=[1, 2], cats_strings=["a", "b"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("known", "other", "options"),
    [
        ([3, 1], 2, {"cats_int64s": [1, 2, 3][::2]}),
        (["b", "a"], "c", {"cats_strings": ["b", "a"]}),
    ],
)
def test_a_category_that_is_not_known_fails_the_call_where_the_model_says_so(
    known: list[Any], other: Any, options: dict[str, Any]
) -> None:
    """As scikit-learn's encoder is exported whose unknown categories are an error, its default."""
    kind = object if isinstance(other, str) else np.int64
    rows = np.array([known, known[::-1]], kind)
    check("OneHotEncoder", rows, zeros=0, **options)
    check("OneHotEncoder", rows[:, 0], zeros=0, **options)
    check("OneHotEncoder", rows[:0], zeros=0, **options)
    strange = np.array([known, [known[0], other]], kind)
    with pytest.raises(InputError, match="expected at most 0"):
        backend.run_model(
            single("OneHotEncoder", [strange], 1, zeros=0, **options), [strange]
        )


@pytest.mark.slow
@pytest.mark.parametrize("transform", ["SOFTMAX", "NONE", "LOGISTIC"])
def test_linear_models(transform: str) -> None:
    x = table(9, 4)
    factors = table(3, 4).reshape(-1).tolist()
    check("LinearRegressor", x, coefficients=factors, intercepts=[0.1, 0.2, 0.3], targets=3,
          post_transform=transform)  # fmt: skip
    for labels in (
        {"classlabels_ints": [5, 7, -1]},
        {"classlabels_strings": ["a", "b", "c"]},
    ):
        check("LinearClassifier", x, outputs=2, coefficients=factors,
              intercepts=[0.1, 0.2, 0.3], post_transform=transform, **labels)  # fmt: skip


def random_trees(count: int, depth: int, features: int, mode: str) -> dict[str, list[Any]]:
    """Nodes of complete trees whose leaves come early now and then."""
    columns: dict[str, list[Any]] = {
        f"nodes_{c}": []
        for c in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids",
                  "falsenodeids", "missing_value_tracks_true")
    }  # fmt: skip
    for tree in range(count):
        for node in range(2 ** (depth + 1) - 1):
            is_leaf = node >= 2**depth - 1
            row = (tree, node, int(RNG.integers(features)), float(RNG.normal()),
                   "LEAF" if is_leaf else mode, 0 if is_leaf else 2 * node + 1,
                   0 if is_leaf else 2 * node + 2, int(RNG.integers(2)))  # fmt: skip
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return columns


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["BRANCH_LT", "BRANCH_LEQ", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ"]
)
def test_trees_of_every_comparison(mode: str) -> None:
    nodes = random_trees(4, 3, 5, mode)
    leaves = [(t, n) for t, n, m in zip(nodes["nodes_treeids"], nodes["nodes_nodeids"],
                                        nodes["nodes_modes"], strict=True) if m == "LEAF"]  # fmt: skip
    places = {"treeids": [t for t, _ in leaves], "nodeids": [n for _, n in leaves]}
    x = table(13, 5)
    x[3, :] = np.nan
    x[4, 1] = nodes["nodes_values"][0]
    # Every leaf says something of every target: onnxruntime forgets what is added to the others.
    ids = [0, 1, 2] * len(leaves)
    weights = RNG.normal(0, 1, len(ids)).tolist()
    thrice = {k: [p for p in v for _ in range(3)] for k, v in places.items()}
    targets = {f"target_{k}": v for k, v in thrice.items()} | {"target_ids": ids}
    check("TreeEnsembleRegressor", x, **nodes, **targets, target_weights=weights, n_targets=3,
          base_values=[0.5, 0.0, -1.0])  # fmt: skip
    classes = {f"class_{k}": v for k, v in thrice.items()} | {"class_weights": weights}
    check("TreeEnsembleClassifier", x, outputs=2, **nodes, **classes, class_ids=ids,
          classlabels_strings=["a", "b", "c"], post_transform="SOFTMAX")  # fmt: skip
    one = {f"class_{k}": v for k, v in places.items()} | {"class_ids": [0] * len(leaves)}
    check("TreeEnsembleClassifier", x, outputs=2, **nodes, **one,
          class_weights=weights[: len(leaves)], classlabels_int64s=[4, 9],
          post_transform="LOGISTIC")  # fmt: skip


@pytest.mark.thinned(2)
@pytest.mark.parametrize("targets", [1, 2])
def test_weights_that_a_leaf_says_twice(targets: int) -> None:
    """Of one target the first counts, of several their sum: converters number leaves once per class."""
    nodes = random_trees(2, 2, 3, "BRANCH_LEQ")
    leaves = [(t, n) for t, n, m in zip(nodes["nodes_treeids"], nodes["nodes_nodeids"],
                                        nodes["nodes_modes"], strict=True) if m == "LEAF"]  # fmt: skip
    thrice = [leaf for leaf in leaves for _ in range(3)]
    ids = [min(i % 3, targets - 1) for i in range(len(thrice))]
    check("TreeEnsembleRegressor", table(9, 3), **nodes, n_targets=targets, target_ids=ids,
          target_treeids=[t for t, _ in thrice], target_nodeids=[n for _, n in thrice],
          target_weights=RNG.normal(0, 1, len(ids)).tolist())  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.thinned(11)
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(
    ("targets", "said"),
    [
        (3, [(0, 1, 0, 3.0), (0, 2, 1, -2.0), (1, 1, 1, 5.0), (1, 2, 2, -7.0)]),
        (2, [(0, 1, 0, 3.0), (0, 1, 0, 1.0), (0, 1, 1, -4.0), (0, 1, 1, -6.0), (0, 2, 1, -2.0),
             (1, 1, 1, 5.0), (1, 1, 1, 2.0), (1, 2, 0, -7.0), (1, 2, 0, -9.0)]),
        (2, [(0, 1, 0, np.inf), (0, 2, 0, -np.inf), (1, 1, 0, 2.0), (1, 2, 1, np.inf), (1, 2, 1, 3.0)]),
        (1, [(0, 1, 0, 3.0), (1, 1, 0, 5.0), (1, 2, 0, -7.0)]),
        (1, [(0, 1, 0, -3.0), (0, 1, 0, 4.0), (0, 2, 0, -1.0), (1, 2, 0, -7.0)]),
    ],
)  # fmt: skip
def test_weights_are_aggregated_and_what_no_leaf_speaks_of_is_0(
    aggregate: str, targets: int, said: list[tuple[int, int, int, float]]
) -> None:
    """Several weights of one leaf and target, and rows none of whose leaves speaks of a target."""
    nodes = random_trees(2, 1, 2, "BRANCH_LEQ") | {
        "nodes_featureids": [0, 0, 0, 1, 0, 0],
        "nodes_values": [0.0] * 6,
    }
    trees, numbers, ids, weights = zip(*said, strict=True)
    x = np.array([[-1, -1], [-1, 1], [1, -1], [1, 1]], np.float32)
    check("TreeEnsembleRegressor", x, **nodes, n_targets=targets, aggregate_function=aggregate,
          target_treeids=trees, target_nodeids=numbers, target_ids=ids, target_weights=weights)  # fmt: skip


def test_trees_that_are_none_are_refused() -> None:
    nodes = random_trees(1, 1, 2, "BRANCH_LEQ")
    leaves = {"target_treeids": [0], "target_nodeids": [1], "target_ids": [0]}
    common = {**leaves, "target_weights": [1.0], "n_targets": 1}
    x = table(2, 2)
    for column, value, words in (
        ("nodes_truenodeids", [7, 0, 0], "tree 0 has no node 7"),
        ("nodes_truenodeids", [0, 0, 0], None),
        ("nodes_featureids", [5, 0, 0], "asks for feature 5 of 2"),
        ("nodes_values", [1.0], "different lengths"),
    ):
        found = single(
            "TreeEnsembleRegressor", [x], 1, **{**nodes, column: value}, **common
        )
        if words is None:  # a root that is its own child is a leaf
            assert backend.run_model(found, [x])[0].shape == (2, 1)
            continue
        with pytest.raises(ModelError, match=words):
            backend.prepare(found)


def test_a_cycle_of_nodes_is_refused() -> None:
    nodes = random_trees(1, 2, 2, "BRANCH_LEQ")
    nodes["nodes_truenodeids"][1] = 0
    leaves = {"target_treeids": [0], "target_nodeids": [6], "target_ids": [0]}
    found = single("TreeEnsembleRegressor", [table(2, 2)], 1, **nodes, **leaves,
                   target_weights=[1.0], n_targets=1)  # fmt: skip
    with pytest.raises(ModelError, match="a tree has a cycle"):
        backend.prepare(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*op 'couple_probabilities' has no kernel")
@pytest.mark.parametrize(
    "kernel",
    [
        "RBF",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("LINEAR", "POLY", "SIGMOID")),
    ],
)
def test_support_vectors(kernel: str) -> None:
    x, vectors = table(11, 3), table(6, 3)
    common = {"kernel_type": kernel, "kernel_params": [0.3, 0.1, 2.0],
              "support_vectors": vectors.reshape(-1).tolist()}  # fmt: skip
    check(
        "SVMRegressor",
        x,
        **common,
        coefficients=table(1, 6)[0].tolist(),
        rho=[0.2],
        n_supports=6,
    )
    check("SVMClassifier", x, outputs=2, **common, coefficients=table(2, 6).reshape(-1).tolist(),
          rho=[0.1, -0.2, 0.05], vectors_per_class=[1, 2, 3], classlabels_ints=[3, 4, 8],
          prob_a=[-1.0, -2.0, -0.5], prob_b=[0.1, 0.0, -0.1])  # fmt: skip
