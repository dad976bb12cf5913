"""Sequences whose items have several sizes, of which a call decides how many: beside lists of Python."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

X = np.arange(28, dtype=np.float32).reshape(7, 4) - 9


def run(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    graph = load(onnx_models.parse(text))
    return [np.asarray(y) for y in evaluate(graph, list(inputs))]


# Of each trip the rows of x whose first element is above i, as detectors gather boxes of every class.
GATHERED = """graph (int64 n, float[N,4] x) => (float[A,4] y, int64 k, float[B,4] z, int64 l) {
    c = Constant<value: tensor = bool {1}>()
    s0 = START
    s = Loop(n, c, s0) <body = b (int64 i, bool go, seq(float) q) => (bool on, seq(float) q2) {
        on = Identity(go)
        f = Cast<to = 1>(i)
        zero = Constant<value_int = 0>()
        first = Gather<axis = 1>(x, zero)
        is = Greater(first, f)
        v = Compress<axis = 0>(x, is)
        q2 = SequenceInsert(q, vPLACE)
    }>
    y = ConcatFromSequence<axis = 0>(s)
    k = SequenceLength(s)
    at = Constant<value_int = ITEM>()
    z = SequenceAt(s, at)
    t = SequenceErase(s, at)
    l = SequenceLength(t)
}"""


def gathered(trips: int, start: list[np.ndarray], place: int | None) -> list[np.ndarray]:
    items = [*start]
    for i in range(trips):
        items.insert(len(items) if place is None else place, X[X[:, 0] > i])
    return items


@pytest.mark.thinned(5)
@pytest.mark.parametrize("start", ["empty", "one"])
@pytest.mark.parametrize(("place", "item"), [(None, 0), (None, -1), (0, 1), (0, -2)])
@pytest.mark.parametrize("trips", [2, 13])
def test_a_loop_gathers_results_of_several_sizes(
    start: str, place: int | None, item: int, trips: int
) -> None:
    begin = "SequenceEmpty<dtype = 1>()" if start == "empty" else "SequenceConstruct(x)"
    text = GATHERED.replace("START", begin).replace("ITEM", str(item))
    text = text.replace("PLACE", "" if place is None else ", zero")
    y, k, z, left = run(text, np.array(trips), X)
    items = gathered(trips, [] if start == "empty" else [X], place)
    np.testing.assert_array_equal(y, np.concatenate(items))
    assert (k, left) == (len(items), len(items) - 1)
    np.testing.assert_array_equal(z, items[item])


@pytest.mark.slow
def test_what_is_compiled_does_the_same() -> None:
    text = GATHERED.replace("START", "SequenceEmpty<dtype = 1>()").replace("ITEM", "-1")
    model = tilewright.compile(onnx_models.parse(text.replace("PLACE", "")))
    for trips in (1, 5, 30):
        y, k, z, _ = model(np.array(trips), X)
        items = gathered(trips, [], None)
        np.testing.assert_array_equal(y, np.concatenate(items))
        assert k == trips
        np.testing.assert_array_equal(z, items[-1])


def test_a_position_that_is_none_fails_the_call() -> None:
    text = GATHERED.replace("START", "SequenceEmpty<dtype = 1>()").replace("ITEM", "3")
    with pytest.raises(InputError, match="does not hold for this call"):
        run(text.replace("PLACE", ""), np.array(3), X)


@pytest.mark.parametrize(("axis", "sizes"), [(0, [3, 0, 4]), (1, [1, 1, 2]), (1, [4])])
def test_an_axis_is_split_as_data_says(axis: int, sizes: list[int]) -> None:
    text = f"""graph (float[N,M] x, int64[K] sizes, int64 i) => (float[A,B] y, int64 k, float[C,D] z) {{
        s = SplitToSequence<axis = {axis}>(x, sizes)
        y = SequenceAt(s, i)
        k = SequenceLength(s)
        t = SequenceErase(s, i)
        u = SequenceInsert(t, y)
        z = ConcatFromSequence<axis = {axis}>(u)
    }}"""
    parts = np.split(X, np.cumsum(sizes)[:-1], axis)
    for i in range(-len(sizes), len(sizes)):
        y, k, z = run(text, X, np.array(sizes), np.array(i))
        np.testing.assert_array_equal(y, parts[i])
        assert k == len(sizes)
        rest = [*parts]
        np.testing.assert_array_equal(
            z, np.concatenate([*rest[:i], *rest[i:][1:], parts[i]], axis)
        )
    with pytest.raises(InputError, match="does not hold for this call"):
        run(text, X, np.array([1, 9]), np.array(0))


SPLIT = """graph (float[N] x, int64[K] sizes) => (float[M] y, int64 k) {
    s = SplitToSequence<axis = 0>(x, sizes)
    k = SequenceLength(s)
    y = ConcatFromSequence<axis = 0>(s)
}"""


@pytest.mark.parametrize("sizes", [[-1, 5], [3, -1, 2], [5, -1], [-4, 9, -1]])
def test_pieces_of_a_size_below_zero_fail_the_call(sizes: list[int]) -> None:
    x = np.arange(4, dtype=np.float32)
    with pytest.raises(
        InputError, match=f"the data gives size {min(sizes)}, expected at least 0"
    ):
        run(SPLIT, x, np.array(sizes))


@pytest.mark.parametrize("sizes", [[0, 4], [4], [4, 0, 0]])
def test_pieces_may_be_empty(sizes: list[int]) -> None:
    x = np.arange(4, dtype=np.float32)
    y, k = run(SPLIT, x, np.array(sizes))
    np.testing.assert_array_equal(y, x)
    assert k == len(sizes)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 9])
@pytest.mark.parametrize("constant", [False, True])
def test_an_axis_is_split_into_pieces_of_one_size(size: int, *, constant: bool) -> None:
    given = "" if constant else ", int64 size"
    made = f"size = Constant<value_int = {size}>()" if constant else ""
    text = f"""graph (float[N,4] x, int64 i{given}) => (float[A,4] y, int64 k) {{
        {made}
        s = SplitToSequence<axis = 0>(x, size)
        y = SequenceAt(s, i)
        k = SequenceLength(s)
    }}"""
    parts = [X[i : i + size] for i in range(0, 7, size)]
    for i, part in enumerate(parts):
        inputs = [X, np.array(i), *([] if constant else [np.array(size)])]
        y, k = run(text, *inputs)
        np.testing.assert_array_equal(y, part)
        assert k == len(parts)


@pytest.mark.parametrize("chosen", [True, False])
def test_a_branch_may_add_an_item(chosen: bool) -> None:
    text = """graph (bool c, float[N,4] x, int64[K] sizes) => (float[A,4] y, int64 k) {
        s = SplitToSequence<axis = 0>(x, sizes)
        t = If(c) <
            then_branch = b1 () => (seq(float) u) { u = SequenceInsert(s, x) },
            else_branch = b2 () => (seq(float) v) { v = Identity(s) }
        >
        y = ConcatFromSequence<axis = 0>(t)
        k = SequenceLength(t)
    }"""
    y, k = run(text, np.array(chosen), X, np.array([3, 4]))
    np.testing.assert_array_equal(y, np.concatenate([X, X]) if chosen else X)
    assert k == 2 + chosen


@pytest.mark.parametrize("options", ["axis = 1", "axis = 0, new_axis = 1"])
def test_items_are_joined_along_their_own_axis_only(options: str) -> None:
    text = f"""graph (float[N,4] x, int64[K] sizes) => (float[A,B] y) {{
        s = SplitToSequence<axis = 0>(x, sizes)
        y = ConcatFromSequence<{options}>(s)
    }}"""
    with pytest.raises(
        ModelError, match="several sizes along axis 0 are joined along another"
    ):
        load(onnx_models.parse(text))


def test_items_of_several_sizes_along_two_axes_are_refused() -> None:
    text = """graph (int64 n, float[N,N] x) => (int64 k) {
        c = Constant<value: tensor = bool {1}>()
        s0 = SequenceEmpty<dtype = 1>()
        s = Loop(n, c, s0) <body = b (int64 i, bool go, seq(float) q) => (bool on, seq(float) q2) {
            on = Identity(go)
            f = Cast<to = 1>(i)
            zero = Constant<value_int = 0>()
            first = Gather<axis = 1>(x, zero)
            is = Greater(first, f)
            v = Compress<axis = 0>(x, is)
            w = Compress<axis = 1>(v, is)
            q2 = SequenceInsert(q, w)
        }>
        k = SequenceLength(s)
    }"""
    with pytest.raises(ModelError, match=r"several sizes along axes \[0, 1\]"):
        load(onnx_models.parse(text))


@pytest.mark.parametrize("trips", [0, 1, 6])
def test_a_trip_adds_an_item_or_none(trips: int) -> None:
    text = """graph (int64 n, float[N,4] x) => (int64 k) {
        c = Constant<value: tensor = bool {1}>()
        s0 = SequenceEmpty<dtype = 1>()
        s = Loop(n, c, s0) <body = b (int64 i, bool go, seq(float) q) => (bool on, seq(float) q2) {
            on = Identity(go)
            f = Cast<to = 1>(i)
            zero = Constant<value_int = 0>()
            first = Gather<axis = 1>(x, zero)
            is = Greater(first, f)
            v = Compress<axis = 0>(x, is)
            two = Constant<value_int = 2>()
            odd = Mod(i, two)
            c2 = Cast<to = 9>(odd)
            q2 = If(c2) <
                then_branch = b1 () => (seq(float) u) { u = SequenceInsert(q, v) },
                else_branch = b2 () => (seq(float) w) { w = Identity(q) }
            >
        }>
        k = SequenceLength(s)
    }"""
    assert run(text, np.array(trips), X) == [trips // 2]


def test_items_grow_with_what_a_loop_carries() -> None:
    text = """graph (int64 n, float[2] x) => (float[A] y, float[B] z) {
        c = Constant<value: tensor = bool {1}>()
        s0 = SequenceEmpty<dtype = 1>()
        end, s = Loop(n, c, x, s0) <
            body = b (int64 i, bool go, float[M] v, seq(float) q) => (bool on, float[L] v2, seq(float) q2) {
            on = Identity(go)
            v2 = Concat<axis = 0>(v, x)
            q2 = SequenceInsert(q, v2)
        }>
        y = ConcatFromSequence<axis = 0>(s)
        at = Constant<value_int = 1>()
        z = SequenceAt(s, at)
    }"""
    x = np.array([1, 2], np.float32)
    y, z = run(text, np.array(3), x)
    np.testing.assert_array_equal(y, np.tile(x, 2 + 3 + 4))
    np.testing.assert_array_equal(z, np.tile(x, 3))
