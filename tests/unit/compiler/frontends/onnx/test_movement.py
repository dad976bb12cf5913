"""Rows that move elements: positions that data gives."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from fakes.onnx_models import parse
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

SCATTER = """<ir_version: 11, opset_import: ["" : 24]>
graph (float[2,5,3] x, float[2,2,3] u, int64[2] w) => (float[2,5,3] y) { y = TensorScatter<axis = 1>(x, u, w) }"""


@pytest.mark.parametrize("places", [(0, 3), (-1, 0), (0, 4), (-5, 0), (0, 2**40)])
def test_a_cache_is_written_inside_of_it(places: tuple[int, int]) -> None:
    import onnx

    cache, update = np.ones((2, 5, 3), np.float32), np.zeros((2, 2, 3), np.float32)
    graph = load(onnx.parser.parse_model(SCATTER))
    given = [cache, update, np.array(places)]
    if not all(0 <= place <= 3 for place in places):
        with pytest.raises(InputError, match="index"):
            evaluate(graph, given)
        return
    expected = cache.copy()
    for row, place in enumerate(places):
        expected[row, place : place + 2] = 0
    np.testing.assert_array_equal(evaluate(graph, given)[0], expected)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
@pytest.mark.parametrize(
    "pads", [(1, 2, 0, 1), (-1, 0, 2, -1), (0, -4, -3, 0), (-2, 1, 0, 2)]
)
def test_amounts_of_padding_that_data_gives_may_crop(
    mode: str, pads: tuple[int, ...]
) -> None:
    """As those that the model gives, which onnxruntime agrees with."""
    x = np.arange(30, dtype=np.float32).reshape(5, 6)
    given = np.array(pads)
    head = "graph (float[N,M] x{}) => (float[A,B] y) {{ {} y = Pad<mode = {!r}>(x, p) }}"
    quoted = head.replace("{!r}", f'"{mode}"')
    by_data = load(parse(quoted.format(", int64[4] p", "")))
    constant = f"p = Constant<value_ints = {list(pads)}>()"
    by_model = load(parse(quoted.format("", constant)))
    (found,), (wanted,) = evaluate(by_data, [x, given]), evaluate(by_model, [x])
    np.testing.assert_array_equal(found, wanted)


ROW = np.arange(1, 6, dtype=np.float32)


def padded(
    mode: str, pads: tuple[int, int], *, size: str = "N", by_data: bool = True
) -> np.ndarray:
    """ROW with borders of amounts that are an input, or a constant of the model."""
    operand = ", int64[2] p" if by_data else ""
    constant = "" if by_data else f"p = Constant<value_ints = {list(pads)}>()"
    head = f"graph (float[{size}] x{operand}) => (float[M] y)"
    graph = load(parse(f'{head} {{ {constant} y = Pad<mode = "{mode}">(x, p) }}'))
    return evaluate(graph, [ROW, np.array(pads)][: len(graph.inputs)])[0]


@pytest.mark.parametrize(
    ("mode", "pads", "expected"),
    [
        ("edge", (-2, 2), [3, 4, 5, 5, 5]),
        ("edge", (3, -4), [1, 1, 1, 1]),
        ("edge", (0, -5), []),
        ("reflect", (-2, 2), [3, 4, 5, 4, 3]),
        ("reflect", (2, -2), [3, 2, 1, 2, 3]),
        ("reflect", (4, 4), [5, 4, 3, 2, 1, 2, 3, 4, 5, 4, 3, 2, 1]),
        ("reflect", (-4, 0), [5]),
        ("wrap", (-3, 3), [4, 5, 4, 5, 4]),
        ("wrap", (3, -4), [1, 1, 1, 1]),
    ],
)
def test_borders_are_made_of_what_is_left(
    mode: str, pads: tuple[int, int], expected: list[int]
) -> None:
    """Worked out by hand: no element that is cut off comes back."""
    for size, by_data in (("N", True), ("N", False), ("5", True), ("5", False)):
        found = padded(mode, pads, size=size, by_data=by_data)
        assert found.tolist() == expected


@pytest.mark.parametrize(
    ("mode", "pads"),
    [
        ("edge", (-5, 2)), ("edge", (4, -6)), ("wrap", (-5, 2)), ("wrap", (2, -5)),
        ("reflect", (-3, 3)), ("reflect", (3, -3)), ("reflect", (-4, 1)), ("reflect", (5, 0)),
    ],
)  # fmt: skip
def test_borders_of_too_few_elements_are_errors(mode: str, pads: tuple[int, int]) -> None:
    """As in onnxruntime; with sizes that only a call knows it is the call that fails."""
    words = "the data gives size|sizes do not agree"
    for size, by_data in (("N", True), ("5", True)):
        with pytest.raises(InputError, match=words):
            padded(mode, pads, size=size, by_data=by_data)
    with pytest.raises(ModelError, match=f"mode '{mode}' pads an axis of which"):
        padded(mode, pads, size="5", by_data=False)


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("mode", "pads", "size", "words"),
    [
        ("wrap", (-4, 2), 4, r"\(N - 4\) is 0, expected at least 1"),
        ("edge", (-4, 2), 3, r"\(N - 4\) is -1, expected at least 1"),
        ("reflect", (5, 0), 5, r"dimension 'N' \(axis 0\) is 5, expected at least 6"),
        ("reflect", (-2, 2), 4, r"\(N - 2\) is 2, expected at least 3"),
    ],
)
def test_a_compiled_call_gives_no_border_of_too_few(
    mode: str, pads: tuple[int, int], size: int, words: str
) -> None:
    """Sizes of inputs are compared before anything runs: nothing is computed and read back for it."""
    text = f"""graph (float[N] x) => (float[M] y) {{
        p = Constant<value_ints = {list(pads)}>()
        y = Pad<mode = "{mode}">(x, p)
    }}"""
    model = tw.compile(parse(text), opt_level=0, threads=1, jobs=1)
    plan = model.compiled.parts[0].plan
    assert {step.kind for step in plan.steps} == {"dispatch"}
    x = np.arange(9, dtype=np.float32)
    before, after = (max(amount, 0) for amount in pads)
    left = x[max(-pads[0], 0) : 9 - max(-pads[1], 0)]
    expected = np.pad(left, (before, after), mode=mode)
    np.testing.assert_array_equal(model(x=x), expected)
    with pytest.raises(InputError, match=words):
        model(x=x[:size])


def test_known_amounts_of_padding_stay_known_beside_computed_ones() -> None:
    text = """graph (float[N,6] x, int64[1] n) => (float[A,B] y) {
        zeros = Constant<value_ints = [0, 0]>()
        one = Constant<value_ints = [1]>()
        p = Concat<axis = 0>(zeros, n, one)
        y = Pad(x, p)
    }"""
    model = tw.compile(parse(text), opt_level=1, threads=1, jobs=1)
    x = np.ones((4, 6), np.float32)
    for count in (2, 0, -3):
        found = model(x=x, n=np.array([count]))
        rows = np.ones((4 + count, 6)) if count < 0 else np.pad(x, ((0, count), (0, 0)))
        np.testing.assert_array_equal(found, np.pad(rows, ((0, 0), (0, 1))))
    assert load(parse(text)).outputs[0].type.shape[1] == 7


@pytest.mark.parametrize("count", [0, 1, 3, 2**31, 2**62])
def test_an_axis_is_split_into_as_many_pieces_as_there_are_outputs(count: int) -> None:
    split = f"y, z = Split<num_outputs = {count}>(x)"
    text = f"g (float[4] x) => (float[2] y, float[2] z) {{ {split} }}"
    with pytest.raises(ModelError, match=f"{count} sizes for 2 outputs"):
        load(parse(text))


PART = """<ir_version: 10, opset_import: ["" : 20]>
graph (float[5,3] x, int64[4] places, int64[1] i) => (float[a,3] y, float[b,3] z) {
    one = Constant<value = int64[1] {1}>() two = Constant<value = int64[1] {2}>()
    next = Add(i, one) last = Add(i, two)
    start = Slice(places, i, next) end = Slice(places, next, last)
    y = Slice(x, start, end)
    size = Cast<to = 1>(start)
    z = Add(y, size)
}"""


@pytest.mark.parametrize("place", [0, 1, 2, -3, -4])
def test_rows_are_cut_at_positions_that_are_cut_from_others(place: int) -> None:
    import onnx

    x, places = np.random.default_rng(0).random((5, 3), np.float32), np.array([1, 1, 3, 5])
    graph = load(onnx.parser.parse_model(PART))
    found = evaluate(graph, [x, places, np.array([place])])
    start, end = places[place], places[place + 1]
    np.testing.assert_array_equal(found[0], x[start:end])
    np.testing.assert_array_equal(found[1], x[start:end] + np.float32(start))


FARTHEST = 2**63 - 1
STEPS = [2**31, 2**62, FARTHEST, -(2**62), -FARTHEST, -FARTHEST - 1]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("is_known", [False, True])
def test_steps_beyond_the_axis_pick_its_first_element(step: int, is_known: bool) -> None:
    """A step of 2^62 of a model whose sizes are open ended the process."""
    ends = (0, FARTHEST) if step > 0 else (FARTHEST, -FARTHEST - 1)
    order = {"b": ends[0], "e": ends[1], "a": 0, "t": step}
    given = "" if is_known else ", int64[1] t"
    known = order if is_known else {name: order[name] for name in "bea"}
    constants = ", ".join(f"int64[1] {name} = {{{value}}}" for name, value in known.items())
    text = f"graph (float[N] x{given}) => (float[M] y) <{constants}> {{ y = Slice(x, b, e, a, t) }}"
    graph = load(parse(text))
    session = tw.compile(parse(text)).session
    for size in (0, 1, 5):
        x = np.arange(size, dtype=np.float32) + 7
        inputs = [x] if is_known else [x, np.array([step])]
        wanted = x[::step]
        np.testing.assert_array_equal(evaluate(graph, inputs)[0], wanted)
        np.testing.assert_array_equal(session(*inputs), wanted)


def test_a_step_of_zero_is_refused_where_data_gives_it() -> None:
    graph = load(
        parse("""graph (float[N] x, int64[1] b, int64[1] e, int64[1] a, int64[1] t) => (float[M] y) {
            y = Slice(x, b, e, a, t) }""")
    )
    x, zero = np.ones(4, np.float32), np.array([0])
    with pytest.raises(InputError, match="node 'y', a step of which is 0: the data gives"):
        evaluate(graph, [x, zero, np.array([4]), zero, zero])


def test_a_step_of_zero_is_refused_where_the_model_gives_it_beside_positions_of_data() -> (
    None
):
    body = "t = Constant<value_ints = [1, 0]>() y = Slice(x, b, e, a, t)"
    text = "graph (float[N,M] x, int64[2] b, int64[2] e, int64[2] a) => (float[P,Q] y)"
    with pytest.raises(ModelError, match="a step is 0"):
        load(parse(f"{text} {{ {body} }}"))


@pytest.mark.parametrize("axes", [(0, 1), (1, 0), (-1, 0), (0, 0), (1, -1)])
@pytest.mark.parametrize("count", ["2", "C"])
def test_axes_that_data_names_twice_fail_the_call(
    axes: tuple[int, int], count: str
) -> None:
    head = f"graph (float[N,M] x, int64[{count}] b, int64[{count}] e, int64[{count}] a)"
    graph = load(parse(head + " => (float[P,Q] y) { y = Slice(x, b, e, a) }"))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = [x, np.array([1, 1]), np.array([2, 3]), np.array(axes)]
    if len({axis % 2 for axis in axes}) == 1:
        with pytest.raises(InputError, match="node 'y', an axis of which is named twice"):
            evaluate(graph, given)
        return
    wanted = x[1:2, 1:3] if axes == (0, 1) else x[1:3, 1:2]
    np.testing.assert_array_equal(evaluate(graph, given)[0], wanted)
