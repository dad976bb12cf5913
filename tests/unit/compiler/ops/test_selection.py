"""Order of elements of all types."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import DType, bf16, f16, f32
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.builder import GraphBuilder


@pytest.mark.parametrize("dtype", [bf16, f16, f32])
def test_what_is_no_number_counts_as_the_largest(dtype: DType) -> None:
    x = np.array([2.0, np.nan, -1.0, 1.0, np.nan]).astype(dtype.numpy)
    top_k = catalogue.lookup("top_k")
    attributes = top_k.complete({"k": (5,), "axis": 0, "largest": False})
    values, places = top_k.schema.evaluate([x], attributes)
    assert places.tolist() == [2, 3, 0, 1, 4]
    assert np.isnan(values[3:].astype(np.float32)).all()


def test_short_and_long_lines_of_one_open_length_have_the_same_order() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (symbol("rows", 1), symbol("length", 3))))
    for name, value in zip(("values", "places"), b.top_k(x, k=(3,)), strict=True):
        b.output(name, value)
    model = tw.compile(b.graph)
    for shape in [(2, 3), (5, 8), (1, 512), (1, 513), (2, 900)]:
        line = np.round(np.random.default_rng(3).standard_normal(shape) * 4) / 4
        line = line.astype(np.float32)
        line[0, -1] = np.nan
        places = np.argsort(-np.nan_to_num(line, nan=np.inf), axis=1, kind="stable")[:, :3]
        values, found = model(line)
        np.testing.assert_array_equal(found, places)
        np.testing.assert_array_equal(values, np.take_along_axis(line, places, 1))


def test_few_of_a_line_of_open_length_are_found_as_many_are() -> None:
    """Nine are few of more than 35 blocks of 64; a single line has no loop around it."""
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (symbol("length", 9),)))
    for name, value in zip(("values", "places"), b.top_k(x, k=(9,)), strict=True):
        b.output(name, value)
    model = tw.compile(b.graph)
    for length in (9, 64, 2240, 2241, 5000):
        line = np.round(np.random.default_rng(4).standard_normal(length) * 4) / 4
        line = line.astype(np.float32)
        line[-1] = np.nan
        places = np.argsort(-np.nan_to_num(line, nan=np.inf), kind="stable")[:9]
        values, found = model(line)
        np.testing.assert_array_equal(found, places)
        np.testing.assert_array_equal(values, line[places])
