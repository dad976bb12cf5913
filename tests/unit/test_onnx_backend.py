"""ONNX's interface: values of all kinds at the border, how often a model is compiled, one node alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
import tilewright.onnx_backend as backend
from tilewright.base.errors import InputError, ModelError, UserError

F, S = TensorProto.FLOAT, TensorProto.STRING


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 19, "ai.onnx.ml": 3]>\n{text}'
    )


def sequence_model(
    *nodes: onnx.NodeProto, outputs: list[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    items = helper.make_tensor_sequence_value_info("items", F, None)
    graph = helper.make_graph(list(nodes), "sequences", [items], outputs)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8
    )


def test_a_model_of_tensors_is_compiled_once_and_takes_inputs_by_place_and_by_name() -> (
    None
):
    prepared = backend.prepare(
        model("agraph (float[n] x, float[n] y) => (float[n] z) { z = Sub(x, y) }")
    )
    x, y = np.array([3, 5], np.float32), np.array([1, 1], np.float32)
    np.testing.assert_array_equal(prepared.run([x, y])[0], [2, 4])
    np.testing.assert_array_equal(prepared.run({"y": y, "x": x})[0], [2, 4])
    assert prepared.compilations == 1
    with pytest.raises(InputError, match="got 1 input, expected 2: x y"):
        prepared.run([x])


def test_a_sequence_is_compiled_for_its_items_and_again_for_others() -> None:
    prepared = backend.prepare(
        sequence_model(
            helper.make_node("ConcatFromSequence", ["items"], ["all"], axis=0),
            helper.make_node("SequenceInsert", ["items", "all"], ["longer"]),
            outputs=[helper.make_tensor_sequence_value_info("longer", F, None)],
        )
    )
    assert prepared.compilations == 0
    for sizes in ((2, 1), (1, 1, 3), (2, 1)):
        items = [np.arange(size, dtype=np.float32) for size in sizes]
        (longer,) = prepared.run([items])
        assert isinstance(longer, list)
        assert len(longer) == len(sizes) + 1
        np.testing.assert_array_equal(longer[-1], np.concatenate(items))
    assert prepared.compilations == 2


def test_an_optional_is_there_or_not() -> None:
    inner = helper.make_tensor_type_proto(F, [2])
    info = helper.make_value_info("x", helper.make_optional_type_proto(inner))
    node = helper.make_node("OptionalHasElement", ["x"], ["y"])
    output = helper.make_tensor_value_info("y", TensorProto.BOOL, [])
    graph = helper.make_graph([node], "optional", [info], [output])
    prepared = backend.prepare(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    )
    assert prepared.run([np.ones(2, np.float32)])[0]
    assert not prepared.run([None])[0]


def test_strings_before_and_after_the_compiled_part() -> None:
    found = model(
        """agraph (string[n] word, float[n] x) => (float[n] y, string[n] z) {
             known = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_floats = [1.0, 2.0], default_float = -1.0> (word)
             y = Mul(known, x)
             z = Cast <to = 8> (y)
           }"""
    )
    words, x = np.array(["b", "?", "a"], object), np.array([2, 3, 4.5], np.float32)
    y, z = backend.run_model(found, [words, x])
    np.testing.assert_array_equal(y, np.array([4, -3, 4.5], np.float32))
    assert z.tolist() == ["4.0", "-3.0", "4.5"]


def test_a_model_of_strings_alone_has_nothing_to_compile() -> None:
    found = model(
        "agraph (string[n] a, string[m] b) => (string[k] c) { c = StringConcat(a, b) }"
    )
    (c,) = backend.run_model(
        found, [np.array(["x", "y"], object), np.array([b"\xc3\xa4"], object)]
    )
    assert c.tolist() == ["xä", "yä"]


def test_maps_are_dicts() -> None:
    found = model(
        """agraph (float[n, 2] x) => (float[n, 2] y) {
             y = ai.onnx.ml.Scaler <offset = [1.0, 0.0], scale = [2.0, 1.0]> (x)
           }"""
    )
    zipped = helper.make_node(
        "ZipMap", ["y"], ["z"], domain="ai.onnx.ml", classlabels_strings=["no", "yes"]
    )
    found.graph.node.append(zipped)
    found.graph.output.append(onnx.ValueInfoProto(name="z"))
    _, z = backend.run_model(found, [np.array([[1, 2], [3, 4]], np.float32)])
    assert z == [{"no": 0.0, "yes": 2.0}, {"no": 4.0, "yes": 4.0}]


def test_shapes_that_are_passed_are_compiled_for_their_values() -> None:
    found = model(
        "agraph (float[n, m] x, int64[2] shape) => (float[a, b] y) { y = Reshape(x, shape) }"
    )
    prepared = backend.prepare(found)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for shape in ([3, 2], [1, 6], [3, 2]):
        np.testing.assert_array_equal(
            prepared.run([x, np.array(shape)])[0], x.reshape(shape)
        )
    if prepared.fixed_inputs:
        assert prepared.fixed_inputs == ("shape",)
        assert prepared.compilations == 2


def test_a_loop_that_carries_a_sequence_is_compiled_for_the_trips_of_a_call() -> None:
    prepared = backend.prepare(
        model(
            """agraph (int64 n, float[3] x) => (seq(float[3]) y) {
                 go = Constant<value = bool {1}> ()
                 none = SequenceEmpty ()
                 y = Loop (n, go, none) <body = b (int64 i, bool c, seq(float[3]) s)
                   => (bool c2, seq(float[3]) s2) {
                   f = Cast<to = 1> (i)
                   row = Add (x, f)
                   s2 = SequenceInsert (s, row)
                   c2 = Identity (c)
                 }>
               }"""
        )
    )
    x = np.array([1, 2, 3], np.float32)
    for trips in (2, 0, 3):
        (rows,) = prepared.run([np.array(trips), x])
        assert len(rows) == trips
        for trip, row in enumerate(rows):
            np.testing.assert_array_equal(row, x + trip)
    assert prepared.fixed_inputs == ("n",)


def test_branches_of_different_ranks_are_compiled_for_the_condition_of_a_call() -> None:
    prepared = backend.prepare(
        model(
            """agraph (bool p, float[3] x) => (float[a,b] y) {
                 y = If (p) <
                   then_branch = t () => (float[3,1] a) {
                     last = Constant<value_ints = [1]> ()
                     a = Unsqueeze (x, last)
                   },
                   else_branch = e () => (float[3] b) { b = Neg (x) }
                 >
               }"""
        )
    )
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(prepared.run([np.array(True), x])[0], x[:, None])
    np.testing.assert_array_equal(prepared.run([np.array(False), x])[0], -x)
    assert prepared.fixed_inputs == ("p",)


def test_what_a_compiled_model_cannot_hold_is_refused_by_compile_with_a_way_out() -> None:
    import tilewright as tw

    found = model("agraph (string[n] a) => (string[n] b) { b = StringConcat(a, a) }")
    with pytest.raises(ModelError, match="type string is not supported") as caught:
        tw.compile(found)
    assert "tilewright.onnx_backend.prepare(model)" in str(caught.value)
    made = model("agraph (float[2] a) => (string[2] b) { b = Cast <to = 8> (a) }")
    with pytest.raises(ModelError, match=r"node 'b' \(Cast\): .* computed on the host"):
        tw.compile(made)
    report = tw.coverage(found, quick=True)
    assert report.supported
    assert report.needs_host


def test_coverage_names_the_node_that_the_host_computes_and_no_input_of_ours() -> None:
    import tilewright as tw

    found = model("""agraph (int64[n] a) => (int64[n] c) {
      b = Cast <to = 8> (a)
      c = Cast <to = 7> (b)
    }""")
    report = tw.coverage(found)
    assert [name for name, *_ in report.inputs] == ["a"]
    assert report.needs_host
    assert not report.problems
    assert "strings, maps or labels (at 'b', 'c')" in str(report)


def test_one_node_alone() -> None:
    node = helper.make_node("Clip", ["x", "", "high"], ["y"])
    x = np.array([-1, 5], np.float32)
    (y,) = backend.run_node(node, [x, np.array(2, np.float32)])
    np.testing.assert_array_equal(y, [-1, 2])
    old = helper.make_node("Clip", ["x"], ["y"], min=0.0)
    np.testing.assert_array_equal(backend.run_node(old, [x], opset_version=6)[0], [0, 5])


def test_devices_options_and_models_that_do_not_fit() -> None:
    found = model("agraph (float[2] x) => (float[2] y) { y = Abs(x) }")
    assert backend.supports_device("CPU")
    assert backend.supports_device("CPU:0")
    assert not backend.supports_device("CUDA")
    with pytest.raises(UserError, match="there is no device 'CUDA'"):
        backend.prepare(found, "CUDA")
    with pytest.raises(UserError, match="run has no option 'fast'"):
        backend.prepare(found).run([np.ones(2, np.float32)], fast=True)
    assert backend.is_compatible(found)
    found.graph.node[0].op_type = "Vanish"
    assert not backend.is_compatible(found)


@pytest.mark.parametrize("ir_version", [3, 10])
def test_an_initializer_that_is_an_input_may_have_another_value(ir_version: int) -> None:
    made = model(
        "graph (float[2] x) => (float[2] y) <float[2] w = {2, 3}> { y = Mul(x, w) }"
    )
    made.graph.input.append(helper.make_tensor_value_info("w", F, [2]))
    made.ir_version = ir_version
    prepared = backend.prepare(made)
    x, w = np.array([1, 2], np.float32), np.array([-1, 5], np.float32)
    np.testing.assert_array_equal(prepared.run({"x": x})[0], [2, 6])
    if ir_version == 3:
        with pytest.raises(InputError, match="there is no input 'w'"):
            prepared.run({"x": x, "w": w})
        with pytest.raises(UserError, match="no input of the model"):
            tw.compile(made, input_values={"w": w})
        return
    np.testing.assert_array_equal(prepared.run({"x": x, "w": w})[0], [-1, 10])
    np.testing.assert_array_equal(prepared.run([x])[0], [2, 6])
    np.testing.assert_array_equal(tw.compile(made, input_values={"w": w})(x), [-1, 10])


@pytest.mark.parametrize(
    "given",
    [
        lambda x, y: [x, y],
        lambda x, y: {"y": y, "x": x},
        lambda x, y: [list(x), y],
    ],
)
def test_elements_below_a_mask_are_no_input(given: Callable[..., object]) -> None:
    body = "agraph (float[n, 2] x, float[n, 2] y) => (float[n, 2] z) { z = Sub(x, y) }"
    x, y = np.ma.masked_less(np.arange(4.0, dtype=np.float32).reshape(2, 2), 1), np.ones(2)
    with pytest.raises(InputError, match=r"^input 'x': got Masked\w+ with elements below"):
        backend.prepare(model(body)).run(given(x, y))


def test_elements_below_a_mask_are_no_items_shapes_or_operands_of_a_node() -> None:
    masked = np.ma.masked_equal(np.array([2, 3], np.int64), 3)
    items = sequence_model(
        helper.make_node("ConcatFromSequence", ["items"], ["all"], axis=0),
        outputs=[helper.make_tensor_value_info("all", F, None)],
    )
    shaped = model(
        "agraph (float[6] x, int64[2] s) => (float[a, b] y) { y = Reshape(x, s) }"
    )
    node = helper.make_node("Neg", ["x"], ["y"])
    for call in (
        lambda: backend.run_model(items, [[masked.astype(np.float32)]]),
        lambda: backend.run_model(shaped, [np.zeros(6, np.float32), masked]),
        lambda: backend.run_node(node, [masked]),
    ):
        with pytest.raises(
            InputError, match="got MaskedArray with elements below its mask"
        ):
            call()
