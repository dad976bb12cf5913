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
    """The three best of relu(2 x); `operator` stands in the middle."""
    two, three = np.float32(2), np.array([3])
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["doubled"], name="double"),
        helper.make_node(operator, ["doubled"], ["positive"], name="middle"),
        helper.make_node("TopK", ["positive", "k"], ["best", "where"], name="best"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 10]),
        helper.make_tensor_value_info("best", TensorProto.FLOAT, ["rows", 3]),
        helper.make_tensor_value_info("where", TensorProto.INT64, ["rows", 3]),
    ]
    weights = [numpy_helper.from_array(two, "two"), numpy_helper.from_array(three, "k")]
    graph = helper.make_graph(nodes, "best_three", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def main() -> None:
    """Ask first, run with a warning, and see an error that lists everything."""
    print("--- before any work")
    print(tw.coverage(build("Relu")))

    print("--- compiled with a warning")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = tw.compile(build("Relu"))
    print(*(warning.message for warning in caught), sep="\n")
    print(
        "steps:",
        ", ".join(f"{s.kind} {s.target}" for s in model.session.variant.plan.steps),
    )
    best, where = model(np.arange(20, dtype=np.float32).reshape(2, 10) % 7)
    print(best, where, sep="\n")

    print("--- an operator nobody knows is an error, with all others of its kind")
    try:
        tw.compile(build("MakeItBetter"))
    except tw.ModelError as error:
        print(error)


if __name__ == "__main__":
    main()
