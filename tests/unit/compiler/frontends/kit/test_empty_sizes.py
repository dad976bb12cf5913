"""Sizes of inputs that may be nothing: all, or else those along which nothing that reads an input needs an element."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes import onnx_models
from tilewright.base import symbolic
from tilewright.compiler.frontends.onnx.load import load

STEP = """graph (float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,P,4] past) => (float[B,2,S,4] y, float[B,2,T,4] present) {
  present = Concat<axis=2>(past, k)
  turned = Transpose<perm=[0,1,3,2]>(present)
  scores = MatMul(q, turned)
  weights = Softmax<axis=-1>(scores)
  y = MatMul(weights, present)
}"""


def lowest(body: str) -> dict[str, int | None]:
    """The least value of each symbol of the inputs."""
    graph = load(onnx_models.parse(body))
    symbols = {s for v in graph.inputs for d in v.type.shape for s in symbolic.symbols(d)}
    return {s.name: s.lower for s in symbols}


def attention(q: np.ndarray, keys: np.ndarray) -> np.ndarray:
    scores = q @ keys.swapaxes(2, 3)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True) @ keys


@pytest.mark.slow
def test_a_cache_may_begin_with_no_key() -> None:
    assert lowest(STEP) == {"B": 1, "S": 0, "P": 0}
    model = tw.compile(onnx_models.parse(STEP), threads=1, jobs=1)
    rng = np.random.default_rng(0)
    for past, new in ((0, 3), (2, 1), (0, 1), (5, 4)):
        q, k, held = (
            rng.standard_normal((1, 2, size, 4)).astype(np.float32)
            for size in (new, new, past)
        )
        y, present = model(q, k, held)
        np.testing.assert_array_equal(present, np.concatenate([held, k], 2))
        np.testing.assert_allclose(y, attention(q, present), rtol=1e-5, atol=1e-6)


# A row that is read, and broadcast: there must be one, so not every size may be nothing.
ROW = """begin = Constant<value_ints = [0]>()
  end = Constant<value_ints = [1]>()
  row = Slice(k, begin, end)
  t = Add(row, l)"""


@pytest.mark.parametrize(
    ("body", "least"),
    [
        ("z = Concat<axis=0>(x, y)", 0),
        ("w = Cast<to=1>(y) z = Concat<axis=0>(x, w)", 0),
        ("z = Concat<axis=0>(x, y) r = ReduceMax(y)", 1),
        ("w = Neg(y) z = Concat<axis=0>(x, w)", 0),
        ("w = Add(y, y) z = Concat<axis=0>(x, w)", 1),
    ],
)
def test_what_is_read_otherwise_has_an_element(body: str, least: int) -> None:
    outputs = "float[?, ?] z, float[?, ?] r" if " r = " in body else "float[?, ?] z"
    text = f"graph (float[4,4] x, float[M,4] y, float[K,4] k, float[L,4] l) => ({outputs}, float[?,?] t) {{ {body} {ROW} }}"
    assert lowest(text) == {"M": least, "K": 1, "L": 1}
    text = f"graph (float[4,4] x, float[M,4] y) => ({outputs}) {{ {body} }}"
    assert lowest(text) == {"M": 0}


def test_one_name_of_two_inputs_may_be_nothing_where_both_are_joined() -> None:
    text = """graph (float[4,4] x, float[M,4] y, float[M,4] u, float[K,4] k, float[L,4] l) => (float[?,?] z, float[?,?] w, float[?,?] t) {{
      z = Concat<axis=0>(x, y)
      w = {}
      {}
    }}"""
    assert lowest(text.format("Concat<axis=0>(u, x)", ROW)) == {"M": 0, "K": 1, "L": 1}
    assert lowest(text.format("Neg(u)", ROW)) == {"M": 1, "K": 1, "L": 1}


PICKED = "graph (float[A,B] x, int64[C,D] i) => (float[C,D] y) { y = GatherElements<axis=1>(x, i) }"
WRITTEN = """graph (float[A,B] x, int64[C,D] i, float[E,F] u) => (float[A,B] y) {
  y = ScatterElements<axis=1, reduction="add">(x, i, u)
}"""
ROWS = """graph (float[A,B] x, int64[C,1] i, float[E,F] u) => (float[A,B] y) {
  y = ScatterND(x, i, u)
}"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_nothing_may_be_picked_or_written_of_any_size(engine: str, tmp_path: Path) -> None:
    """Every size is open: of indices, of updates, and of what is picked from where nothing is."""
    assert lowest(PICKED) == {"A": 0, "B": 0, "C": 1, "D": 1}
    assert lowest(WRITTEN) == {"A": 1, "B": 1, "C": 0, "D": 0}
    assert lowest(ROWS) == {"A": 1, "B": 1, "C": 0}
    sizes = ((3, 4), (0, 4), (3, 0), (2, 0), (0, 3), (0, 0))
    for text in (PICKED, WRITTEN, ROWS):
        path = tmp_path / "model.vmfb"
        tw.compile(onnx_models.parse(text), threads=1, jobs=1).save(path)
        session = tw.load(path, engine=engine, threads=1)
        for x_size, size in itertools.product(sizes, sizes):
            x = np.arange(math.prod(x_size), dtype=np.float32).reshape(x_size)
            if text == ROWS:
                size = size[0], x_size[1]
                indices = np.zeros((size[0], 1), np.int64)
            else:
                indices = np.zeros(size, np.int64)
            updates = np.ones(size, np.float32)
            feeds = {"x": x, "i": indices} | ({} if text == PICKED else {"u": updates})
            if (text != ROWS and size[0] > x_size[0]) or (indices.size and not x.size):
                continue  # beyond the end
            found, expected = np.asarray(session(**feeds)), reference(text, feeds)
            assert found.shape == expected.shape
            np.testing.assert_array_equal(found, expected)


