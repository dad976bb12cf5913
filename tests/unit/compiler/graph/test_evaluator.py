import dataclasses

import numpy as np
import pytest

from fakes import tiny_ops
from tilewright.base import symbolic
from tilewright.base.errors import InputError, InternalError, ModelError
from tilewright.compiler.graph.evaluator import bind_dims, evaluate
from tilewright.compiler.graph.ir import Location
from tilewright.compiler.readers.graph_text import parse_graph


def graph_of(text):
    return parse_graph(text, tiny_ops.lookup)


SUM = (
    "graph @g<N: 1..8>(%x: f32[N, 2], %y: f32[2]) { %z: f32[N, 2] = add(%x, %y) return %z }"
)


def test_inputs_go_by_order_or_by_name():
    graph = graph_of(SUM)
    x, y = np.ones((3, 2), np.float32), np.array([1, 2], np.float32)
    (by_order,) = evaluate(graph, [x, y])
    (by_name,) = evaluate(graph, {"y": y, "x": x})
    np.testing.assert_array_equal(by_order, x + y)
    np.testing.assert_array_equal(by_name, x + y)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([np.ones((3, 2), np.float32)], "got 1 inputs, expected 2"),
        (
            {"x": np.ones((3, 2), np.float32), "q": np.ones(2)},
            r"missing \['y'\], unknown \['q'\]",
        ),
        (
            [np.ones((3, 2), np.float32), np.ones(3, np.float32)],
            "'y', axis 0: has size 3, expected 2$",
        ),
        ([np.ones((9, 2), np.float32), np.ones(2, np.float32)], "N = 9 outside 1..8"),
        (
            [np.ones(3, np.float32), np.ones(2, np.float32)],
            r"has shape \(3,\), expected f32\[N",
        ),
        ([np.ones((3, 2)), np.ones(2, np.float32)], "'x': has type f64, expected f32"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, message):
    with pytest.raises(InputError, match=message):
        evaluate(graph_of(SUM), inputs)


def test_a_size_of_zero_that_leaves_nothing_gives_outputs_without_elements():
    (found,) = evaluate(
        graph_of(SUM), [np.ones((0, 2), np.float32), np.ones(2, np.float32)]
    )
    assert found.shape == (0, 2)
    assert found.dtype == np.float32


def test_no_oracle_runs_where_nothing_is_left():
    graph = graph_of(SUM)
    (node,) = graph.nodes

    def fails(operands, attributes):
        raise AssertionError

    node.schema = dataclasses.replace(node.schema, evaluate=fails)
    evaluate(graph, [np.ones((0, 2), np.float32), np.ones(2, np.float32)])


ONE_LEFT = (
    "graph @g<N: 1..8, M: 2..>(%x: f32[N, 2], %y: f32[M, 2], %z: f32[2])"
    " { %t: f32[N, 2] = add(%x, %z) %u: f32[M, 2] = add(%y, %z) return LEFT }"
)


@pytest.mark.parametrize(
    ("left", "sizes", "message"),
    [
        ("%t, %u", (0, 3), "N = 0 outside 1..8"),
        ("%u", (3, 0), r"M = 0 outside 2\.\."),
        ("%t", (9, 2), r"N = 9 outside 1\.\.8"),
    ],
)
def test_a_size_of_zero_is_refused_where_something_is_left_or_more_is_asked(
    left, sizes, message
):
    graph = graph_of(ONE_LEFT.replace("LEFT", left))
    arrays = [np.ones((size, 2), np.float32) for size in sizes]
    with pytest.raises(InputError, match=message):
        evaluate(graph, [*arrays, np.ones(2, np.float32)])


def test_symbols_are_solved_through_linear_dims_in_any_order():
    graph = graph_of(
        "graph @g<N: .., M: ..>(%x: f32[2*N + M + 1], %y: f32[3*M]) { return %x }"
    )
    assert bind_dims(graph.inputs, [(12,), (9,)]) == {"M": 3, "N": 4}
    with pytest.raises(InputError, match="cannot tell"):
        bind_dims(graph.inputs, [(13,), (9,)])


def test_symbols_that_no_input_decides_may_be_given():
    graph = graph_of("graph @g<N: ..>(%x: f32[N*N]) { return %x }")
    with pytest.raises(InputError, match="cannot tell the symbols in"):
        bind_dims(graph.inputs, [(9,)])
    assert bind_dims(graph.inputs, [(9,)], {"N": 3}) == {"N": 3}


