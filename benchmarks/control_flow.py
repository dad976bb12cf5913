"""Loops in compiled programs: recurrent networks and short trips beside onnxruntime, layers in a loop beside layers written out.

Calls alternate; each figure is the least of many. Bars: a recurrent network over sequences of 1, 17 and 200 steps, compiled once,
takes at most as long as onnxruntime on as many threads, also where its weights are inputs; so do loops whose trips do next to nothing, where what the host does for a trip shows;
a loop over layers with stacked weights at most 1.1 times the layers written out::

    TILEWRIGHT_THREADS=1 python benchmarks/control_flow.py
    TILEWRIGHT_THREADS=1 python benchmarks/control_flow.py --only GRU
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper, parser

import tilewright as tw
from tilewright.base import knobs

GATES: Final = {"LSTM": 4, "GRU": 3, "RNN": 1}
STEPS: Final = (1, 17, 200)
ROUNDS: Final = 60
_SUMMARY: Final = (
    "Recurrent networks beside onnxruntime, layers in a loop beside layers written out."
)
_F32: Final = TensorProto.FLOAT
_OPSET: Final = 17
_GIVEN: Final = """<ir_version: 8, opset_import: ["" : 17]>
g (float[T, 8, 256] xs, float[8, 256] h, float[512, 256] w, float[256] b)
  => (float[8, 256] y, float[T, 8, 256] r) {
  y, r = Scan <num_scan_inputs = 1, body = step (float[8, 256] s, float[8, 256] x)
    => (float[8, 256] t, float[8, 256] o) {
    k = Concat <axis = 1> (s, x)
    m = MatMul (k, w)
    z = Add (m, b)
    t = Tanh (z)
    o = Identity (t)
  }> (h, xs)
}"""
_TRIPS: Final = {
    "one is added": """g (int64 n, float[4] x) => (float[4] y) {
      c = Constant <value: tensor = bool {1}> ()
      one = Constant <value: tensor = float {1}> ()
      y = Loop (n, c, x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
        on = Identity (go)
        t = Add (s, one)
      }>
    }""",
    "a branch": """g (int64 n, float[4] x) => (float[4] y) {
      c = Constant <value: tensor = bool {1}> ()
      two = Constant <value: tensor = int64 {2}> ()
      zero = Constant <value: tensor = int64 {0}> ()
      y = Loop (n, c, x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
        on = Identity (go)
        m = Mod (i, two)
        e = Equal (m, zero)
        t = If (e) <
          then_branch = t1 () => (float[4] p) { p0 = Softmax <axis = 0> (s) p = Softmax <axis = 0> (p0) },
          else_branch = e1 () => (float[4] q) { q0 = Softmax <axis = 0> (s) q = Exp (q0) }
        >
      }>
    }""",
    "a list gets an item": """g (int64 n, float[4] x) => (float[K] y) {
      c = Constant <value: tensor = bool {1}> ()
      e = SequenceEmpty <dtype = 1> ()
      q = Loop (n, c, e) <body = b (int64 i, bool go, seq(float[4]) s) => (bool on, seq(float[4]) t) {
        on = Identity (go)
        t = SequenceInsert (s, x)
      }>
      y = ConcatFromSequence <axis = 0> (q)
    }""",
    "a size is read": """g (int64 n, float[4] x) => (float[4] y) {
      c = Constant <value: tensor = bool {1}> ()
      last = Constant <value_ints = [1]> ()
      y = Loop (n, c, x) <body = b (int64 i, bool go, float[4] s) => (bool on, float[4] t) {
        on = Identity (go)
        places = NonZero (s)
        shape = Shape (places)
        count = Gather (shape, last)
        f = Cast <to = 1> (count)
        t = Add (s, f)
      }>
    }""",
}


def main() -> None:
    """Print a row per case: what both take, and the ratio beside its bar."""
    parser = argparse.ArgumentParser(description=_SUMMARY)
    parser.add_argument("--only", default="", help="cases whose name has this")
    only = parser.parse_args().only
    threads = knobs.THREADS.get() or None
    missed = 0
    for name, bar, ours, other in [
        *recurrent_cases(only, threads),
        *given_cases(only, threads),
        *trip_cases(only, threads),
        *layer_cases(only),
    ]:
        first, second = times(ours, other)
        ratio = first / second
        missed += ratio > bar
        row = f"{first * 1e6:9.0f} us  {second * 1e6:9.0f} us  {ratio:5.2f}  (bar {bar})"
        print(f"{name:34}{row}", flush=True)
    print(f"{missed} above their bars")


Case = tuple[str, float, Callable[[], object], Callable[[], object]]


def times(ours: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """The least time of a call of each, in seconds, in turns."""
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for place, call in enumerate((ours, other)):
            start = time.perf_counter()
            call()
            least[place] = min(least[place], time.perf_counter() - start)
    return least[0], least[1]


def recurrent_cases(only: str, threads: int | None) -> Iterator[Case]:
    """Networks of one layer over any number of steps, and calls with some numbers of them."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    for op in GATES:
        for batch in (1, 4):
            for hidden in (128, 256):
                name = f"{op} batch {batch} hidden {hidden}"
                if only not in name:
                    continue
                proto = recurrent(op, batch, hidden)
                ours = tw.compile(proto)
                peer = onnxruntime.InferenceSession(
                    proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
                )
                for steps in STEPS:
                    x = _normal((steps, batch, hidden), steps)
                    yield (
                        f"{name} steps {steps}",
                        1.0,
                        lambda x=x, ours=ours: ours(x),
                        lambda x=x, peer=peer: peer.run(None, {"x": x}),
                    )


