"""Contractions by index maps: what is refused, what they are called, and memory of the oracle."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.builder import make_node
from tilewright.compiler.ops.contract import (
    lies_in_panels,
    multiplies_rows,
    shares_no_element,
)
from tilewright.compiler.transforms.contract_forms import (
    Window,
    convolution_in_panels,
    depthwise_convolution,
    product_in_panels,
)

PRODUCT = {
    "axes": "m, p, l",
    "sums": "k",
    "left": "m, k",
    "right": "p, k, l",
    "result": "m, 4*p + l",
    "shape": (3, 7),
}


def node(**changes: object):
    operands = [Value(TensorType(dtypes.f32, shape), "") for shape in ((3, 5), (2, 5, 4))]
    return make_node("contract", operands, {**PRODUCT, **changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"left": "m"}, "1 indices for 2 dimensions|are read at"),
        ({"left": "m, j"}, "read at"),
        ({"left": "m, k*k"}, "no sum of axes"),
        ({"left": "m, k - 1"}, "no sum of axes"),
        ({"left": "m, k // 2"}, "no sum of axes"),
        ({"left": "m, (k"}, "no index map"),
        ({"left": "m, 2*k"}, "9 is more than 5"),
        ({"left": "m, k + 1"}, "6 is more than 5"),
        ({"axes": "m, m, p, l"}, "no loops"),
        ({"axes": "m, p, l, q"}, "read at"),
        ({"result": "m, k"}, "results lie at"),
        ({"result": "m, l"}, "differ|no places"),
        ({"shape": (4, 7)}, "3 and 4 differ|4 and 3 differ"),
        ({"shape": (3,)}, "2 indices for 1"),
    ],
)
def test_maps_that_do_not_fit_are_refused(changes: dict[str, object], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        node(**changes)


def test_columns_behind_the_end_are_not_stored() -> None:
    result = node().result
    assert result.type.shape == (3, 7)
    assert result.node is not None
    assert result.node.title == "matmul"


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_is_called_one(groups: int) -> None:
    shapes = ((1, 9, 9, 4), (groups, 2, 3, 3, 4 // groups, 4))
    form = convolution_in_panels(*shapes, 8 * groups, Window((2, 1)), groups=groups)
    operands = [Value(TensorType(dtypes.f32, shape), "") for shape in shapes]
    made = make_node("contract", operands, form)
    assert made.title == "conv"
    assert made.result.type.shape == (1, 4, 7, 8 * groups)


def test_nobody_reads_what_is_behind_the_sum_in_a_row() -> None:
    rows = np.arange(5 * 12, dtype=np.float32).reshape(5, 12)
    panels = np.random.default_rng(0).standard_normal((2, 12, 4)).astype(np.float32)
    spread = np.pad(rows, ((0, 0), (0, 3)), constant_values=np.nan)
    row = catalogue.lookup("contract")
    whole = row.complete(product_in_panels(rows.shape, panels.shape, 7))
    apart = row.complete(product_in_panels(spread.shape, panels.shape, 7))
    (wanted,) = row.schema.evaluate((rows, panels), whole)
    (got,) = row.schema.evaluate((spread, panels), apart)
    np.testing.assert_array_equal(got, wanted)


def test_a_row_that_is_shorter_than_the_sum_is_refused() -> None:
    values = [Value(TensorType(dtypes.f32, shape), "") for shape in ((5, 11), (2, 12, 4))]
    with pytest.raises(ModelError, match="reads"):
        make_node("contract", values, product_in_panels((5, 11), (2, 12, 4), 7))


@pytest.mark.parametrize("question", [lies_in_panels, multiplies_rows, shares_no_element])
def test_other_ops_with_axes_are_no_contractions(
    question: Callable[[Mapping[str, object]], bool],
) -> None:
    others = {
        row.schema.name: dict.fromkeys(each.name for each in row.schema.attributes)
        for row in catalogue.all_ops()
        if row.schema.name != "contract"
    }
    assert any("axes" in names for names in others.values())
    assert not any(question(names) for names in others.values())


def test_the_oracle_takes_no_memory_for_the_window() -> None:
    x, w = np.ones((1, 70, 70, 8), np.float32), np.ones((21, 21, 8), np.float32)
    form = depthwise_convolution(x.shape, w.shape, Window())
    row = catalogue.lookup("contract")
    tracemalloc.start()
    (result,) = row.schema.evaluate((x, w), row.complete(form))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.all(result == 21 * 21)
    assert peak < 16 * (
        x.nbytes + result.nbytes
    )  # a copy for each tap would be 441 times as much


def with_rest(
    right: tuple[int, ...],
    rest: tuple[int, ...],
    of: DType = dtypes.f32,
    **changes: object,
):
    types = [
        TensorType(dtypes.f32, (3, 5)),
        TensorType(dtypes.f32, right),
        TensorType(of, rest),
    ]
    operands = [Value(each, "") for each in types]
    return make_node("contract", operands, {**PRODUCT, **changes})


@pytest.mark.parametrize(
    ("right", "rest", "changes", "problem"),
    [
        ((2, 5, 4), (5, 7), {"least": 4}, "the panels: 1 and 2 differ"),
        ((2, 5, 4), (5, 8), {}, "7 and 8 differ"),
        ((2, 5, 4), (6, 7), {}, "5 and 6 differ"),
        ((2, 5, 4), (5, 7), {"least": 0}, "no panels of"),
        ((2, 5, 4), (5, 7), {"least": 5}, "no panels of"),
        ((1, 5, 4), (1, 5, 7), {}, "no panels of"),
        ((1, 5, 4), (5, 7), {"of": dtypes.f64}, "no panels of"),
    ],
)
def test_a_rest_that_is_not_behind_the_panels_is_refused(
    right: tuple[int, ...],
    rest: tuple[int, ...],
    changes: dict[str, Any],
    problem: str,
) -> None:
    with pytest.raises(ModelError, match=problem):
        with_rest(right, rest, **changes)


def test_a_rest_needs_panels() -> None:
    types = [TensorType(dtypes.f32, shape) for shape in ((3, 5), (5, 7), (5, 7))]
    maps = {"axes": "m, l", "right": "k, l", "result": "m, l"}
    with pytest.raises(ModelError, match="needs columns in panels"):
        make_node("contract", [Value(x, "") for x in types], {**PRODUCT, **maps})


def test_few_columns_are_all_rest() -> None:
    assert with_rest((0, 5, 4), (5, 3), shape=(3, 3), least=4).result.type.shape == (3, 3)
