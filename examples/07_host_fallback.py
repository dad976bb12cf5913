"""What happens to an operator without a kernel: it runs anyway, and says what that costs.

python examples/07_host_fallback.py
"""

from __future__ import annotations

import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw


def build(operator: str) -> onnx.ModelProto:
    """How much 2 x stretches space; `operator` stands in the middle."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["doubled"], name="double"),
        helper.make_node(operator, ["doubled"], ["volume"], name="middle"),
        helper.make_node("Abs", ["volume"], ["stretch"], name="size"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["maps", 6, 6]),
        helper.make_tensor_value_info("stretch", TensorProto.FLOAT, ["maps"]),
    ]
    weights = [numpy_helper.from_array(np.float32(2), "two")]
    graph = helper.make_graph(nodes, "stretch", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def main() -> None:
    """Ask first, run with a warning, and see an error that lists everything."""
    print("--- before any work")
    print(tw.coverage(build("Det")))

    print("--- compiled with a warning")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = tw.compile(build("Det"))
    print(*(warning.message for warning in caught), sep="\n")
    print(
        "steps:",
        ", ".join(f"{s.kind} {s.target}" for s in model.session.variant.plan.steps),
    )
    print(model(np.stack([np.eye(6), np.diag(np.arange(6) - 7)]).astype(np.float32)))

    print("--- an operator nobody knows is an error, with all others of its kind")
    try:
        tw.compile(build("MakeItBetter"))
    except tw.ModelError as error:
        print(error)


if __name__ == "__main__":
    main()
