"""Sequences whose positions are data, beside onnxruntime."""

import numpy as np
import pytest

import tilewright as tw
from fakes import onnx_models
from tilewright.base.errors import InputError, ModelError, TilewrightError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(4)

AT = "graph (float[2] a, float[2] b, float[2] c, int64 p) => (float[2] y) { s = SequenceConstruct (a, b, c) y = SequenceAt (s, p) }"
AT_OF_SIZES = "graph (float[2] a, float[3] b, float[0] c, int64 p) => (float[N] y) { s = SequenceConstruct (a, b, c) y = SequenceAt (s, p) }"
ERASED = "graph (float[2] a, float[2] b, float[2] c, int64 p) => (float[4] y) { s = SequenceConstruct (a, b, c) t = SequenceErase (s, p) y = ConcatFromSequence <axis = 0> (t) }"
INSERTED = "graph (float[2] a, float[2] b, float[2] c, int64 p) => (float[6] y) { s = SequenceConstruct (a, b) t = SequenceInsert (s, c, p) y = ConcatFromSequence <axis = 0> (t) }"

ERASED_OF_SIZES = "graph (float[2] a, float[3] b, float[1] c, int64 p) => (float[N] y) { s = SequenceConstruct (a, b, c) t = SequenceErase (s, p) y = ConcatFromSequence <axis = 0> (t) }"
INSERTED_OF_SIZES = "graph (float[2] a, float[3] b, float[1] c, int64 p) => (float[N] y) { s = SequenceConstruct (a, b) t = SequenceInsert (s, c, p) y = ConcatFromSequence <axis = 0> (t) }"


def both(text: str, feeds: dict[str, np.ndarray]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    model = onnx_models.parse(text)
    session = runtime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, feeds)
    (found,) = evaluate(load(model), list(feeds.values()))
    np.testing.assert_array_equal(found, expected)


def feeds(sizes: tuple[int, ...], place: int) -> dict[str, np.ndarray]:
    items = [RNG.standard_normal(n).astype(np.float32) for n in sizes]
    return dict(zip("abcp", [*items, np.array(place)], strict=True))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("place", [-3, -2, -1, 0, 1, 2])
def test_an_item_is_read_erased_or_put_where_data_says(place: int) -> None:
    for text in (AT, ERASED, INSERTED):
        if text != INSERTED or place > -3:
            both(text, feeds((2, 2, 2), place))
    both(AT_OF_SIZES, feeds((2, 3, 0), place))
    both(ERASED_OF_SIZES, feeds((2, 3, 1), place))
    if place > -3:
        both(INSERTED_OF_SIZES, feeds((2, 3, 1), place))


@pytest.mark.parametrize("text", [AT, AT_OF_SIZES, ERASED, INSERTED])
def test_a_position_that_is_none_fails_the_call(text: str) -> None:
    sizes = (2, 3, 0) if text == AT_OF_SIZES else (2, 2, 2)
    graph = load(onnx_models.parse(text))
    for place in (3, -4):
        with pytest.raises((TilewrightError, IndexError)):
            evaluate(graph, list(feeds(sizes, place).values()))


def test_a_compiled_model_says_which_position_is_none() -> None:
    model = tw.compile(onnx_models.parse(ERASED))
    given = list(feeds((2, 2, 2), 1).values())
    np.testing.assert_array_equal(model(*given), np.concatenate([given[0], given[2]]))
    with pytest.raises(InputError, match="node 't"):
        model(*given[:3], np.array(5))


def test_data_may_say_how_many_pieces_there_are() -> None:
    text = "graph (float[6] x, int64 n) => (int64 y) { s = SplitToSequence (x, n) y = SequenceLength (s) }"
    graph = load(onnx_models.parse(text))
    for size, count in ((1, 6), (4, 2), (6, 1), (9, 1)):
        assert evaluate(graph, [np.zeros(6, np.float32), np.array(size)])[0] == count
    with pytest.raises(
        InputError, match=r"a piece has at least one element.*does not hold"
    ):
        evaluate(graph, [np.zeros(6, np.float32), np.array(0)])


@pytest.mark.parametrize("op", ["SequenceAt", "SequenceErase"])
def test_an_empty_sequence_has_no_position(op: str) -> None:
    rest = "" if op == "SequenceAt" else "y = SequenceLength (z)"
    made = "y" if op == "SequenceAt" else "z"
    text = f"""graph (int64 p) => (float[n] y) {{
      s = SequenceEmpty ()
      {made} = {op} (s, p)
      {rest}
    }}"""
    with pytest.raises(ModelError, match="the sequence is empty"):
        load(onnx_models.parse(text))
