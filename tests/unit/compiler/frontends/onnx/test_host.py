"""What the host does beside a compiled model: when a step runs, on what, and what it cannot do."""

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import SkipNodeError, UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.onnx.host import HostProgram, HostStep, Known, as_text
from tilewright.compiler.frontends.onnx.values import HostValue, Nothing, TensorSequence
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType

VECTOR = TensorType(dtypes.f32, (3,))


@pytest.fixture
def e() -> NodeMaker:
    return NodeMaker(Graph("host"))


def an_input(e: NodeMaker, name: str = "x") -> Tensor:
    value = Value(VECTOR, name)
    e.graph.inputs.append(value)
    return e.of_value(value)


def test_a_step_puts_its_results_under_their_names() -> None:
    values: dict[str, object] = {"a": 3}
    step = HostStep(lambda x, y: (x + y, x * y), ("a", Known(4)), ("sum", "product"))
    step.run(values)
    assert values == {"a": 3, "sum": 7, "product": 12}


def test_a_step_that_gives_too_few_results_is_noticed() -> None:
    with pytest.raises(ValueError, match="shorter"):
        HostStep(lambda: (1,), (), ("one", "two")).run({})


def test_what_reads_inputs_runs_before_and_makes_inputs_of_the_graph(e: NodeMaker) -> None:
    host = HostProgram()
    text = HostValue("words", (3,))
    (numbers,) = host.apply(e, lambda words: (len(words),), [text], [VECTOR])
    assert isinstance(numbers, Tensor)
    assert numbers.type == VECTOR
    assert [v.name for v in e.graph.inputs] == ["host.1"]
    assert [s.results for s in host.before] == [("host.1",)]
    assert host.after == []


def test_what_reads_computed_tensors_runs_after_and_is_read_from_an_output(
    e: NodeMaker,
) -> None:
    host = HostProgram()
    computed = e.op("neg", an_input(e))
    (first,) = host.apply(e, lambda x: (x,), [computed], [(3,)])
    (second,) = host.apply(e, lambda x: (x,), [computed], [VECTOR])
    assert [type(held) for held in (first, second)] == [HostValue, HostValue]
    assert first.late
    assert second.late
    # The tensor is read once, whoever needs it.
    assert list(host.reads.values()) == [computed]
    assert [step.sources for step in host.after] == [tuple(host.reads)] * 2
    assert host.before == []


def test_what_follows_a_late_step_is_late_too(e: NodeMaker) -> None:
    host = HostProgram()
    (late,) = host.apply(e, lambda x: (x,), [e.op("neg", an_input(e))], [None])
    (later,) = host.apply(e, lambda x: (x,), [late], [None])
    assert isinstance(later, HostValue)
    assert later.late
    assert len(host.after) == 2


def test_what_the_model_holds_is_computed_at_once(e: NodeMaker) -> None:
    host = HostProgram()
    words = HostValue("", (2,), constant=np.array(["a", "bc"], object))
    number = e.constant(np.array([5.0], np.float32))

    def lengths(text: np.ndarray, extra: np.ndarray, absent: object) -> tuple[object, ...]:
        assert absent is None
        return np.array([len(t) for t in text], np.float32) + extra, text[::-1]

    held, turned = host.apply(
        e, lengths, [words, number, Nothing()], [TensorType(dtypes.f32, (2,)), (2,)]
    )
    assert held.array.tolist() == [6, 7]
    assert turned.constant.tolist() == ["bc", "a"]
    assert (host.before, host.after, e.graph.inputs) == ([], [], [])


def test_sequences_and_unknown_tensors_are_not_taken(e: NodeMaker) -> None:
    host = HostProgram()
    with pytest.raises(UnsupportedError, match="sequences"):
        host.apply(e, lambda x: (x,), [TensorSequence((), None)], [None])
    stand_in = Tensor(VECTOR, "s", Value(VECTOR, "s"), stand_in=True)
    with pytest.raises(SkipNodeError):
        host.apply(e, lambda x: (x,), [stand_in], [None])


def test_nothing_is_computed_inside_of_a_branch(e: NodeMaker) -> None:
    x = an_input(e)
    with e.region(), pytest.raises(UnsupportedError, match="inside of a branch"):
        HostProgram().apply(e, lambda x: (x,), [x], [None])


def test_bytes_are_text_whatever_they_hold() -> None:
    found = as_text(np.array([[b"a\xc3\xa4", "ö"], [b"\xff", 3]], object))
    assert found.tolist() == [["aä", "ö"], ["�", "3"]]
    assert as_text(np.zeros((0, 2), object)).shape == (0, 2)
