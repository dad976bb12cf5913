"""An index of the data that is out of range fails the call: every op, both engines, shapes that vary.

onnxruntime is the model: it refuses the same indices; within range results are equal.
"""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.graphs import parse
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.graph.evaluator import evaluate

HEAD = '<ir_version: 10, opset_import: ["" : 18]>'
TABLE = np.arange(15, dtype=np.float32).reshape(5, 3)
EMBED = "f (float[5,3] t, int64[4] i) => (float[4,3] y) { [embed] g = Gather (t, i) y = Relu (g) }"
WHERE = "node 'embed': index {} is out of range on axis {} of size {}, expected {} .. {}"


def compiled(text, **options):
    return tw.compile(onnx.parser.parse_model(HEAD + text), **options)


def indices(*values, dtype=np.int64):
    return np.array(values, dtype)


def engines(model, folder):
    model.save(folder / "m.vmfb", sources=False)
    return [tw.load(folder / "m.vmfb", engine=engine) for engine in ("plan", "vm")]


@pytest.mark.parametrize("opt_level", [0, 2])
def test_an_index_out_of_range_names_node_axis_index_and_size(opt_level):
    model = compiled(EMBED, opt_level=opt_level)
    np.testing.assert_array_equal(
        model(TABLE, indices(0, -1, -5, 4)), TABLE[[0, -1, -5, 4]]
    )
    for bad in (5, -6, 2**40, -(2**63) + 1, 2**63 - 1):
        with pytest.raises(InputError) as caught:
            model(TABLE, indices(0, bad, 1, 2))
        assert WHERE.format(bad, 0, 5, -5, 4) in str(caught.value)
    np.testing.assert_array_equal(model(TABLE, indices(1, 1, 1, 1)), TABLE[[1] * 4])


def test_the_least_index_of_all_is_out_of_range_too():
    with pytest.raises(InputError, match="out of range on axis 0 of size 5"):
        compiled(EMBED)(TABLE, indices(0, 0, 0, -(2**63)))


def test_without_checks_an_index_is_clamped():
    model = compiled(EMBED, check_indices=False)
    np.testing.assert_array_equal(model(TABLE, indices(7, -9, 0, 1)), TABLE[[4, 0, 0, 1]])
    assert "out_of_range" not in model.graph_ir


TEXTS = {
    "elements": """f (float[5,3] t, int64[2,3] i) => (float[2,3] y) {
        [embed] y = GatherElements (t, i) }""",
    "second axis": """f (float[5,3] t, int32[2] i) => (float[5,2] y) {
        [embed] y = Gather <axis = 1> (t, i) }""",
    "tuples": """f (float[5,3] t, int64[2,2] i) => (float[2] y) {
        [embed] y = GatherND (t, i) }""",
    "scatter": """f (float[5,3] t, int64[2,3] i) => (float[5,3] y) {
        u = Cast <to = 1> (i) [embed] y = ScatterElements (t, i, u) }""",
    "scatter of tuples": """f (float[5,3] t, int64[2,1] i) => (float[5,3] y) {
        u = Constant <value = float[2,3] {1,2,3,4,5,6}> ()
        [embed] y = ScatterND (t, i, u) }""",
}
# Indices in range; then indices that are not, and what the error is to say of them.
CASES = {
    "elements": (
        np.array([[0, -5, 4], [1, 2, 3]]),
        [(np.array([[0, 0, 0], [0, 5, 0]]), (5, 0, 5, -5, 4))],
    ),
    "second axis": (
        indices(-3, 2, dtype=np.int32),
        [
            (indices(0, 3, dtype=np.int32), (3, 1, 3, -3, 2)),
            (indices(-4, 0, dtype=np.int32), (-4, 1, 3, -3, 2)),
        ],
    ),
    "tuples": (
        np.array([[4, 2], [-5, -3]]),
        [
            (np.array([[4, 3], [0, 0]]), (3, 1, 3, -3, 2)),
            (np.array([[4, 0], [-6, 0]]), (-6, 0, 5, -5, 4)),
        ],
    ),
    "scatter": (
        np.array([[0, 1, -5], [1, 4, 3]]),
        [(np.array([[0, 0, 0], [0, 9, 0]]), (9, 0, 5, -5, 4))],
    ),
    "scatter of tuples": (
        np.array([[4], [-5]]),
        [(np.array([[4], [5]]), (5, 0, 5, -5, 4))],
    ),
}


