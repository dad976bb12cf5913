"""Phases of transposed convolutions that a product stores where they belong, as machine code.

Whole tiles and rests, one product and several, sizes known when compiling and open ones.
"""

from __future__ import annotations

import numpy as np
import pytest

from fakes.native_kernel import needs_x86, targets_apart
from fuzz.comparison import assert_close, compiled, expected_of, run
from tilewright.base.target import Target
from tilewright.compiler.ops import catalogue
from tilewright.compiler.readers.graph_text import parse_graph

pytestmark = needs_x86
CASES = [
    ("1, 5, 7, 6", "6, 16, 2, 2", "1, 10, 14, 16", "strides = [2, 2]"),
    ("2, 3, 13, 5", "5, 32, 3, 2", "2, 9, 26, 32", "strides = [3, 2]"),
    ("1, 4, 6, 8", "8, 16, 2, 2", "1, 8, 12, 32", "strides = [2, 2], groups = 2"),
    ("1, 4, 5, 3", "3, 16, 4, 4", "1, 8, 10, 16", "strides = [2, 2], pads = [1, 1, 1, 1]"),
    ("1, 9, 4", "4, 48, 3", "1, 27, 48", "strides = [3]"),
    (
        "1, 8, 8, 24",
        "24, 128, 4, 4",
        "1, 16, 16, 128",
        "strides = [2, 2], pads = [1, 1, 1, 1]",
    ),
    ("N, 3, H, 4", "4, 16, 2, 2", "N, 6, 2 * H, 16", "strides = [2, 2]"),
]
OPEN = {"N": 2, "H": 9}


@pytest.mark.thinned(7)
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize(("x", "w", "y", "attributes"), CASES)
def test_every_phase_is_stored_at_its_place_with_what_follows(
    x: str, w: str, y: str, attributes: str, target: Target
) -> None:
    channels = y.rsplit(", ", maxsplit=1)[-1]
    graph = parse_graph(
        f"graph @g<N: 1.., H: 2..>(%x: f32[{x}], %w: f32[{w}], %b: f32[{channels}]) {{"
        f' %c: f32[{y}] = conv_transpose(%x, %w, %b) {{layout = "NHWC", {attributes}}}'
        f" %y: f32[{y}] = relu(%c) return %y }}",
        catalogue.schema,
    )
    random = np.random.default_rng(3)
    shapes = [[OPEN.get(d) or int(d) for d in s.split(", ")] for s in (x, w, channels)]
    inputs = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
    model = compiled(graph, target)
    assert_close(run(model, inputs), expected_of(graph, inputs), 1e-5)
    # A part that panels do not divide is interleaved apart, so the product keeps its tiles.
    assert not {str(kernel.outcome) for kernel in model.kernels} & {"rows", "generic"}


@pytest.mark.thinned(7)
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("x", "w", "y", "attributes"), CASES)
def test_a_bias_and_an_image_that_are_added_behind_go_into_the_stores(
    x: str, w: str, y: str, attributes: str, dtype: str, target: Target
) -> None:
    channels = y.rsplit(", ", maxsplit=1)[-1]
    graph = parse_graph(
        f"graph @g<N: 1.., H: 2..>(%x: {dtype}[{x}], %w: {dtype}[{w}], %b: {dtype}[{channels}],"
        f' %z: {dtype}[{y}]) {{ %c: {dtype}[{y}] = conv_transpose(%x, %w) {{layout = "NHWC", {attributes}}}'
        f" %d: {dtype}[{y}] = add(%c, %b) %r: {dtype}[{y}] = relu(%d)"
        f" %y: {dtype}[{y}] = add(%r, %z) return %y }}",
        catalogue.schema,
    )
    random = np.random.default_rng(4)
    shapes = [[OPEN.get(d) or int(d) for d in s.split(", ")] for s in (x, w, channels)]
    shapes.append([{"N": 2, "2 * H": 18}.get(d) or int(d) for d in y.split(", ")])
    kind = np.float16 if dtype == "f16" else np.float32
    inputs = [random.standard_normal(shape).astype(kind) for shape in shapes]
    model = compiled(graph, target)
    bound = 1e-2 if dtype == "f16" else 1e-5
    assert_close(run(model, inputs), expected_of(graph, inputs), bound)
    slow = {str(kernel.outcome) for kernel in model.kernels} & {"rows", "generic"}
    # Not every machine converts halves in lanes.
    assert dtype == "f16" or not slow
