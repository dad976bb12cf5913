"""Values at the border of a model, taken apart to tensors and put together again."""

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.border import (
    Border,
    items_of,
    needs_items,
    put_together,
    take_apart,
)
from tilewright.compiler.frontends.onnx.signature import Dimensions
from tilewright.compiler.frontends.onnx.values import HostValue, Nothing, TensorSequence
from tilewright.compiler.graph.ir import Graph

TENSOR = helper.make_tensor_type_proto(TensorProto.FLOAT, ["n", 2])
TEXT = helper.make_tensor_type_proto(TensorProto.STRING, [3])
SEQUENCE = helper.make_sequence_type_proto(
    helper.make_tensor_type_proto(TensorProto.FLOAT, None)
)
OPTIONAL = helper.make_optional_type_proto(TENSOR)
MAP = helper.make_map_type_proto(TensorProto.INT64, TENSOR)
MAPS = helper.make_sequence_type_proto(MAP)


def value(type_: object, name: str = "x") -> ValueInfoProto:
    return helper.make_value_info(name, type_)


def bound(
    type_: object, items: dict[str, object] | None = None
) -> tuple[object, Border, Graph]:
    graph, border, info = Graph("border"), Border(items or {}), value(type_)
    held = border.bind(info, Dimensions([info], None, None), NodeMaker(graph))
    return held, border, graph


def test_a_tensor_is_one_input() -> None:
    held, border, graph = bound(TENSOR)
    assert isinstance(held, Tensor)
    assert [v.name for v in graph.inputs] == ["x"]
    assert border.inputs == {"x": "x"}


def test_strings_and_maps_stay_with_the_host() -> None:
    for type_, shape in ((TEXT, (3,)), (MAP, None), (MAPS, None)):
        held, border, graph = bound(type_)
        assert isinstance(held, HostValue)
        assert (held.name, held.shape) == ("x", shape)
        assert (border.inputs, graph.inputs) == ({"x": "x"}, [])


def test_a_sequence_is_an_input_for_each_item() -> None:
    held, border, graph = bound(SEQUENCE, {"x": [(2, 3), ()]})
    assert isinstance(held, TensorSequence)
    assert held.dtype is dtypes.f32
    assert [(v.name, v.type.shape) for v in graph.inputs] == [("x.0", (2, 3)), ("x.1", ())]
    assert border.inputs == {"x": ("x.0", "x.1")}


def test_an_optional_is_there_or_not() -> None:
    held, border, graph = bound(OPTIONAL, {"x": None})
    assert isinstance(held, Nothing)
    assert (border.inputs, graph.inputs) == ({"x": None}, [])
    held, border, _ = bound(OPTIONAL, {"x": (4, 2)})
    assert isinstance(held, Tensor)
    assert (held.shape, border.inputs) == ((4, 2), {"x": "x"})


def test_a_sequence_of_which_nothing_is_known_is_refused_with_a_way_out() -> None:
    with pytest.raises(UnsupportedError, match="type sequence") as caught:
        bound(SEQUENCE)
    assert "onnx_backend" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("type_", "wanted"),
    [(TENSOR, False), (TEXT, False), (MAPS, False), (SEQUENCE, True), (OPTIONAL, True)],
)
def test_what_consists_of_tensors_is_compiled_for_a_call(
    type_: object, wanted: bool
) -> None:
    assert needs_items(type_) is wanted


def test_what_is_known_of_values_is_their_structure() -> None:
    assert items_of(None) is None
    assert items_of(3.0) == ()
    assert items_of([np.zeros((2, 0)), [np.zeros(1)]]) == [(2, 0), [(1,)]]


def test_values_come_apart_and_together() -> None:
    structure = ("a", None, ("b", "c"))
    given = [np.ones(2), None, [np.zeros(1), np.array(5)]]
    found: dict[str, object] = {}
    take_apart(given, structure, found)
    assert list(found) == ["a", "b", "c"]
    again = put_together(structure, found)
    assert again[1] is None
    np.testing.assert_array_equal(again[0], given[0])
    np.testing.assert_array_equal(again[2][1], 5)


def test_text_and_maps_are_taken_as_they_are() -> None:
    found: dict[str, object] = {}
    take_apart([b"a", "b"], "t", found)
    assert found["t"] == [b"a", "b"]  # a list is a sequence: of maps
    take_apart(np.array([b"a", "b"], object), "t", found)
    assert found["t"].tolist() == ["a", "b"]
    take_apart({1: 2.0}, "m", found)
    assert found["m"] == {1: 2.0}


@pytest.mark.parametrize(("given", "count"), [(None, 0), ([1, 2, 3], 3)])
def test_another_number_of_items_is_the_callers_error(given: object, count: int) -> None:
    with pytest.raises(InputError, match=f"has {count} items, expected 2"):
        take_apart(given, ("a", "b"), {})


def test_outputs_say_where_their_tensors_are() -> None:
    e, border = NodeMaker(Graph("outputs")), Border()
    outputs: dict[str, Tensor] = {}

    def output(tensor: Tensor, key: str) -> None:
        outputs[key] = tensor

    x = e.constant(np.ones(2, np.float32))
    assert border.expose(x, "y", output) == "y"
    assert border.expose(Nothing(), "n", output) is None
    assert border.expose(TensorSequence((x, x), dtypes.f32), "s", output) == ("s.0", "s.1")
    assert border.expose(HostValue("words"), "t", output) == "words"
    assert list(outputs) == ["y", "s.0", "s.1"]
    constant = HostValue("", (1,), constant=np.array(["a"], object))
    assert border.expose(constant, "c", output) == "c"
    values: dict[str, object] = {}
    border.host.after[0].run(values)
    assert values["c"].tolist() == ["a"]
