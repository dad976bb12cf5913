"""Order of elements of all types."""

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.dtypes import DType, bf16, f16, f32, i64
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.ir import Compare, If, walk
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rows", [1, 3])
def test_all_of_a_line_of_open_length_are_put_in_order_without_a_search(rows: int) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (rows, symbol("length", 300))))
    for name, value in zip(("values", "places"), b.top_k(x, k=(300,)), strict=True):
        b.output(name, value)
    model = tw.compile(b.graph)
    for length in (300, 301, 700):
        line = np.random.default_rng(5).standard_normal((rows, length))
        line = (np.round(line * 4) / 4).astype(np.float32)
        line[0, -1] = np.nan
        order = np.argsort(-np.nan_to_num(line, nan=np.inf), axis=1, kind="stable")
        values, found = model(line)
        np.testing.assert_array_equal(found, order[:, :300])
        np.testing.assert_array_equal(
            values, np.take_along_axis(line, order[:, :300], axis=1)
        )


@pytest.mark.parametrize(("count", "compared"), [(256, False), (257, True)])
def test_only_many_of_a_line_of_open_length_are_compared_with_its_length(
    count: int, compared: bool
) -> None:
    """Up to 256 are put in order by counting, which takes longer than finding them."""
    b = KernelBuilder("top_k")
    x = b.parameter("x", f32, (symbol("length", count),))
    results = [b.result("values", f32, (count,)), b.result("places", i64, (count,))]
    row = catalogue.lookup("top_k")
    assert row.body is not None
    row.body.emit(b, row.complete({"k": (count,)}), [x], results)
    asked = [x.condition for x in walk(b.build().body) if isinstance(x, If)]
    equal = [c for c in asked if isinstance(c, Compare) and c.op == "eq"]
    assert bool(equal) == compared
