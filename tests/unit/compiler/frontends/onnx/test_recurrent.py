"""RNN, GRU and LSTM: written out or as a loop, in all their forms, they give what onnxruntime gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from fakes.contributed import agrees
from fakes.onnx_models import run_node
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

onnxruntime = pytest.importorskip("onnxruntime")
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
INPUTS, HIDDEN, BATCH = 3, 5, 2


@dataclass(frozen=True)
class Network:
    """One node, its optional operands and attributes."""

    op: str
    direction: str = "forward"
    layout: int = 0
    lengths: bool = False
    states: bool = False
    bias: bool = True
    peepholes: bool = False
    outputs: str = "yhc"
    attributes: tuple[tuple[str, object], ...] = ()

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def shape(self, *sizes: object) -> list[object]:
        """Sizes that begin with an axis and the batch, in the order of the layout."""
        first, batch, *rest = sizes
        return [batch, first, *rest] if self.layout else list(sizes)

    def model(self, steps: int | str) -> onnx.ModelProto:
        rng = np.random.default_rng(7)
        gates, count = GATES[self.op], self.directions
        sizes = {
            "w": (count, gates * HIDDEN, INPUTS),
            "r": (count, gates * HIDDEN, HIDDEN),
            "b": (count, 2 * gates * HIDDEN),
            "p": (count, 3 * HIDDEN),
        }
        given = {
            "w": True, "r": True, "b": self.bias, "p": self.peepholes and self.op == "LSTM",
        }  # fmt: skip
        held = {
            name: rng.standard_normal(sizes[name]).astype(np.float32) / 2
            for name, is_given in given.items()
            if is_given
        }
        state = self.shape(count, BATCH, HIDDEN)
        types = {"x": self.shape(steps, BATCH, INPUTS)}
        if self.states:
            types |= {"h": state} | ({"c": state} if self.op == "LSTM" else {})
        rows = [
            helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in types.items()
        ]
        if self.lengths:
            rows.append(helper.make_tensor_value_info("n", TensorProto.INT32, [BATCH]))
        names = {*held, *types, *(["n"] if self.lengths else [])}
        order = ("x", "w", "r", "b", "n", "h", "c", "p")[: 8 if self.op == "LSTM" else 6]
        outputs = [
            f"out_{letter}" if letter in self.outputs else ""
            for letter in ("yhc" if self.op == "LSTM" else "yh")
        ]
        node = helper.make_node(
            self.op, [n if n in names else "" for n in order], outputs, hidden_size=HIDDEN,
            direction=self.direction, **dict(self.attributes),
            **({"layout": 1} if self.layout else {}),
        )  # fmt: skip
        graph = helper.make_graph(
            [node],
            "g",
            rows,
            [
                helper.make_tensor_value_info(n, TensorProto.FLOAT, None)
                for n in outputs
                if n
            ],
            [numpy_helper.from_array(a, n) for n, a in held.items()],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8
        )

    def inputs(self, steps: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(steps)
        shapes = {"x": (steps, BATCH, INPUTS)}
        if self.states:
            shapes["h"] = (self.directions, BATCH, HIDDEN)
            if self.op == "LSTM":
                shapes["c"] = shapes["h"]
        found = {
            name: rng.standard_normal(shape).astype(np.float32)
            for name, shape in shapes.items()
        }
        if self.lengths:
            found["n"] = np.array([steps, max(steps // 2, 1)], np.int32)
        return found


def expected(network: Network, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(
        network.model("T").SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, inputs)


FORMS = [
    *(Network(op, direction) for op in GATES for direction in ("reverse", "bidirectional")),
    *(Network(op, "bidirectional", lengths=True, states=True) for op in GATES),
    *(Network(op, bias=False, states=True, outputs="h") for op in GATES),
    Network("LSTM", outputs="c"),
    Network("LSTM", outputs="y"),
    Network("LSTM", "bidirectional", peepholes=True),
    Network("LSTM", attributes=(("input_forget", 1),), peepholes=True),
    Network("GRU", attributes=(("linear_before_reset", 1),)),
    Network("GRU", "bidirectional", lengths=True, attributes=(("linear_before_reset", 1),)),
    *(Network(op, "reverse", attributes=(("clip", 0.3),)) for op in GATES),
    Network(
        "LSTM",
        "bidirectional",
        attributes=(
            (
                "activations",
                ["HardSigmoid", "Relu", "Softsign", "Sigmoid", "Affine", "Tanh"],
            ),
            ("activation_alpha", [0.3, 0.7]),
            ("activation_beta", [0.4, 0.2]),
        ),
    ),
    Network(
        "RNN",
        attributes=(("activations", ["LeakyRelu"]), ("activation_alpha", [0.2])),
    ),
    Network(
        "GRU",
        attributes=(
            ("activations", ["HardSigmoid", "Elu"]),
            ("activation_alpha", [0.3, 0.6]),
            ("activation_beta", [0.4]),
        ),
    ),
]


def check(network: Network, steps: int, length: int | str) -> bool:
    """Compare with onnxruntime; whether there is a loop."""
    inputs = network.inputs(steps)
    graph = load(network.model(length))
    found = evaluate(graph, [inputs[v.name] for v in graph.inputs])
    for one, other in zip(found, expected(network, inputs), strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return any(node.op == "while" for node in graph)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("network", FORMS, ids=range(len(FORMS)))
def test_a_loop_gives_what_onnxruntime_gives(network: Network) -> None:
    assert check(network, 3, "T")


@pytest.mark.sampled(5)
@pytest.mark.parametrize("network", FORMS, ids=range(len(FORMS)))
def test_few_steps_are_written_out_and_many_are_a_loop(network: Network) -> None:
    for steps in (1, 4, 30):
        assert check(network, steps, "T")
        assert check(network, steps, steps) is (steps == 30)


@pytest.mark.parametrize("op", GATES)
def test_the_batch_may_come_first(op: str) -> None:
    """onnxruntime has no such layout: the operands and results of the other one, turned."""
    plain = Network(op, "bidirectional", lengths=True, states=True)
    turned = Network(op, "bidirectional", layout=1, lengths=True, states=True)
    inputs = plain.inputs(6)
    wanted = expected(plain, inputs)
    graph = load(turned.model("T"))
    given = {n: a if a.ndim == 1 else np.swapaxes(a, 0, 1) for n, a in inputs.items()}
    y, *states = evaluate(graph, [given[v.name] for v in graph.inputs])
    np.testing.assert_allclose(y, wanted[0].transpose(2, 0, 1, 3), rtol=1e-4, atol=1e-5)
    for one, other in zip(states, wanted[1:], strict=True):
        np.testing.assert_allclose(one, other.swapaxes(0, 1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
def test_no_step_at_all_leaves_the_states_as_they_were(op: str) -> None:
    network = Network(op, "bidirectional", states=True)
    inputs = network.inputs(0)
    graph = load(network.model(0))
    y, *states = evaluate(graph, [inputs[v.name] for v in graph.inputs])
    assert y.shape == (0, 2, BATCH, HIDDEN)
    for one, name in zip(states, ("h", "c"), strict=False):
        np.testing.assert_array_equal(one, inputs[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        Network("LSTM", "bidirectional", lengths=True, states=True, peepholes=True),
        Network("GRU", "reverse", states=True),
        Network("RNN", lengths=True, outputs="h"),
    ],
    ids=["lstm", "gru", "rnn"],
)
def test_one_compiled_network_takes_every_length(network: Network) -> None:
    model = tw.compile(network.model("T"))
    for steps in (1, 2, 17, 64):
        inputs = network.inputs(steps)
        results = model(**inputs)
        found = results if isinstance(results, tuple) else (results,)
        for one, other in zip(found, expected(network, inputs), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_values_that_are_not_numbers_pass_through_the_loop() -> None:
    """In their own sequence, from their step on, and not from behind its end."""
    network = Network("LSTM", lengths=True)
    inputs = network.inputs(8)
    inputs["x"][3, 0, 1] = np.nan
    inputs["x"][6, 1, 0] = np.nan
    graph = load(network.model("T"))
    y, *states = evaluate(graph, [inputs[v.name] for v in graph.inputs])
    assert np.isnan(y[3:, 0, 0]).all()
    assert np.isfinite(y[:3]).all()
    assert np.isfinite(y[:, 0, 1]).all()
    for state in states:
        assert np.isnan(state[0, 0]).all()
        assert np.isfinite(state[0, 1]).all()


@pytest.mark.thinned(4)
@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_sequence_of_no_steps_ends_in_the_state_that_it_begins_with(
    op, direction
) -> None:
    """By the equations; onnxruntime says 0 (docs/numerics.md).  The one beside it is computed as ever."""
    network = Network(op, direction, lengths=True, states=True)
    inputs = network.inputs(3)
    inputs["n"] = np.array([0, 2], np.int32)
    graph = load(network.model("T"))
    y, *states = evaluate(graph, [inputs[v.name] for v in graph.inputs])
    assert not y[:, :, 0].any()
    for found, begin in zip(states, (inputs[n] for n in "hc" if n in inputs), strict=True):
        np.testing.assert_array_equal(found[:, 0], begin[:, 0])
    wanted_y, *wanted = expected(network, inputs)
    np.testing.assert_allclose(y, wanted_y, rtol=1e-4, atol=1e-5)
    for found, other in zip(states, wanted, strict=True):
        assert not other[:, 0].any()
        np.testing.assert_allclose(found[:, 1], other[:, 1], rtol=1e-4, atol=1e-5)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("by_column", [False, True])
def test_a_network_with_weights_of_bytes(direction: str, by_column: bool) -> None:
    rng = np.random.default_rng(6)
    count, depth, hidden, steps = 2 if direction == "bidirectional" else 1, 5, 3, 4
    x = rng.standard_normal((steps, 2, depth)).astype(np.float32)
    weights = [rng.integers(-90, 90, (count, rows, 4 * hidden)) for rows in (depth, hidden)]
    arrays: list[np.ndarray | None] = [
        x,
        *(w.astype(np.int8) for w in weights),
        rng.standard_normal((count, 8 * hidden)).astype(np.float32),
        None,
        None,
        None,
        None,
    ]
    for _ in range(2):
        shape = (count, 4 * hidden) if by_column else (count,)
        arrays.append(rng.uniform(0.003, 0.006, shape).astype(np.float32))
        arrays.append(np.zeros(shape, np.int8))
    constants = [1, 2, 8, 9, 10, 11]
    agrees(
        "DynamicQuantizeLSTM", arrays, outputs=3, hidden_size=hidden, direction=direction,
        constants=constants, atol=0.02, rtol=0.02,
    )  # fmt: skip


def test_the_activations_that_the_schema_of_rnn_names_for_both_directions() -> None:
    """Exporters write defaults out: two names, whatever the direction."""
    rng = np.random.default_rng(8)
    shapes = ((4, BATCH, INPUTS), (1, HIDDEN, INPUTS), (1, HIDDEN, HIDDEN))
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    options = {"hidden_size": HIDDEN, "outputs": 2}
    plain = run_node("RNN", arrays, **options)
    written = run_node("RNN", arrays, **options, activations=["Tanh", "Tanh"])
    for one, other in zip(plain, written, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ModelError, match="has 3 entries"):
        run_node("RNN", arrays, **options, activations=["Tanh"] * 3)
