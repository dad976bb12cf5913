"""Compile a graph and compare what it computes with the graph evaluator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from tilewright.api.model import Model
from tilewright.base import dtypes
from tilewright.base.target import Target
from tilewright.compiler import pipeline
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.text import resources, to_text
from tilewright.compiler.ops import catalogue
from tilewright.compiler.readers.graph_text import parse_graph

# Error allowed relative to the largest element: types of few digits round after every op.
TOLERANCE = {"f16": 3e-2, "bf16": 2e-1, "f32": 2e-4, "f64": 2e-4}


def copy_of(graph: Graph) -> Graph:
    """The same graph again, through its text: compiling edits its graph."""
    return parse_graph(to_text(graph), catalogue.schema, resources=resources(graph))


def compiled(
    graph: Graph, target: Target, *, opt_level: int = 2, threads: int = 1
) -> Model:
    """The graph as machine code."""
    options = pipeline.CompileOptions(
        targets=(target,), opt_level=opt_level, threads=threads, jobs=1
    )
    return Model(pipeline.compile_model(copy_of(graph), options), threads=threads)


def run(model: Model, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The outputs; always a tuple."""
    results = model(*inputs)
    return results if isinstance(results, tuple) else (results,)


def expected_of(graph: Graph, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What the evaluator computes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return evaluate(graph, list(inputs))


def coarsest(graph: Graph) -> float:
    """The tolerance of the type with the fewest digits in the graph."""
    kinds = {v.type.dtype.name for v in graph.values()}
    return max((t for name, t in TOLERANCE.items() if name in kinds), default=0.0)


def assert_close(
    actual: Sequence[np.ndarray], expected: Sequence[np.ndarray], tolerance: float
) -> None:
    """Integers are equal, floats close; NaN and infinities stand in the same places."""
    assert len(actual) == len(expected)
    for position, (got, want) in enumerate(zip(actual, expected, strict=True)):
        where = f"output {position}"
        assert got.shape == want.shape, where
        assert got.dtype == want.dtype, where
        if not dtypes.from_numpy(want.dtype).is_float:
            np.testing.assert_array_equal(got, want, err_msg=where)
            continue
        wide = want.astype(np.float64)
        finite = np.abs(wide[np.isfinite(wide)])
        scale = max(1.0, float(finite.max(initial=0)))
        np.testing.assert_allclose(
            got.astype(np.float64),
            wide,
            rtol=tolerance,
            atol=tolerance * scale,
            err_msg=where,
        )
