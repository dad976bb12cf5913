"""What a call with the wrong tensors says: which input, what it got, what it wanted."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tilewright as tw
from tilewright.base.errors import InputError


@pytest.fixture(scope="module")
def model() -> tw.Model:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[N,3] data, float[3] scale) => (y) { y = Mul (data, scale) }"
    )
    return tw.compile(proto)


GOOD = np.zeros((2, 3), np.float32)
SCALE = np.zeros(3, np.float32)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((), "got 0 inputs, expected 2: data, scale"),
        ((GOOD,), "got 1 inputs, expected 2: data, scale"),
        ((GOOD, SCALE, SCALE), "got 3 inputs, expected 2: data, scale"),
        (
            (GOOD.astype(np.float64), SCALE),
            (
                "input 'data': got f64[2, 3], expected f32[N, 3] with N = 2\n"
                "hint: convert it with .astype('float32')"
            ),
        ),
        (
            (GOOD, np.zeros(4, np.float32)),
            "input 'scale': got f32[4], expected f32[3]",
        ),
        ((GOOD[0], SCALE), "input 'data': got f32[3], expected f32[N, 3]"),
        (
            (np.zeros((0, 4), np.float32), SCALE),
            "input 'data': got f32[0, 4], expected f32[N, 3] with N = 0",
        ),
        (("text", SCALE), "input 'data': got str, expected an array"),
        ((object(), SCALE), "input 'data': got object, expected an array"),
        (([[1.0], [1.0, 2.0]], SCALE), "input 'data': got list, expected an array"),
    ],
)
def test_a_call_that_does_not_fit_names_the_input(
    model: tw.Model, arguments: tuple[object, ...], text: str
) -> None:
    with pytest.raises(InputError) as caught:
        model(*arguments)
    assert str(caught.value) == text


def test_unknown_and_missing_names_are_listed(model: tw.Model) -> None:
    with pytest.raises(InputError) as caught:
        model(data=GOOD, scael=SCALE)
    assert str(caught.value) == ("there is no input 'scael'\nhint: did you mean 'scale'?")
    with pytest.raises(InputError) as caught:
        model(data=GOOD)
    assert str(caught.value) == "inputs ['scale'] are missing"
    with pytest.raises(InputError) as caught:
        model(GOOD, data=GOOD)
    assert str(caught.value) == "input 'data' is given by position and by name"


def test_a_size_of_0_where_a_row_must_be_names_the_dimension() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[N,3] data, float[M,3] other) => (y) {"
        " begin = Constant<value_ints = [0]>() end = Constant<value_ints = [1]>()"
        " row = Slice(data, begin, end) y = Add(row, other) }"
    )
    with pytest.raises(InputError) as caught:
        tw.compile(proto)(np.zeros((0, 3), np.float32), np.zeros((4, 3), np.float32))
    text = "input 'data': dimension 'N' (axis 0) is 0, expected at least 1"
    assert str(caught.value) == text


def test_an_input_may_have_any_name() -> None:
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["" : 21]>'
        "g (float[2] self, float[2] arguments) => (y) { y = Sub (self, arguments) }"
    )
    model = tw.compile(proto)
    one, two = np.ones(2, np.float32), np.full(2, 2, np.float32)
    for call in (model, model.session, lambda **named: model.begin(**named).result()):
        np.testing.assert_array_equal(call(self=two, arguments=one), one)
    assert len(model.profile(self=two, arguments=one)) == 1
