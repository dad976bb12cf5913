"""Shapes that data decides: beside numpy, and what is none is refused in the call."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes import onnx_models
from tilewright.base.errors import DeviceError, InputError, TilewrightError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

X = np.arange(24, dtype=np.float32).reshape(4, 6)
RESHAPE = "graph (float[N,M] x, int64[2] s) => (float[A,B] y) { y = Reshape(x, s) }"
RANGE = "graph ({0} a, {0} b, {0} c) => ({0}[N] y) {{ y = Range(a, b, c) }}"
EXPAND = "graph (float[N,M] x, int64[3] s) => (float[A,B,C] y) { y = Expand(x, s) }"


def run(text: str, *inputs: object) -> np.ndarray:
    return evaluate(load(onnx_models.parse(text)), [np.asarray(x) for x in inputs])[0]


@pytest.mark.parametrize("shape", [[-1, 3], [8, -1], [0, -1], [-1, 0], [24, 1]])
def test_a_shape_is_worked_out(shape: list[int]) -> None:
    own = [d or X.shape[i] for i, d in enumerate(shape)]
    np.testing.assert_array_equal(run(RESHAPE, X, shape), X.reshape(own))


@pytest.mark.parametrize("shape", [[-1, -1], [-5, 6], [-(2**62), 24]])
def test_what_is_no_shape_is_refused(shape: list[int]) -> None:
    with pytest.raises(InputError):
        run(RESHAPE, X, shape)
    with pytest.raises(InputError):
        run(RESHAPE, X[:1, :1], shape)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("int64", (0, 7, 2)),
        ("int64", (7, 0, -3)),
        ("int64", (0, 7, -1)),
        ("int32", (-3, 3, 1)),
        ("float", (0.5, 3, 0.5)),
        ("float", (0, 3, -0.5)),
        ("double", (3, -1, -0.7)),
    ],
)
def test_a_range_is_as_long_as_its_limits_say(
    kind: str, given: tuple[float, float, float]
) -> None:
    dtype = {"float": np.float32, "double": np.float64}.get(kind, kind)
    expected = np.arange(*given).astype(dtype)
    found = run(RANGE.format(kind), *(np.array(x, dtype) for x in given))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "given", [(0, 4, 0), (0, np.inf, 1), (0, np.nan, 1), (0, 1, 1e-30), (0, 0, 0)]
)
def test_a_range_that_does_not_end_is_refused(given: tuple[float, float, float]) -> None:
    with pytest.raises(
        InputError, match="node 'y', a range that does not end: the data gives"
    ):
        run(RANGE.format("float"), *(np.array(x, np.float32) for x in given))


def test_a_range_of_whole_numbers_needs_a_step() -> None:
    with pytest.raises(
        InputError, match="node 'y', a range that does not end: the data gives"
    ):
        run(RANGE.format("int64"), 3, 9, 0)


LEAST, MOST = -(2**63), 2**63 - 1


@pytest.mark.parametrize("is_known", [False, True])
@pytest.mark.parametrize(
    "given",
    [(5, 0, LEAST), (0, MOST, MOST), (0, 2**60, 2**60 // 5), (0, MOST, MOST // 3), (MOST, 0, LEAST)],
)  # fmt: skip
def test_ranges_of_64_bits_are_counted_exactly(
    given: tuple[int, int, int], is_known: bool
) -> None:
    """Those of a model were divided as floats, and counted beyond 64 bits by a call."""
    names = zip("abc", given, strict=True)
    constants = ", ".join(f"int64 {name} = {{{value}}}" for name, value in names)
    text = f"graph (int64 z) => (int64[N] y) <{constants}> {{ r = Range(a, b, c) y = Add(r, z) }}"
    wanted = list(range(*given))
    found = run(text, 0) if is_known else run(RANGE.format("int64"), *given)
    assert found.tolist() == wanted


def test_a_range_of_more_than_64_bits_is_refused() -> None:
    with pytest.raises(
        InputError, match="node 'y', a range that does not end: the data gives"
    ):
        run(RANGE.format("int64"), LEAST, MOST, 1)


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("shape", [[1, 1, 6], [3, 4, 1], [2, 4, 6], [1, 1, 1]])
def test_a_size_that_may_be_one_is_repeated(rows: int, shape: list[int]) -> None:
    x = X[:rows]
    expected = np.broadcast_to(x, np.broadcast_shapes(x.shape, shape))
    np.testing.assert_array_equal(run(EXPAND, x, shape), expected)


def test_sizes_that_do_not_agree_are_not_repeated() -> None:
    with pytest.raises(InputError):
        run(EXPAND, X, [1, 3, 6])


@pytest.mark.parametrize("axis", [-5, -4, 3, 2**40])
@pytest.mark.parametrize("op", ["Unsqueeze", "ReduceSum", "Slice"])
def test_an_axis_that_is_none_fails_the_call(op: str, axis: int) -> None:
    more = "one, two, axis" if op == "Slice" else "axis"
    text = f"""graph (float[4,6] x, int64[1] axis) => (float[A,B] y) {{
        one = Constant<value_ints = [1]>()
        two = Constant<value_ints = [2]>()
        y = {op}(x, {more})
    }}"""
    rank = 3 if op == "Unsqueeze" else 2
    if -rank <= axis < rank:
        run(text, X, [axis])
        return
    with pytest.raises(TilewrightError) as caught:
        run(text, X, [axis])
    assert isinstance(caught.value, InputError | DeviceError)


def test_a_count_is_one_number_whatever_its_vector_is_declared_as() -> None:
    text = "graph (float[4,6] x, int64[K] k) => (float[4,N] y, int64[4,N] z) { y, z = TopK(x, k) }"
    np.testing.assert_array_equal(run(text, X, [2]), X[:, :-3:-1])
    with pytest.raises(InputError):
        run(text, X, [2, 2])


@pytest.mark.parametrize(
    "rest", ["y = ConstantOfShape(s)", "a = ConstantOfShape(s) y = ReduceSum(a)"]
)
def test_what_no_memory_holds_is_not_made_before_a_call(rest: str) -> None:
    text = f"graph (float[1] x) => (float[N] y) <int64[2] s = {{1048576, 1048576}}> {{ {rest} }}"
    model = tilewright.compile(onnx_models.parse(text), threads=1, jobs=1)
    if "Reduce" not in rest:
        with pytest.raises(DeviceError, match="no memory for 4398046511104 bytes"):
            model(np.zeros(1, np.float32))
