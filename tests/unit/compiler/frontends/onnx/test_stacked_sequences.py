"""Sequences whose length a call decides: what loops, branches and axes of dynamic size make, beside lists of Python."""

from __future__ import annotations

import numpy as np
import pytest

from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def run(text: str, *inputs: np.ndarray) -> list[np.ndarray]:
    graph = load(onnx_models.parse(text))
    return [np.asarray(y) for y in evaluate(graph, list(inputs))]


GROWING = """graph (int64 n, float[2,3] x) => (float[A,B] y, int64 k) {
    c = Constant<value: tensor = bool {1}>()
    s0 = SequenceEmpty<dtype = 1>()
    s, z = Loop(n, c, s0, x) <body = b (int64 i, bool go, seq(float[2,3]) q, float[2,3] v)
      => (bool on, seq(float[2,3]) q2, float[2,3] v2) {
        on = Identity(go)
        v2 = Add(v, x)
        q2 = SequenceInsert(q, v2)
    }>
    y = ConcatFromSequence<axis = AXIS>(s)
    k = SequenceLength(s)
}"""


@pytest.mark.parametrize("trips", [1, 3, 70])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_list_grows_by_an_item_in_each_trip(trips: int, axis: int) -> None:
    y, k = run(GROWING.replace("AXIS", str(axis)), np.array(trips), X)
    np.testing.assert_array_equal(
        y, np.concatenate([X * (i + 2) for i in range(trips)], axis)
    )
    assert k == trips


def test_a_list_of_no_items_is_empty() -> None:
    y, k = run(GROWING.replace("AXIS", "0"), np.array(0), X)
    assert y.shape == (0, 3)
    assert k == 0


EDITED = """graph (int64 n, int64 p, float[2,3] x) => (float[A,2,B] y) {
    c = Constant<value: tensor = bool {1}>()
    s0 = SequenceConstruct(x)
    s, z = Loop(n, c, s0, x) <body = b (int64 i, bool go, seq(float[2,3]) q, float[2,3] v)
      => (bool on, seq(float[2,3]) q2, float[2,3] v2) {
        on = Identity(go)
        v2 = Add(v, x)
        q2 = SequenceInsert(q, v2OPTIONAL)
    }>
    t = SequenceErase(sOPTIONAL)
    last = Constant<value: tensor = int64 {-1}>()
    l = SequenceAt(s, last)
    u = SequenceInsert(t, l)
    y0 = ConcatFromSequence<axis = 1, new_axis = 1>(u)
    y = Transpose<perm = [1, 0, 2]>(y0)
}"""


def edited(trips: int, place: int | None) -> list[np.ndarray]:
    items = [X]
    for i in range(trips):
        items.insert(len(items) if place is None else place, X * (i + 2))
    last = items[-1]
    del items[-1 if place is None else place]
    return [*items, last]


@pytest.mark.parametrize(
    ("trips", "place"), [(1, 0), (4, 0), (4, 1), (4, -1), (1, -1), (3, None), (0, 0)]
)
def test_items_are_put_and_erased_where_data_says(trips: int, place: int | None) -> None:
    text = EDITED.replace("OPTIONAL", "" if place is None else ", p")
    (y,) = run(text, np.array(trips), np.array(place or 0), X)
    np.testing.assert_array_equal(y, np.stack(edited(trips, place)))


@pytest.mark.parametrize(("trips", "place"), [(3, 2), (3, -2), (0, 1)])
def test_a_position_that_is_none_fails_the_call(trips: int, place: int) -> None:
    with pytest.raises(InputError, match="does not hold for this call"):
        run(EDITED.replace("OPTIONAL", ", p"), np.array(trips), np.array(place), X)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_a_loop_walks_over_the_slices_of_an_axis_of_any_size(
    rows: int, keepdims: int
) -> None:
    text = f"""graph (float[N,3] x) => (float[3] y, float[M,3] r) {{
        c = Constant<value: tensor = bool {{1}}>()
        s = SplitToSequence<axis = 0, keepdims = {keepdims}>(x)
        n = SequenceLength(s)
        z = Constant<value_floats = [0.0, 0.0, 0.0]>()
        flat = Constant<value_ints = [3]>()
        y, r = Loop(n, c, z) <body = b (int64 i, bool go, float[3] a)
          => (bool on, float[3] a2, float[3] o) {{
            on = Identity(go)
            v = SequenceAt(s, i)
            w = Reshape(v, flat)
            a2 = Add(a, w)
            o = Identity(a2)
        }}>
    }}"""
    x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
    y, r = run(text, x)
    np.testing.assert_array_equal(y, x.sum(0))
    np.testing.assert_array_equal(r, np.cumsum(x, 0))