@pytest.mark.thinned(2)
@pytest.mark.filterwarnings("ignore:.*has no kernel")
@pytest.mark.parametrize("name", CASES)
def test_every_op_that_indexes_checks_in_both_engines_as_onnxruntime(name, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    good, bads = CASES[name]
    proto = onnx.parser.parse_model(HEAD + TEXTS[name])
    peer = ort.InferenceSession(proto.SerializeToString())
    for session in engines(tw.compile(proto), tmp_path):
        for _ in range(
            3
        ):  # the virtual machine records the second call and replays the third
            (wanted,) = peer.run(None, {"t": TABLE, "i": good})
            np.testing.assert_array_equal(session(TABLE, good), wanted)
            for bad, words in bads:
                with pytest.raises(InputError) as caught:
                    session(TABLE, bad)
                assert WHERE.format(*words) in str(caught.value)
    for bad, _ in bads:
        with pytest.raises(Exception, match=r"(?i)out of|invalid|indices|index"):
            peer.run(None, {"t": TABLE, "i": bad})


def test_lengths_of_a_reversal_are_checked():
    model = compiled(
        "f (float[5,3] t, int64[3] n) => (float[5,3] y) {"
        " [embed] y = ReverseSequence (t, n) }"
    )
    model(TABLE, indices(0, 5, 3))
    with pytest.raises(InputError) as caught:
        model(TABLE, indices(1, 6, 3))
    assert WHERE.format(6, 0, 5, 0, 5) in str(caught.value)


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    ("count", "sizes"), [(3, (2, 7)), (70, (2, 600)), (300, (70, 310))]
)
def test_more_elements_than_an_axis_turns_out_to_have_are_refused(count, sizes, tmp_path):
    small, large = sizes
    model = compiled(
        f"f (float[n,2] t) => (float[{count},2] y, int64[{count},2] p) {{"
        f" k = Constant <value = int64[1] {{{count}}}> ()"
        " [embed] y, p = TopK <axis = 0> (t, k) }"
    )
    table = np.random.default_rng(count).permutation(large * 2).astype(np.float32)
    table = table.reshape(large, 2)
    for session in engines(model, tmp_path):
        for _ in range(3):
            values, places = session(table)
            np.testing.assert_array_equal(values, -np.sort(-table, 0)[:count])
            np.testing.assert_array_equal(np.take_along_axis(table, places, 0), values)
            with pytest.raises(InputError) as caught:
                session(table[:small])
            assert WHERE.format(count, 0, small, 0, small) in str(caught.value)


def test_places_of_an_unpooling_are_checked_as_onnxruntime_does(tmp_path):
    ort = pytest.importorskip("onnxruntime")
    proto = onnx.parser.parse_model(
        HEAD
        + "f (float[1,1,2,2] t, int64[1,1,2,2] i) => (float[1,1,4,4] y) {"
        + " [embed] y = MaxUnpool <kernel_shape = [2,2], strides = [2,2]> (t, i) }"
    )
    peer = ort.InferenceSession(proto.SerializeToString())
    x = TABLE.ravel()[1:5].reshape(1, 1, 2, 2)
    good = indices(1, 6, 8, 15).reshape(x.shape)
    for session in engines(tw.compile(proto), tmp_path):
        for _ in range(3):
            (wanted,) = peer.run(None, {"t": x, "i": good})
            np.testing.assert_array_equal(session(x, good), wanted)
            for bad in (16, -1, 2**40):
                wrong = indices(1, bad, 8, 15).reshape(x.shape)
                with pytest.raises(InputError) as caught:
                    session(x, wrong)
                assert WHERE.format(bad, 0, 16, 0, 15) in str(caught.value)
                with pytest.raises(Exception, match=r"(?i)out of|invalid|ind"):
                    peer.run(None, {"t": x, "i": wrong})


@pytest.mark.parametrize("shape", ["1,1,4,3", "1,1,16"])
def test_an_unpooling_to_a_shape_without_its_places_is_an_error_of_the_model(shape):
    rank = shape.count(",") + 1
    with pytest.raises(ModelError, match=r"of places in shape \[1, 1, 4, 4\] to shape"):
        compiled(
            "f (float[1,1,2,2] t, int64[1,1,2,2] i) => (float[a,b,c,d] y) {"
            f" s = Constant <value = int64[{rank}] {{{shape}}}> ()"
            " y = MaxUnpool <kernel_shape = [2,2], strides = [2,2]> (t, i, s) }"
        )


def test_sizes_of_the_call_bound_the_indices(tmp_path):
    model = compiled(
        "f (float[n,3] t, int64[k] i) => (float[k,3] y) { [embed] y = Gather (t, i) }"
    )
    for session in engines(model, tmp_path):
        for rows in (2, 5, 2, 5):
            for count in (1, 7):
                last = np.full(count, rows - 1)
                found = session(TABLE[:rows], last)
                np.testing.assert_array_equal(found, TABLE[last])
                with pytest.raises(InputError) as caught:
                    session(TABLE[:rows], last + 1)
                text = WHERE.format(rows, 0, rows, -rows, rows - 1)
                assert text in str(caught.value)


