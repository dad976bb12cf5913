"""What bodies of ops share holds where their types end."""

import numpy as np
import pytest
from onnx import helper

import tilewright


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32])
def test_integer_quotients_are_whole_at_the_ends_of_their_type(dtype):
    info = np.iinfo(dtype)
    ends = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.min // 2]
    some = np.array([*ends, *range(8), info.max // 3, 100], dtype)
    x, y = np.repeat(some, len(some)), np.tile(some, len(some))
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    given = [helper.make_tensor_value_info(name, code, x.shape) for name in "xyz"]
    node = helper.make_node("Div", ["x", "y"], ["z"])
    graph = helper.make_graph([node], "g", given[:2], given[2:])
    opsets = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    ours = np.asarray(tilewright.compile(model, threads=1, jobs=1)(x, y))
    # Truncated; by zero 0; the least number by -1 wraps.
    signs = [
        -1 if (a < 0) != (b < 0) else 1 for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]
    exact = [
        s * (abs(a) // abs(b)) if b else 0
        for s, a, b in zip(signs, x.tolist(), y.tolist(), strict=True)
    ]
    np.testing.assert_array_equal(ours, np.array(exact, np.int64).astype(dtype))
