"""Models fitted by scikit-learn, XGBoost and LightGBM, converted to ONNX: as they predict, and as onnxruntime does.

The data sets come with scikit-learn.  Nothing here runs where the libraries are not installed (extra `classical`).
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tilewright.onnx_backend as backend

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
OPSETS = {"": 19, "ai.onnx.ml": 3}


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    return np.ascontiguousarray(x, np.float32), y


def assert_same(actual: Any, expected: Any, tolerance: float = 1e-4) -> None:
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other, tolerance)
        return
    if isinstance(expected, dict):
        assert list(actual) == list(expected)
        actual, expected = list(actual.values()), list(expected.values())
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    if expected.dtype.kind in "OU":
        assert actual.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(
            actual.astype(float), expected.astype(float), rtol=tolerance, atol=tolerance
        )


def check(model: Any, x: np.ndarray, predicted: np.ndarray, name: str) -> None:
    """Our outputs are onnxruntime's, and the first one is what the library predicts."""
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    expected = session.run(None, {name: x})
    actual = backend.run_model(model, [x])
    for one, other in zip(actual, expected, strict=True):
        assert_same(one, other)
    assert_same(np.ravel(actual[0]), np.ravel(predicted), 1e-3)


def pipelines() -> dict[str, tuple[Any, str]]:
    """Estimators by name, with the data that they are fitted on."""
    ensemble = pytest.importorskip("sklearn.ensemble")
    linear = pytest.importorskip("sklearn.linear_model")
    from sklearn.decomposition import PCA
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Binarizer, MinMaxScaler, Normalizer, StandardScaler
    from sklearn.svm import SVC, SVR, LinearSVC
    from sklearn.tree import DecisionTreeClassifier

    logistic = linear.LogisticRegression(max_iter=500)
    return {
        "logistic": (make_pipeline(StandardScaler(), logistic), "iris"),
        "logistic of two": (make_pipeline(MinMaxScaler(), logistic), "breast_cancer"),
        "ridge": (linear.Ridge(), "diabetes"),
        "linear vectors": (LinearSVC(), "breast_cancer"),
        "vectors": (make_pipeline(StandardScaler(), SVC()), "iris"),
        "vectors of two": (make_pipeline(StandardScaler(), SVC(kernel="poly")), "breast_cancer"),
        "vector regression": (make_pipeline(StandardScaler(), SVR()), "diabetes"),
        "tree": (DecisionTreeClassifier(random_state=0), "wine"),
        "forest": (ensemble.RandomForestClassifier(20, random_state=0), "wine"),
        "forest of two": (ensemble.RandomForestClassifier(20, random_state=0), "breast_cancer"),
        "forest regression": (ensemble.RandomForestRegressor(20, random_state=0), "diabetes"),
        "boosting": (ensemble.GradientBoostingClassifier(n_estimators=10), "iris"),
        "boosting of two": (ensemble.GradientBoostingClassifier(n_estimators=10), "breast_cancer"),
        "network": (MLPClassifier(max_iter=50, random_state=0), "iris"),
        "components": (make_pipeline(PCA(2), logistic), "iris"),
        "bayes": (GaussianNB(), "iris"),
        "steps": (make_pipeline(Normalizer(), Binarizer(threshold=0.5), logistic), "iris"),
    }  # fmt: skip


NAMES = (
    "logistic", "logistic of two", "ridge", "linear vectors", "vectors", "vectors of two",
    "vector regression", "tree", "forest", "forest of two", "forest regression", "boosting",
    "boosting of two", "network", "components", "bayes", "steps",
)  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_fitted_estimator_predicts_what_it_predicts(name: str) -> None:
    converter = pytest.importorskip("skl2onnx")
    estimator, source = pipelines()[name]
    x, y = data(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(x, y)
    model = converter.to_onnx(estimator, x[:1], target_opset=OPSETS)
    check(model, x, estimator.predict(x), model.graph.input[0].name)


def test_labels_that_are_strings_come_back_as_strings() -> None:
    converter = pytest.importorskip("skl2onnx")
    ensemble = pytest.importorskip("sklearn.ensemble")
    x, y = data("iris")
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    estimator = ensemble.RandomForestClassifier(10, random_state=0).fit(x, names)
    model = converter.to_onnx(estimator, x[:1], target_opset=OPSETS)
    check(model, x, estimator.predict(x), model.graph.input[0].name)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", ["iris", "breast_cancer", "diabetes"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_boosted_trees_predict_what_they_predict(library: str, source: str) -> None:
    module = pytest.importorskip(library)
    convert = pytest.importorskip("onnxmltools")
    from onnxmltools.convert.common.data_types import FloatTensorType

    x, y = data(source)
    stem, kind = (
        {"xgboost": "XGB", "lightgbm": "LGBM"}[library],
        ("Regressor" if source == "diabetes" else "Classifier"),
    )
    options = {"verbose": -1} if library == "lightgbm" else {}
    estimator = getattr(module, stem + kind)(n_estimators=20, **options).fit(x, y)
    model = getattr(convert, f"convert_{library}")(
        estimator,
        initial_types=[("x", FloatTensorType([None, x.shape[1]]))],
        target_opset=15,
    )
    check(model, x, estimator.predict(x), "x")
