"""Sizes that only a call knows must fit each other: a call with others is refused, and reads no memory that is not its own."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import tilewright
from tilewright.base.errors import InputError, ModelError

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int64)


def model_of(kind, inputs, constants, **attributes):
    """One node of open inputs, {name: (type, rank)}, and constants, in the order of their names."""
    values = [
        helper.make_tensor_value_info(name, type_, [f"{name}{i}" for i in range(rank)])
        for name, (type_, rank) in inputs.items()
    ]
    node = helper.make_node(kind, sorted([*inputs, *constants]), ["y"], **attributes)
    output = helper.make_tensor_value_info("y", FLOAT, None)
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph([node], "g", values, [output], initializer=weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("kind", "constants", "right", "wrong", "attributes"),
    [
        ("InstanceNormalization", {"b": ones(8), "c": ones(8)}, {"a": ones(1, 8, 5)}, {"a": ones(1, 16, 5)}, {}),
        ("GroupNormalization", {"b": ones(8), "c": ones(8)}, {"a": ones(1, 8, 5)}, {"a": ones(1, 16, 5)}, {"num_groups": 2}),
        ("Conv", {"b": ones(4, 8, 3)}, {"a": ones(1, 8, 5)}, {"a": ones(1, 4, 5)}, {}),
        ("ConvTranspose", {"b": ones(8, 4, 3)}, {"a": ones(1, 8, 5)}, {"a": ones(1, 4, 5)}, {}),
        ("ConvTranspose", {"b": ones(8, 1, 4)}, {"a": ones(1, 8, 5)}, {"a": ones(1, 4, 5)}, {"group": 8, "strides": [2]}),
        ("QuantizeLinear", {"b": ones(8)}, {"a": ones(2, 8)}, {"a": ones(2, 16)}, {}),
        ("ReverseSequence", {}, {"a": ones(5, 4), "b": zeros(4) + 2}, {"a": ones(5, 9), "b": zeros(4) + 2}, {}),
        ("GatherElements", {}, {"a": ones(3, 3), "b": zeros(2, 2)}, {"a": ones(3, 3), "b": zeros(2, 9)}, {}),
        ("ScatterElements", {}, {"a": ones(3, 3), "b": zeros(2, 2), "c": ones(2, 2)}, {"a": ones(3, 3), "b": zeros(2, 2), "c": ones(1, 2)}, {}),
        ("ScatterElements", {}, {"a": ones(3, 3), "b": zeros(2, 2), "c": ones(2, 2)}, {"a": ones(3, 3), "b": zeros(2, 9), "c": ones(2, 9)}, {}),
        ("MaxUnpool", {}, {"a": ones(1, 1, 2, 2), "b": zeros(1, 1, 2, 2)}, {"a": ones(1, 1, 2, 2), "b": zeros(1, 1, 1, 2)}, {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("DeformConv", {"b": ones(4, 8, 3, 3)}, {"a": ones(1, 8, 5, 5), "c": ones(1, 18, 3, 3)}, {"a": ones(1, 8, 5, 5), "c": ones(1, 18, 2, 2)}, {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_sizes_that_do_not_fit_are_refused(kind, constants, right, wrong, attributes):
    inputs = {
        name: (INT64 if array.dtype == np.int64 else FLOAT, array.ndim)
        for name, array in right.items()
    }
    model = tilewright.compile(
        model_of(kind, inputs, constants, **attributes), threads=1, jobs=1
    )
    model(**right)
    with pytest.raises(InputError):
        model(**wrong)


@pytest.mark.slow
def test_a_limit_of_one_size_takes_nothing_from_inputs_that_may_be_empty():
    """What data decides may be empty, so other inputs may; that `TopK` needs two elements is asked in each call."""
    nodes = [
        helper.make_node("NonZero", ["z"], ["places"]),
        helper.make_node("Concat", ["past", "new"], ["all"], axis=0),
        helper.make_node("TopK", ["all", "k"], ["y", "order"], axis=0),
    ]
    values = [
        helper.make_tensor_value_info(name, FLOAT, shape)
        for name, shape in (("z", ["q"]), ("past", ["p", 3]), ("new", ["s", 3]))
    ]
    outputs = [
        helper.make_tensor_value_info("y", FLOAT, None),
        helper.make_tensor_value_info("places", INT64, None),
    ]
    k = numpy_helper.from_array(np.array([2], np.int64), "k")
    graph = helper.make_graph(nodes, "g", values, outputs, initializer=[k])
    model = tilewright.compile(
        helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10
        ),
        threads=1,
        jobs=1,
    )
    y, _ = model(z=ones(4), past=ones(0, 3), new=ones(2, 3))
    np.testing.assert_array_equal(y, ones(2, 3))
    with pytest.raises(InputError):
        model(z=ones(4), past=ones(0, 3), new=ones(1, 3))


def test_a_refusal_of_a_size_that_calls_decide_says_how_to_give_it_before() -> None:
    model = model_of("Conv", {"a": (FLOAT, 4), "b": (FLOAT, 4)}, {})
    with pytest.raises(ModelError, match="dynamic kernel size") as caught:
        tilewright.compile(model)
    assert "input_shapes={" in str(caught.value)
    report = tilewright.coverage(model, quick=True)
    assert "input_shapes={" in str(report)
    known = {"b": ("filters", "channels", 2, 1)}
    assert tilewright.coverage(model, quick=True, input_shapes=known).supported