def given_cases(only: str, threads: int | None) -> Iterator[Case]:
    """A scan whose weights are inputs: packed once per call, not once per step."""
    if only not in (name := "scan over given weights"):
        return
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    proto = parser.parse_model(_GIVEN)
    ours = tw.compile(proto)
    peer = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    weights = {"w": _normal((512, 256), 1) / 30, "b": _normal((256,), 2)}
    for steps in STEPS:
        given = {"xs": _normal((steps, 8, 256), 3), "h": _normal((8, 256), 4), **weights}
        for a, b in zip(ours(**given), peer.run(None, given), strict=True):
            np.testing.assert_allclose(a, np.asarray(b), rtol=1e-3, atol=1e-3)
        yield (
            f"{name} steps {steps}",
            1.0,
            lambda given=given: ours(**given),
            lambda given=given: peer.run(None, given),
        )


def trip_cases(only: str, threads: int | None) -> Iterator[Case]:
    """A thousand trips that do next to nothing."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    for subject, text in _TRIPS.items():
        if only not in (name := f"1000 trips, {subject}"):
            continue
        proto = parser.parse_model(
            f'<ir_version: 8, opset_import: ["" : {_OPSET}]>\n{text}'
        )
        ours = tw.compile(proto)
        peer = onnxruntime.InferenceSession(
            proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        given = {"n": np.array(1000), "x": _normal((4,), 5)}
        np.testing.assert_allclose(
            ours(**given), np.asarray(peer.run(None, given)[0]), rtol=1e-3
        )
        yield (
            name,
            1.0,
            lambda ours=ours, given=given: ours(**given),
            lambda peer=peer, given=given: peer.run(None, given),
        )


def layer_cases(only: str) -> Iterator[Case]:
    """A loop over 24 layers, beside the same layers one after the other."""
    for rows in (1, 64):
        name = f"24 layers, {rows} rows"
        if only not in name:
            continue
        ours, other = (tw.compile(layers(rows, in_loop=flag)) for flag in (True, False))
        x = _normal((rows, 256), rows)
        np.testing.assert_allclose(ours(x), other(x), rtol=1e-3, atol=1e-3)
        yield name, 1.1, lambda x=x, m=ours: m(x), lambda x=x, m=other: m(x)


def _normal(shape: tuple[int, ...], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def recurrent(op: str, batch: int, hidden: int) -> onnx.ModelProto:
    """One layer with a bias; the number of steps is a symbol."""
    gates = GATES[op] * hidden
    weights = {
        "w": _normal((1, gates, hidden), 1) / np.sqrt(hidden),
        "r": _normal((1, gates, hidden), 2) / np.sqrt(hidden),
        "b": _normal((1, 2 * gates), 3) / 10,
    }
    outputs = ["y", "y_h", "y_c"] if op == "LSTM" else ["y", "y_h"]
    node = helper.make_node(op, ["x", *weights], outputs, hidden_size=hidden)
    x = helper.make_tensor_value_info("x", _F32, ["steps", batch, hidden])
    return _model([node], [x], outputs, weights)


def layers(rows: int, *, in_loop: bool) -> onnx.ModelProto:
    """24 feed-forward layers of 256 and 1024 features, as a Scan over stacked weights or written out."""
    count, width, inner = 24, 256, 1024
    stacks = {
        "g": _normal((count, width), 1),
        "u": _normal((count, width, inner), 2) / 30,
        "d": _normal((count, inner, width), 3) / 30,
    }
    x = helper.make_tensor_value_info("x", _F32, [rows, width])
    if not in_loop:
        nodes: list[onnx.NodeProto] = []
        weights: dict[str, np.ndarray] = {}
        for i in range(count):
            weights |= {f"{name}{i}": stack[i] for name, stack in stacks.items()}
            source, target = (
                (f"h{i}" if i else "x"),
                (f"h{i + 1}" if i + 1 < count else "y"),
            )
            nodes += _layer(source, [f"{name}{i}" for name in stacks], target, f"t{i}")
        return _model(nodes, [x], ["y"], weights)
    inputs = [
        helper.make_tensor_value_info(name, _F32, shape)
        for name, shape in (
            *[("h", [rows, width]), ("gi", [width])],
            *[("ui", [width, inner]), ("di", [inner, width])],
        )
    ]
    after = [helper.make_tensor_value_info("h2", _F32, [rows, width])]
    body = helper.make_graph(
        _layer("h", ["gi", "ui", "di"], "h2", "t"), "body", inputs, after
    )
    node = helper.make_node("Scan", ["x", *stacks], ["y"], body=body, num_scan_inputs=3)
    return _model([node], [x], ["y"], stacks)


def _layer(x: str, weights: list[str], y: str, stem: str) -> list[onnx.NodeProto]:
    gamma, up, down = weights
    a, b, c, d = (f"{stem}_{i}" for i in range(4))
    return [
        helper.make_node("LayerNormalization", [x, gamma], [a]),
        helper.make_node("MatMul", [a, up], [b]),
        helper.make_node("Relu", [b], [c]),
        helper.make_node("MatMul", [c, down], [d]),
        helper.make_node("Add", [d, x], [y]),
    ]


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[str],
    weights: dict[str, np.ndarray],
) -> onnx.ModelProto:
    held = [
        numpy_helper.from_array(array.astype(np.float32), name)
        for name, array in weights.items()
    ]
    rows = [helper.make_tensor_value_info(name, _F32, None) for name in outputs]
    graph = helper.make_graph(nodes, "g", inputs, rows, held)
    opset = helper.make_opsetid("", _OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


if __name__ == "__main__":
    main()