def test_a_known_place_beyond_what_a_size_turns_out_to_be_is_out_of_range():
    model = compiled(
        "f (float[n,3] t) => (float[1,3] y) {"
        " i = Constant <value = int64[1] {3}> () [embed] y = Gather (t, i) }"
    )
    np.testing.assert_array_equal(model(TABLE), TABLE[3:4])
    with pytest.raises(InputError) as caught:
        model(TABLE[:2])
    assert WHERE.format(3, 0, 2, -2, 1) in str(caught.value)


@pytest.mark.parametrize("table", ["float[5,3] t", "float[2,3] other"])
def test_a_constant_index_out_of_range_is_an_error_of_the_model(table):
    data = ", ".join(["1"] * 15)
    text = (
        f"f ({table}) => (float[2,3] y) {{ c = Constant <value = float[5,3] {{{data}}}> ()"
        f" i = Constant <value = int64[2] {{0, 5}}> () [embed] y = Gather (SOURCE, i) }}"
    )
    source = "t" if table.endswith(" t") else "c"
    with pytest.raises(ModelError) as caught:
        compiled(text.replace("SOURCE", source))
    assert "node 'embed'" in str(caught.value)
    assert "5" in str(caught.value)


def test_the_first_node_in_order_is_named_and_computed_indices_are_looked_at():
    model = compiled(
        "f (float[5,3] t, int64[4] i) => (float[4,3] y) {"
        " two = Constant <value = int64 {2}> () j = Mul (i, two)"
        " [first] a = Gather (t, i) [second] b = Gather (t, j) y = Add (a, b) }"
    )
    np.testing.assert_array_equal(
        model(TABLE, indices(0, 1, 2, -2)), TABLE[[0, 1, 2, -2]] + TABLE[[0, 2, 4, -4]]
    )
    with pytest.raises(InputError, match="node 'second': index 6 "):
        model(TABLE, indices(0, 1, 2, 3))
    with pytest.raises(InputError, match="node 'first': index 7 "):
        model(TABLE, indices(0, 1, 2, 7))


def test_what_the_graph_shows_to_be_in_range_is_not_looked_at():
    model = compiled(
        "f (float[5,3] t, int64[4] i, float[5,7] s) => (float[4,3] y, float[7,3] z) {"
        " low = Constant <value = int64 {0}> () high = Constant <value = int64 {4}> ()"
        " j = Clip (i, low, high) y = Gather (t, j)"
        " best = ArgMax <axis = 0, keepdims = 0> (s) z = Gather (t, best) }"
    )
    assert "out_of_range" not in model.graph_ir
    assert not model.compiled.parts[0].plan.checks
    y, _ = model(TABLE, indices(-3, 9, 2, 1), np.zeros((5, 7), np.float32))
    np.testing.assert_array_equal(y, TABLE[[0, 4, 2, 1]])


def test_an_empty_table_has_no_index_that_is_right():
    model = compiled("f (float[n,3] t, int64[k] i) => (float[k,3] y) { y = Gather (t, i) }")
    assert model(TABLE[:1], indices(0)).shape == (1, 3)
    with pytest.raises(InputError):
        model(TABLE[:0], indices(0))


def test_the_graph_evaluator_says_the_same():
    graph = parse(
        "graph @g(%t: f32[5, 3], %i: i64[2]) {"
        " %y: f32[2, 3] = gather(%t, %i) {axis = 0} return %y }"
    )
    with pytest.raises(InputError, match="index -6 is out of range on axis 0 of size 5"):
        evaluate(graph, [TABLE, indices(1, -6)])


def test_calls_at_the_same_time_have_findings_of_their_own():
    model = compiled(EMBED, threads=2)
    wrong: list[object] = []

    def call(bad: bool) -> None:
        given = indices(0, 9 if bad else 4, 1, 2)
        for _ in range(300):
            try:
                model(TABLE, given)
                failed = False
            except InputError:
                failed = True
            if failed is not bad:
                wrong.append(given)

    threads = [threading.Thread(target=call, args=(k % 2 == 0,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_call_that_ends_later_fails_when_its_result_is_asked_for():
    pending = compiled(EMBED).session.begin(TABLE, indices(0, 5, 1, 2))
    with pytest.raises(InputError, match="node 'embed': index 5"):
        pending.result()


def test_a_profile_of_a_call_fails_too():
    with pytest.raises(InputError, match="node 'embed': index 5"):
        compiled(EMBED).profile(TABLE, indices(0, 5, 1, 2))
    steps = compiled(EMBED).profile(TABLE, indices(0, 4, 1, 2))
    assert [step.name for step, _ in steps] == ["out_of_range", "gather_relu_0"]