@pytest.mark.parametrize("chosen", [True, False])
def test_branches_give_different_numbers_of_items(chosen: bool) -> None:
    text = """graph (bool p, float[2,3] x) => (float[A,3] y, int64 n) {
        s = If(p) <
          then_branch = t () => (seq(float[2,3]) a) { u = Neg(x) a = SequenceConstruct(x, u, x) },
          else_branch = e () => (seq(float[2,3]) b) { b = SequenceEmpty<dtype = 1>() }
        >
        y = ConcatFromSequence<axis = 0>(s)
        n = SequenceLength(s)
    }"""
    y, n = run(text, np.array(chosen), X)
    np.testing.assert_array_equal(
        y, np.concatenate([X, -X, X]) if chosen else np.zeros((0, 3), np.float32)
    )
    assert n == (3 if chosen else 0)


def test_a_branch_of_a_trip_adds_an_item_or_not() -> None:
    text = """graph (int64 n, float[2] x) => (float[A] y) {
        c = Constant<value: tensor = bool {1}>()
        s0 = SequenceEmpty<dtype = 1>()
        s = Loop(n, c, s0) <body = b (int64 i, bool go, seq(float[2]) q)
          => (bool on, seq(float[2]) q2) {
            on = Identity(go)
            three = Constant<value: tensor = int64 {3}>()
            zero = Constant<value: tensor = int64 {0}>()
            m = Mod(i, three)
            e = Equal(m, zero)
            q2 = If(e) <
              then_branch = t () => (seq(float[2]) a) {
                f = Cast<to = 1>(i)
                v = Mul(x, f)
                a = SequenceInsert(q, v)
              },
              else_branch = o () => (seq(float[2]) d) { d = Identity(q) }
            >
        }>
        y = ConcatFromSequence<axis = 0>(s)
    }"""
    x = np.array([1, 2], np.float32)
    (y,) = run(text, np.array(8), x)
    np.testing.assert_array_equal(y, np.concatenate([x * 0, x * 3, x * 6]))


def refused(text: str) -> str:
    with pytest.raises(ModelError) as caught:
        load(onnx_models.parse(text))
    return str(caught.value)


LIST = """graph (int64 n, float[2,3] x, float[4] w) => (OUTPUT y) {
    c = Constant<value: tensor = bool {1}>()
    s0 = SequenceConstruct(x)
    s = Loop(n, c, s0) <body = b (int64 i, bool go, seq(float[2,3]) q)
      => (bool on, seq(float[2,3]) q2) {
        on = Identity(go)
        q2 = SequenceInsert(q, ITEM)
    }>
    y = LAST
}"""


def test_items_of_another_type_are_refused() -> None:
    text = LIST.replace("OUTPUT", "float[A,3]").replace("ITEM", "w")
    words = refused(text.replace("LAST", "ConcatFromSequence<axis = 0>(s)"))
    assert "a sequence whose length depends on data has items f32[2, 3]" in words


def test_a_model_does_not_return_one() -> None:
    text = (
        LIST.replace("OUTPUT", "seq(float[2,3])")
        .replace("ITEM", "x")
        .replace("LAST", "Identity(s)")
    )
    assert "an output is a sequence whose length depends on data" in refused(text)


@pytest.mark.parametrize("chosen", [True, False])
def test_branches_exchange_the_lengths_of_two_lists(chosen: bool) -> None:
    text = """graph (bool p, float[2,3] x) => (float[A,B] y, float[C,D] z) {
        s, t = If(p) <
            then_branch = a () => (seq(float[2,3]) q, seq(float[2,3]) r) {
                u = Neg(x) q = SequenceConstruct(x) r = SequenceConstruct(x, u) },
            else_branch = b () => (seq(float[2,3]) q2, seq(float[2,3]) r2) {
                v = Abs(x) q2 = SequenceConstruct(x, v) r2 = SequenceConstruct(v) }>
        y = ConcatFromSequence<axis = 0>(s)
        z = ConcatFromSequence<axis = 0>(t)
    }"""
    y, z = run(text, np.array(chosen), X)
    wanted = (X, np.concatenate([X, -X])) if chosen else (np.concatenate([X, X]), X)
    np.testing.assert_array_equal(y, wanted[0])
    np.testing.assert_array_equal(z, wanted[1])


def test_scalars_are_joined_along_a_new_axis_alone() -> None:
    text = """graph (float[n] x) => (float[A] y) {
        c = Constant<value: tensor = int64 {1}>()
        s = SplitToSequence<axis = 0, keepdims = 0>(x)
        y = ConcatFromSequence<axis = 0, new_axis = NEW>(s)
    }"""
    (y,) = run(text.replace("NEW", "1"), X.reshape(-1))
    np.testing.assert_array_equal(y, X.reshape(-1))
    with pytest.raises(ModelError, match="along a new axis only"):
        run(text.replace("NEW", "0"), X.reshape(-1))
