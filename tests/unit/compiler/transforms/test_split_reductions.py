"""Long sums in parts are the same sums, but for the order of their roundings."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes.graphs import assert_same_results, assert_stays, copy_of, ops, parse, run
from fakes.onnx_models import one_node
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import SplitReductions

KINDS = ("sum", "mean", "prod", "max", "min")


def once(parts: int) -> SplitReductions:
    """Cuts sums of more than 12 steps, which parts of them are not."""
    return SplitReductions(
        choose_parts=lambda rows, columns, steps, *, products: parts if steps > 12 else 0
    )


def reduction(
    kind: str, dtype: str, shape: str, axes: str, result: str, keep: str = "false"
) -> str:
    return (
        f"graph @g(%x: {dtype}[{shape}]) {{ %y: {dtype}[{result}] = reduce_{kind}(%x)"
        f" {{axes = [{axes}], keepdims = {keep}}} return %y }}"
    )


@pytest.mark.thinned(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
@pytest.mark.parametrize(
    ("shape", "axes", "result", "keep"),
    [
        ("24", "0", "", "false"),
        ("29", "0", "", "false"),  # a prime: what parts leave over is added
        ("3, 26", "-1", "3, 1", "true"),
        ("26, 3", "0", "3", "false"),
        ("2, 17, 3, 5", "1, 3", "2, 1, 3, 1", "true"),
        ("1, 5, 2, 7", "1, 2, 3", "1", "false"),
    ],
)
def test_a_reduction_is_that_of_the_results_of_its_parts(
    kind: str, dtype: str, shape: str, axes: str, result: str, keep: str
) -> None:
    if (kind, dtype) == ("mean", "i32"):
        return assert_stays([once(3)], reduction(kind, dtype, shape, axes, result, keep))
    graph = parse(reduction(kind, dtype, shape, axes, result, keep))
    before = copy_of(graph)
    run_passes(graph, [once(3)])
    verify(graph)
    found = ops(graph)
    reductions = [op for op in found if op.startswith("reduce_")]
    assert len(reductions) == 2 + ("slice" in found)
    assert ("cast" in found) == (dtype == "f16"), "parts of halves are added in f32"
    return assert_same_results(before, graph, tolerance=2e-3 if dtype == "f16" else 1e-5)


@pytest.mark.parametrize(
    ("rows", "depth", "columns"), [(1, 24, 1), (3, 25, 5), (2, 13, 1), (1, 40, 7)]
)
def test_a_product_is_the_sum_of_products_of_parts_of_the_depth(
    rows: int, depth: int, columns: int
) -> None:
    text = (
        f"graph @g(%a: f32[{rows}, {depth}], %b: f32[{depth}, {columns}]) {{"
        f" %y: f32[{rows}, {columns}] = matmul(%a, %b) return %y }}"
    )
    graph = parse(text)
    before = copy_of(graph)
    run_passes(graph, [once(2)])
    verify(graph)
    assert ops(graph).count("matmul") == 1 + depth % 2
    assert "reduce_sum" in ops(graph)
    assert_same_results(before, graph)


def test_a_batch_of_rows_times_one_matrix_is_one_product_first() -> None:
    found = run(
        [once(4)],
        "graph @g(%a: f32[1, 2, 16], %b: f32[16, 3]) { %y: f32[1, 2, 3] = matmul(%a, %b) return %y }",
    )
    assert "matmul" in ops(found)
    assert "reduce_sum" in ops(found)


@pytest.mark.parametrize(
    "text",
    [
        reduction("sum", "f32", "0, 30", "1", "0"),
        reduction("sum", "f32", "30, 0", "0, 1", ""),
        reduction(
            "sum", "f32", "4, 4, 4", "0, 1, 2", ""
        ),  # no axis has two numbers for each part
        "graph @g<N: 1..>(%x: f32[N, 30]) { %y: f32[N] = reduce_sum(%x) {axes = [1], keepdims = false} return %y }",
        "graph @g(%a: f16[2, 30], %b: f16[30, 2]) { %y: f16[2, 2] = matmul(%a, %b) return %y }",
        "graph @g(%a: f32[5, 2, 30], %b: f32[5, 30, 2]) { %y: f32[5, 2, 2] = matmul(%a, %b) return %y }",
    ],
    ids=["no sums", "no steps", "short axes", "open", "halves", "batch"],
)
def test_other_reductions_stay(text: str) -> None:
    assert_stays([once(3)], text)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", ["Sum", "Max", "Mean"])
def test_machine_code_adds_parts_of_a_million_numbers(kind: str) -> None:
    x = np.random.default_rng(0).standard_normal(1_000_003).astype(np.float32)
    model = tilewright.compile(one_node(f"Reduce{kind}", [x], keepdims=0))
    assert len(model.kernels) > 1
    expected = getattr(np, kind.lower())(x.astype(np.float64))
    assert abs(float(model(x)) - expected) < 1e-8 * float(np.abs(x).sum())
    x[777_777] = np.nan
    assert np.isnan(model(x))