def test_symbolic_attributes_become_numbers():
    graph = graph_of(
        "graph @g<N: ..>(%x: f32[N, 4]) { %y: f32[2*N, 2] = reshape(%x) {shape = [2*N, 2]}"
        " return %y }"
    )
    (y,) = evaluate(graph, [np.zeros((3, 4), np.float32)])
    assert y.shape == (6, 2)


def test_sizes_that_only_data_decides_are_learnt():
    graph = graph_of(
        "graph @g<K: 0..>(%x: f32[5]) { %i: i64[K] = nonzero(%x) {count = [K]}"
        " %y: i64[K, 1] = reshape(%i) {shape = [K, 1]} return %y }"
    )
    (y,) = evaluate(graph, [np.array([0, 1, 0, 2, 0], np.float32)])
    np.testing.assert_array_equal(y, [[1], [3]])


def test_sizes_that_nodes_take_to_be_equal_are_checked():
    graph = graph_of("graph @g<N: 0.., M: 0..>(%x: f32[N], %y: f32[M]) { return %x }")
    n, m = (value.type.shape[0] for value in graph.inputs)
    graph.equalities = ((n, m * 2),)
    x, y = np.ones(4, np.float32), np.ones(2, np.float32)
    np.testing.assert_array_equal(evaluate(graph, [x, y])[0], x)
    with pytest.raises(InputError, match=r"sizes do not agree: N is 4, .*M.* is 6"):
        evaluate(graph, [x, np.ones(3, np.float32)])


def test_a_pair_of_sizes_that_says_more_than_that_they_are_equal_is_worded_so():
    graph = graph_of("graph @g<N: 0.., M: 0..>(%x: f32[N], %y: f32[M]) { return %x }")
    n, m = (value.type.shape[0] for value in graph.inputs)
    graph.equalities = ((symbolic.minimum(n, m), n),)
    x, y = np.ones(4, np.float32), np.ones(3, np.float32)
    np.testing.assert_array_equal(evaluate(graph, [y, x])[0], y)
    with pytest.raises(InputError, match=r"does not fit: N is 4, expected at most 3 \(M\)"):
        evaluate(graph, [x, y])


def test_regions_are_run():
    graph = graph_of(
        "graph @g(%x: f32[2]) { %y: f32[2] = fused(%x, %x)"
        " graph @k(%a: f32[2], %b: f32[2]) { %c: f32[2] = mul(%a, %b) return %c } return %y }"
    )
    np.testing.assert_array_equal(
        evaluate(graph, [np.array([3, -2], np.float32)])[0], [9, 4]
    )


def test_several_results_and_repeated_outputs():
    graph = graph_of(
        "graph @g(%x: i32[4]) { %a: i32[2], %b: i32[2] = split(%x) return %b, %a, %b, %x }"
    )
    b, a, again, x = evaluate(graph, [np.arange(4, dtype=np.int32)])
    np.testing.assert_array_equal(a, [0, 1])
    np.testing.assert_array_equal(b, [2, 3])
    assert again is b
    assert x.size == 4


def test_a_failing_oracle_names_the_node():
    graph = graph_of(
        "graph @g(%x: f32[3]) { %y: f32[2] = reshape(%x) {shape = [2]} return %y }"
    )
    graph.nodes[0].location = Location("m.onnx", "r")
    with pytest.raises(ModelError, match=r"m.onnx: node 'r': op 'reshape' failed"):
        evaluate(graph, [np.zeros(3, np.float32)])


def test_a_result_of_the_wrong_type_is_our_bug():
    graph = graph_of("graph @g(%x: f32[3]) { %y: f32[3] = neg(%x) return %y }")
    graph.nodes[0].results[0].type = tiny_ops.TensorType(tiny_ops.dtypes.f64, (3,))
    with pytest.raises(InternalError, match=r"gave f32\[3\] for result 0, expected f64"):
        evaluate(graph, [np.zeros(3, np.float32)])


def test_an_error_of_an_oracle_gets_the_node_as_its_place_and_keeps_one_of_its_own():
    own = Location("other.onnx", "q")
    for known, shown in ((None, "m.onnx: node 'r'"), (own, "other.onnx: node 'q'")):

        def refuse(arrays, attributes, known=known):
            raise ModelError("no such number", location=known)

        graph = graph_of("graph @g(%x: f32[3]) { %y: f32[3] = neg(%x) return %y }")
        graph.nodes[0].location = Location("m.onnx", "r")
        graph.nodes[0].schema = dataclasses.replace(graph.nodes[0].schema, evaluate=refuse)
        with pytest.raises(ModelError, match=f"{shown}: no such number"):
            evaluate(graph, [np.zeros(3, np.float32)])
