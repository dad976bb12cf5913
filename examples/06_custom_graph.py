"""Build a graph without ONNX, check it on the numpy oracle, compile it.

    python examples/06_custom_graph.py

A front end for a format of your own is this, with your format's nodes instead of the loop.
"""

from __future__ import annotations

import numpy as np

import tilewright as tw
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.graph.text import to_text
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.ops.builder import GraphBuilder


def rotate(b: GraphBuilder, x: Value, angle: Value) -> Value:
    """Rotate pairs of features: (a, b) → (a cos - b sin, b cos + a sin)."""
    low, high = (
        b.slice(x, axes=(1,), starts=(start,), sizes=(8,), steps=(1,)) for start in (0, 8)
    )
    cos, sin = b.cos(angle), b.sin(angle)
    first = b.sub(b.mul(low, cos), b.mul(high, sin))
    second = b.add(b.mul(high, cos), b.mul(low, sin))
    return b.concat(first, second, axis=1)


def build(layers: int) -> Graph:
    """A stack of rotations and gated projections over any number of points."""
    random = np.random.default_rng(0)
    points = symbol("points", 1)
    b = GraphBuilder(Graph("gated_rotations"))
    x = b.input("x", TensorType(f32, (points, 16)))
    angle = b.input("angle", TensorType(f32, (points, 1)))
    hidden = x
    for layer in range(layers):
        weights = random.standard_normal((16, 16), np.float32) / 4
        projected = b.matmul(rotate(b, hidden, angle), b.constant(weights, f"w{layer}"))
        hidden = b.add(hidden, b.mul(b.silu(projected), hidden))
    b.output("y", b.rms_norm(hidden, axis=1, epsilon=1e-5))
    return b.graph


def main() -> None:
    """Build, verify, evaluate, compile, compare."""
    graph = build(layers=2)
    verify(graph)
    print(to_text(graph))

    random = np.random.default_rng(1)
    x, angle = (random.standard_normal((5, n), np.float32) for n in (16, 1))
    (expected,) = evaluate(graph, [x, angle])
    model = tw.compile(graph)
    y = model(x=x, angle=angle)
    print(f"{len(model.kernels)} kernels: {', '.join(k.name for k in model.kernels)}")
    print(f"largest difference to the oracle: {np.abs(y - expected).max():.1e}")


if __name__ == "__main__":
    main()
