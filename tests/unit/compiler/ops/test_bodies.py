"""What bodies of ops share holds where their types end."""

import tracemalloc

import numpy as np
import pytest
from onnx import helper

import tilewright
from tilewright.compiler.ops import catalogue


@pytest.mark.thinned(3)
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


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "name", ["max_pool", "average_pool", "lp_pool", "max_pool_indices"]
)
def test_the_memory_of_an_oracle_does_not_grow_with_the_window(name):
    row = catalogue.lookup(name)
    x = np.arange(96 * 96, dtype=np.float32).reshape(1, 1, 96, 96)
    tracemalloc.start()
    try:
        row.schema.evaluate([x], {"kernel": (48, 48)})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 12 * x.nbytes


@pytest.mark.parametrize("include_pad", [False, True])
def test_a_mean_counts_the_taps_of_each_window(include_pad):
    ones = np.ones((1, 1, 6, 5), np.float32)
    window = {
        "kernel": (3, 2),
        "strides": (2, 1),
        "dilations": (1, 3),
        "pads": (1, 2, 2, 0),
    }
    average, peak = (
        catalogue.lookup(name).schema.evaluate([ones], window | more)[0]
        for name, more in (
            ("average_pool", {"count_include_pad": include_pad}),
            ("lp_pool", {"p": 1}),
        )
    )
    padded = np.pad(ones, ((0, 0), (0, 0), (1, 2), (2, 0)), constant_values=0)
    inside = [
        [padded[0, 0, 2 * i : 2 * i + 3, j : j + 4 : 3].sum() for j in range(4)]
        for i in range(4)
    ]
    np.testing.assert_array_equal(peak[0, 0], inside)
    expected = np.divide(inside, 6) if include_pad else np.ones((4, 4))
    np.testing.assert_allclose(average[0, 0], expected)
