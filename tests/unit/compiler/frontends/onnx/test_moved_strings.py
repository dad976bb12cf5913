"""Strings that are cut, repeated and chosen: what onnxruntime does, and calls that ask for what there is not."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.onnx_backend as backend
from fakes.onnx_models import parse
from tilewright.base.errors import InputError, ModelError
from tilewright.compiler.frontends.onnx.host import MOST_ELEMENTS

WORDS = np.array([["a", "b"]], object)
CUT = "({} x, int64[C] s, int64[C] e, int64[C] a, int64[C] p) => ({} y) {{ y = Slice(x, s, e, a, p) }}"
NUMBERS = [*range(-7, 8), 100, -100, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63)]


def whole(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def test_slices_of_strings_are_those_of_onnxruntime() -> None:
    """Start, end and step in range and far out of it, sizes 0 and 1 among them, of one axis and of two.

    An end of 2^63 - 1 stands for none in onnxruntime, backwards, too, where ONNX clamps it.
    """
    model = parse("graph " + CUT.format("string[N,M]", "string[P,Q]"))
    runtime = pytest.importorskip("onnxruntime")
    ours = backend.prepare(model)
    theirs = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    choose = np.random.default_rng(0)
    some = 0
    for _ in range(400):
        shape = choose.choice([0, 1, 2, 5], 2)
        x = np.array([f"{i}" for i in range(shape.prod())], object).reshape(shape)
        count = int(choose.integers(1, 3))
        axes = choose.permutation(2)[:count] - 2 * choose.integers(0, 2, count)
        start, end, step = (
            whole(*(NUMBERS[i] for i in choose.integers(0, len(NUMBERS), count)))
            for _ in range(3)
        )
        step[step == 0] = -1
        end[(step < 0) & (end == NUMBERS[-2])] = 100
        given = {"x": x, "s": start, "e": end, "a": axes.astype(np.int64), "p": step}
        (wanted,) = theirs.run(None, given)
        (found,) = ours.run(given)
        assert found.tolist() == wanted.tolist(), given
        assert found.shape == wanted.shape, given
        some += bool(found.size)
    assert some > 40


@pytest.mark.parametrize("opset", [9, 21])
def test_slices_that_the_model_knows_say_how_large_they_are(opset: int) -> None:
    """What is left feeds a compiled kernel, whose sizes are known."""
    if opset < 10:
        part = "w = Slice<starts = [-100, 1], ends = [2, 100], axes = [0, -1]>(x)"
    else:
        part = """s = Constant<value = int64[2] {-100, 1}>() e = Constant<value = int64[2] {2, 100}>()
            a = Constant<value = int64[2] {0, -1}>() w = Slice(x, s, e, a)"""
    body = f"{part} z = Cast<to = 1>(w) y = Neg(z)"
    model = parse(f"graph (string[3,4] x) => (float[2,3] y) {{ {body} }}", opset=opset)
    x = np.array([str(i) for i in range(12)], object).reshape(3, 4)
    (found,) = backend.prepare(model).run([x])
    np.testing.assert_array_equal(found, [[-1, -2, -3], [-5, -6, -7]])


def test_strings_are_cut_where_the_size_of_an_input_says() -> None:
    body = "n = Shape(z) o = Constant<value_ints = [0]>() y = Slice(x, o, n)"
    model = parse(f"graph (string[N] x, float[M] z) => (string[P] y) {{ {body} }}")
    x = np.array(["a", "b", "c"], object)
    for count in (0, 2, 7):
        (found,) = backend.prepare(model).run([x, np.ones(count, np.float32)])
        assert found.tolist() == x[:count].tolist()


@pytest.mark.parametrize(
    ("body", "given", "message"),
    [
        ("y = Slice(x, a, b, a, a)", {"a": whole(0), "b": whole(9)}, "a step is 0"),
        ("y = Slice(x, a, a, a, b)", {"a": whole(4), "b": whole(1)}, "axis 4 is out of range"),
        ("y = Slice(x, a, a, a)", {"a": whole(0, 0), "b": whole(0)}, "name one axis twice"),
        ("y = Slice(x, a, b)", {"a": whole(0, 0), "b": whole(1)}, "differ in length"),
        ("y = Tile(x, a)", {"a": whole(1, -1), "b": whole(0)}, r"repeats \[1, -1\]"),
        ("y = Tile(x, a)", {"a": whole(1, 1, 1), "b": whole(0)}, "3 repeats for rank 2"),
        ("y = Tile(x, a)", {"a": whole(10**15, 1), "b": whole(0)}, "has 2000000000000000 elements"),
        ("y = Expand(x, a)", {"a": whole(10**15, 2), "b": whole(0)}, "has 2000000000000000 elements"),
        ("y = Expand(x, a)", {"a": whole(1, 3), "b": whole(0)}, "do not broadcast"),
        ("y = Expand(x, a)", {"a": whole(-1, 2), "b": whole(0)}, "below 0"),
        ("c = Cast<to = 9>(a) y = Where(c, x, x)", {"a": whole(1, 1, 1), "b": whole(0)}, "do not broadcast"),
        ("y = Gather(x, a)", {"a": whole(0, 5), "b": whole(0)}, "index 5 is out of range on axis 0 of size 1"),
        ("p = Constant<value_ints = [1]>() t = Slice(x, a, b, p) y = StringConcat(x, t)", {"a": whole(0), "b": whole(0)}, "do not broadcast"),
        ("p = Constant<value_ints = [1]>() t = Slice(x, a, b, p) y = Equal(x, t)", {"a": whole(0), "b": whole(0)}, "do not broadcast"),
        ("t = Constant<value_ints = [3]>() y = Reshape(x, t)", {"a": whole(0), "b": whole(0)}, "do not fit"),
        ("t = Transpose(x) y = Concat<axis = 0>(x, t)", {"a": whole(0), "b": whole(0)}, "do not fit"),
        ("t = Constant<value_ints = [1]>() y = Squeeze(x, t)", {"a": whole(0), "b": whole(0)}, "axis 1 has size 2"),
    ],
)  # fmt: skip
def test_a_call_that_asks_for_what_there_is_not_is_refused(
    body: str, given: dict[str, np.ndarray], message: str
) -> None:
    text = "graph (string[N,M] x, int64[C] a, int64[D] b) => (string y) { " + body + " }"
    with pytest.raises(InputError, match=message) as caught:
        backend.prepare(parse(text)).run({"x": WORDS, **given})
    assert str(caught.value.location) == "node 'y'"
    assert caught.value.hint


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("t = Constant<value_ints = [0]>() y = Slice(x, t, t, t, t)", "a step is 0"),
        (
            "t = Constant<value_ints = [0, 0]>() y = Slice(x, t, t, t)",
            "name one axis twice",
        ),
        ("t = Constant<value_ints = [0, 1]>() y = Slice(x, u, u, t)", "differ in length"),
        ("t = Constant<value_ints = [1]>() y = Squeeze(x, t)", "axis 1 has size 2"),
        ("t = Constant<value_ints = [1, -1]>() y = Tile(x, t)", r"repeats \[1, -1\]"),
        ("t = Constant<value_ints = [1]>() y = Tile(x, t)", "1 repeats for rank 2"),
    ],
)
@pytest.mark.parametrize("kind", ["string", "float"])
def test_a_model_that_asks_for_what_there_is_not_is_refused(
    kind: str, body: str, message: str
) -> None:
    """Strings and numbers alike, before a call, with the node."""
    body = "u = Constant<value_ints = [0]>() " + body
    text = f"graph ({kind}[N,2] x) => ({kind}[A,B] y) {{ {body} }}"
    with pytest.raises(ModelError, match=f"node 'y'.*({message}|size is not 1)"):
        backend.prepare(parse(text))


def test_strings_are_as_many_as_the_host_makes() -> None:
    """One more than that is refused; to make as many would take 2 GiB."""
    model = parse("graph (string[N] x, int64[1] a) => (string[M] y) { y = Tile(x, a) }")
    prepared, x = backend.prepare(model), np.array(["a"] * 2, object)
    with pytest.raises(InputError, match=f"expected at most {MOST_ELEMENTS} of strings"):
        prepared.run([x, whole(MOST_ELEMENTS // 2 + 1)])
    (found,) = prepared.run([x[:0], whole(10**15)])
    assert found.shape == (0,)


def test_strings_have_the_shape_that_the_model_says() -> None:
    """What is computed of the shape is known before a call: of others it would be wrong."""
    text = "graph (string[3,N] x) => (int64[2] y, string[N,3] z) { y = Shape(x) z = Transpose(x) }"
    prepared = backend.prepare(parse(text))
    for shape in ((3, 2), (3, 0)):
        y, z = prepared.run([np.full(shape, "a", object)])
        assert (y.tolist(), z.shape) == (list(shape), shape[::-1])
    y, z = prepared.run([[["a"], ["b"], ["c"]]])
    assert (y.tolist(), z.tolist()) == ([3, 1], [["a", "b", "c"]])
    for wrong in ((4, 2), (3,), (3, 2, 1), ()):
        with pytest.raises(
            InputError, match=r"input 'x': got strings of shape .* \[3, N\]"
        ):
            prepared.run([np.full(wrong, "a", object)])
