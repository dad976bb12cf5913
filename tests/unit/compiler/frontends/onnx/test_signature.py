import numpy as np
import pytest
from onnx import TensorProto, TypeProto, ValueInfoProto, helper

from tilewright.base import dtypes, symbolic
from tilewright.base.errors import InputError, ModelError, UserError
from tilewright.base.symbolic import Dim
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.onnx.signature import (
    Dimensions,
    InputShapes,
    described,
    fixed_value,
    type_proto,
)
from tilewright.compiler.graph.schema import TensorType


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_a_number_fills_an_input_of_one_element(shape: tuple[int, ...]) -> None:
    found = fixed_value("n", 3, TensorType(dtypes.i32, shape))
    assert (found.tolist(), found.shape) == (np.full(shape, 3).tolist(), shape)


@pytest.mark.parametrize("shape", [(2,), (0,), (1, 2), (symbolic.symbol("n"),)])
def test_a_number_fills_no_input_of_several_elements(shape: tuple[Dim, ...]) -> None:
    with pytest.raises(UserError, match=r"input_values has shape \[\], expected i32"):
        fixed_value("n", 3, TensorType(dtypes.i32, shape))


def test_rows_of_one_element_are_no_number() -> None:
    with pytest.raises(UserError, match=r"input_values has shape \[1\], expected i32\[\]"):
        fixed_value("n", [3], TensorType(dtypes.i32, ()))


def info(name: str, *dims: object, dtype: int = TensorProto.FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(dims))


def types(*inputs: ValueInfoProto, overrides: InputShapes | None = None) -> list[str]:
    dimensions = Dimensions(inputs, overrides)
    return [str(dimensions.type_of(v)) for v in inputs]


def test_named_dimensions_are_shared_between_inputs() -> None:
    assert types(info("a", "batch", 3), info("b", 3, "batch")) == [
        "f32[batch, 3]",
        "f32[3, batch]",
    ]


def test_every_symbol_is_at_least_one() -> None:
    value = info("a", "batch")
    (dim,) = Dimensions([value]).type_of(value).shape
    assert symbolic.bounds(dim) == (1, None)


def test_unnamed_dimensions_are_named_after_their_input() -> None:
    assert types(info("x", None, 2, None)) == ["f32[x_d0, 2, x_d2]"]


def test_names_that_are_no_identifiers_become_unique_ones() -> None:
    assert types(info("a", "batch-size", "batch size", "0")) == [
        "f32[batch_size, batch_size_1, _0]"
    ]


@pytest.mark.parametrize("sign", ["?", "*", "-1", "None"])
def test_a_sign_for_any_size_is_no_name(sign: str) -> None:
    """Paddle's exporter writes `?` for each dimension that it does not know."""
    assert types(info("x", sign, 3, sign), info("y", sign)) == [
        "f32[x_d0, 3, x_d2]",
        "f32[y_d0]",
    ]


def test_an_expression_of_known_dimensions_is_understood() -> None:
    assert types(
        info("x", "seq"), info("past", "past_len"), info("m", "past_len + seq")
    ) == [
        "f32[seq]",
        "f32[past_len]",
        "f32[(past_len + seq)]",
    ]


def test_an_expression_of_unknown_dimensions_is_a_symbol_of_its_own() -> None:
    assert types(info("m", "past_len + seq")) == ["f32[past_len_seq]"]


def test_a_number_for_a_named_dimension_holds_everywhere() -> None:
    found = types(info("a", "n", 4), info("b", "n"), overrides={"b": [8]})
    assert found == ["f32[8, 4]", "f32[8]"]


def test_dimensions_can_be_renamed_and_fixed_per_input() -> None:
    found = types(info("a", None, None), overrides={"a": ["rows", 5]})
    assert found == ["f32[rows, 5]"]


def test_a_shape_can_be_given_where_the_model_has_none() -> None:
    value = ValueInfoProto(name="a")
    value.type.tensor_type.elem_type = TensorProto.FLOAT
    with pytest.raises(UnsupportedError, match="even its rank"):
        Dimensions([value]).type_of(value)
    assert types(value, overrides={"a": [2, "n"]}) == ["f32[2, n]"]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"c": [1]}, "no input of the model"),
        ({"a": [1]}, "has rank 1, the model has 2"),
        ({"a": [1, 5]}, "has 5 for axis 1, the model has 4"),
        ({"a": [1, 4], "b": [2]}, "gives dimension 'n' as 1 and as 2"),
    ],
)
def test_overrides_that_do_not_fit_the_model_are_refused(
    overrides: InputShapes, message: str
) -> None:
    with pytest.raises(UserError, match=message):
        types(info("a", "n", 4), info("b", "n"), overrides=overrides)


def test_inputs_that_are_no_tensors_are_unsupported() -> None:
    value = ValueInfoProto(name="a", type=TypeProto(sequence_type=TypeProto.Sequence()))
    with pytest.raises(UnsupportedError, match="type sequence"):
        Dimensions([value]).type_of(value)


@pytest.mark.parametrize("rank", [64, 65])
def test_an_input_has_no_more_axes_than_an_array(rank: int) -> None:
    value = info("a", *[1] * rank)
    if rank == 64:
        assert Dimensions([value]).type_of(value).rank == rank
        return
    with pytest.raises(ModelError, match="the shape has 65 axes, expected at most 64"):
        Dimensions([value]).type_of(value)


def test_a_type_survives_the_way_to_onnx_and_back() -> None:
    value = info("a", "n", 4)
    type_ = Dimensions([value]).type_of(value)
    assert str(described(type_proto(type_, TensorProto.FLOAT))) == "f32[n, 4]"


def test_values_below_a_mask_are_none_of_an_input() -> None:
    wanted = TensorType(dtypes.f32, (2,))
    with pytest.raises(InputError, match="got MaskedArray with elements below its mask"):
        fixed_value("x", np.ma.masked_equal([1.0, 2.0], 2), wanted)
    assert fixed_value("x", np.ma.masked_array([1.0, 2.0]), wanted).tolist() == [1, 2]
