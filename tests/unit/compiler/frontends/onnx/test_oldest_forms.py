"""Nodes of opsets before 6, and operators that ONNX gave up, beside what their descriptions say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

from fakes import onnx_models
from tilewright.base.errors import ModelError

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


X, PICTURE = floats(2, 3, 4), floats(2, 3, 5, 4)
ROW = floats(3)
FIRST_HALF = np.array([1, 3], np.float32)
OLD: list[tuple[str, Sequence[np.ndarray], dict[str, object], np.ndarray]] = [
    ("Relu", [X], {"consumed_inputs": [0]}, np.maximum(X, 0)),
    ("Add", [X, ROW], {"broadcast": 1, "axis": 1, "consumed_inputs": [0, 0]}, X + ROW[:, None]),
    ("Sum", [X, X, X], {"consumed_inputs": [0, 0, 0]}, 3 * X),
    ("Clip", [X], {"max": 0.5, "consumed_inputs": [0]}, np.minimum(X, 0.5)),
    ("Cast", [X], {"to": "INT32"}, X.astype(np.int32)),
    ("Cast", [X], {"to": "double"}, X.astype(np.float64)),
    ("Reshape", [X], {"shape": [0, -1], "consumed_inputs": [0]}, X.reshape(2, 12)),
    ("Concat", [X, X], {}, np.concatenate([X, X], 1)),
    ("Concat", [X, X], {"axis": 2}, np.concatenate([X, X], 2)),
    ("Pad", [X], {"paddings": [0, 1, 0, 2, 0, 0]}, np.pad(X, ((0, 2), (1, 0), (0, 0)))),
    ("Split", [X, FIRST_HALF], {"axis": 2}, X[..., :1]),
    ("Tile", [X, np.float32(2), np.float32(1)], {}, np.tile(X, (1, 2, 1))),
    ("Dropout", [X], {"is_test": 1, "consumed_inputs": [0]}, X),
    ("GlobalLpPool", [PICTURE], {"p": 1.0}, np.abs(PICTURE).sum((2, 3), keepdims=True)),
    (
        "Selu", [X], {"gamma": 1.0},
        np.where(X > 0, X, 1.6732 * np.expm1(X)).astype(np.float32),
    ),
    (
        "Upsample", [PICTURE], {"height_scale": 2.0, "width_scale": 3.0, "mode": "nearest"},
        PICTURE.repeat(2, 2).repeat(3, 3),
    ),
]  # fmt: skip


# Up to which opset the form of the case is the one there; 5 where nothing is said.
UNTIL = {"GlobalLpPool": 1, "Pad": 1, "Reshape": 4, "Split": 1}


def cases() -> list[object]:
    found: list[object] = []
    for case in OLD:
        op, _, attributes, _ = case
        last = 3 if op == "Concat" and not attributes else UNTIL.get(op, 5)
        found += [pytest.param(case, n, id=f"{op}-{n}") for n in sorted({1, last})]
    return found


@pytest.mark.parametrize(("case", "opset"), cases())
def test_what_had_another_form_means_what_it_meant(
    case: tuple[str, Sequence[np.ndarray], dict[str, object], np.ndarray], opset: int
) -> None:
    op, arrays, attributes, wanted = case
    constants = tuple(range(1, len(arrays))) if op in {"Split", "Tile"} else ()
    outputs = 2 if op == "Split" else 1
    given = {"opset": opset, "constants": constants, "outputs": outputs, **attributes}
    found = onnx_models.run_node(op, arrays, **given)[0]
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Cast", {"to": "WORD"}, "is 'WORD', which is no type"),
        ("Reshape", {}, "attribute 'shape' is missing"),
        ("GlobalLpPool", {"p": 1.5}, "is 1.5, expected a whole number"),
        ("Upsample", {}, "attribute 'height_scale' is missing"),
    ],
)
def test_old_attributes_that_mean_nothing_are_refused(
    op: str, attributes: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        onnx_models.run_node(op, [PICTURE], opset=1, **attributes)


def test_operands_that_became_attributes_have_to_be_constants() -> None:
    with pytest.raises(ModelError, match="the sizes of an operator of such an opset"):
        onnx_models.run_node("Split", [X, FIRST_HALF], opset=1, outputs=2, axis=2)


@pytest.mark.parametrize("opset", [7, 8])
def test_statistics_of_every_place_of_a_channel(opset: int) -> None:
    parts = [floats(3, 5, 4) for _ in range(3)] + [np.abs(floats(3, 5, 4)) + 0.1]
    scale, bias, mean, variance = parts
    wanted = (PICTURE - mean) / np.sqrt(variance + 1e-5) * scale + bias
    (found,) = onnx_models.run_node(
        "BatchNormalization", [PICTURE, *parts], opset=opset, spatial=0
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


# --- operators that ONNX gave up, beside onnxruntime


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Affine", {"alpha": 2.0, "beta": 0.5}),
        ("Crop", {"border": [1, 2, 0, 1]}),
        ("Crop", {"border": [1, 2, 0, 1], "scale": [2, 1]}),
        ("ImageScaler", {"scale": 2.0, "bias": [1.0, 2.0, 3.0]}),
        ("MeanVarianceNormalization", {}),
        ("MeanVarianceNormalization", {"across_channels": 1}),
        ("MeanVarianceNormalization", {"across_channels": 1, "normalize_variance": 0}),
        ("MeanVarianceNormalization", {"normalize_variance": 0}),
        ("ParametricSoftplus", {"alpha": 2.0, "beta": 0.5}),
        ("Scale", {"scale": 2.0}),
        ("ScaledTanh", {"alpha": 2.0, "beta": 0.5}),
    ],
)
def test_operators_that_onnx_gave_up(op: str, attributes: dict[str, object]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_models.one_node(op, [PICTURE], opset=7, **attributes)
    del model.graph.output[:]
    model.graph.output.append(
        helper.make_tensor_value_info("y0", onnx.TensorProto.FLOAT, None)
    )
    (wanted,) = runtime.InferenceSession(model.SerializeToString()).run(
        None, {"x0": PICTURE}
    )
    (found,) = onnx_models.run_node(op, [PICTURE], opset=7, **attributes)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_a_bias_of_other_channels_is_refused() -> None:
    with pytest.raises(ModelError, match="expected one of each channel"):
        onnx_models.run_node("ImageScaler", [PICTURE], opset=7, bias=[1.0])


@pytest.mark.parametrize("is_data", [False, True])
def test_the_nearest_pixel_of_the_first_resize_is_rounded_up_where_an_axis_gets_shorter(
    is_data: bool,
) -> None:
    """As in the case `resize_downsample_nearest` of that opset."""
    picture = np.arange(1, 9, dtype=np.float32).reshape(1, 1, 2, 4)
    for scales, wanted in (
        ((0.6, 0.6), [[1, 3]]),
        ((1, 0.7), [[1, 3], [5, 7]]),
        ((2, 0.6), [[1, 3], [1, 3], [5, 7], [5, 7]]),
        ((1.5, 1.3), [[1, 1, 2, 3, 4], [1, 1, 2, 3, 4], [5, 5, 6, 7, 8]]),
    ):
        numbers = np.array([1, 1, *scales], np.float32)
        constants = [] if is_data else [1]
        (found,) = onnx_models.run_node(
            "Resize", [picture, numbers], constants=constants, opset=10
        )
        assert found[0, 0].tolist() == wanted
