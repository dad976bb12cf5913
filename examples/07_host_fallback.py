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
    """How often three words stand in texts, by the square; `operator` counts them, in the middle."""
    words = {"mode": "TF", "ngram_counts": [0], "ngram_indexes": [0, 1, 2]}
    words |= {"min_gram_length": 1, "max_gram_length": 1, "max_skip_count": 0}
    words["pool_int64s"] = [2, 4, 6]
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["doubled"], name="double"),
        helper.make_node(operator, ["doubled"], ["counts"], name="middle", **words),
        helper.make_node("Mul", ["counts", "counts"], ["squares"], name="square"),
    ]
    ends = [
        helper.make_tensor_value_info("x", TensorProto.INT64, ["texts", 5]),
        helper.make_tensor_value_info("squares", TensorProto.FLOAT, ["texts", 3]),
    ]
    weights = [numpy_helper.from_array(np.int64(2), "two")]
    graph = helper.make_graph(nodes, "squares", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def main() -> None:
    """Ask first, run with a warning, and see an error that lists everything."""
    print("--- before any work")
    print(tw.coverage(build("TfIdfVectorizer")))

    print("--- compiled with a warning")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = tw.compile(build("TfIdfVectorizer"))
    print(*(warning.message for warning in caught), sep="\n")
    print(
        "steps:",
        ", ".join(f"{s.kind} {s.target}" for s in model.session.variant.plan.steps),
    )
    print(model(np.array([[1, 2, 2, 7, 0], [3, 3, 3, 1, 5]])))

    print("--- an operator nobody knows is an error, with all others of its kind")
    try:
        tw.compile(build("MakeItBetter"))
    except tw.ModelError as error:
        print(error)


if __name__ == "__main__":
    main()