def reference(text: str, feeds: dict[str, np.ndarray]) -> np.ndarray:
    x, indices, updates = feeds["x"].copy(), feeds["i"], feeds.get("u")
    if updates is None:
        return np.take_along_axis(x[: len(indices)], indices, 1)
    if text == WRITTEN:
        for row, column in np.ndindex(indices.shape):
            x[row, indices[row, column]] += updates[row, column]
    else:
        for place, row in zip(indices[:, 0], updates, strict=True):
            x[place] = row
    return x


PLACES = """graph (float[B,2,S,4] q, float[B,2,S,4] k, float[B,2,P,4] past, int64[B,L] seen) => (float[B,2,S,4] y) {
  present = Concat<axis=2>(past, k)
  turned = Transpose<perm=[0,1,3,2]>(present)
  scores = MatMul(q, turned)
  held = Shape<start=2,end=3>(past)
  whole = Shape<start=1,end=2>(seen)
  first = Squeeze(held)
  last = Squeeze(whole)
  one = Constant<value_int=1>()
  places = Range(first, last, one)
  cast = Cast<to=1>(places)
  axis = Constant<value_ints=[1]>()
  column = Unsqueeze(cast, axis)
  added = Add(scores, column)
  weights = Softmax<axis=-1>(added)
  y = MatMul(weights, present)
}"""


@pytest.mark.slow
def test_places_behind_a_cache_are_as_many_as_new_keys_in_a_call_that_runs() -> None:
    model = tw.compile(onnx_models.parse(PLACES), threads=1, jobs=1)
    rng = np.random.default_rng(1)
    for past, new in ((0, 3), (2, 1)):
        q, k, held = (
            rng.standard_normal((1, 2, size, 4)).astype(np.float32)
            for size in (new, new, past)
        )
        # What is added to a whole row changes nothing.
        y = model(q, k, held, np.ones((1, past + new), np.int64))
        np.testing.assert_allclose(
            y, attention(q, np.concatenate([held, k], 2)), rtol=1e-4, atol=1e-5
        )
