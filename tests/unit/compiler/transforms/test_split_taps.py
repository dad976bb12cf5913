"""A convolution whose taps are far apart is a sum over taps, each where it meets the image."""

import numpy as np
import pytest

from fakes.graphs import EVERYTHING_HELD, assert_same_results, copy_of, only, ops, parse
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import FoldConstants, WinogradConvolution


def conv(x, w, y, attributes, dtype="f32"):
    shapes = [", ".join(map(str, shape)) for shape in (x, w, y)]
    return parse(
        f"graph @g<N: 1..>(%x: {dtype}[{shapes[0]}]) {{"
        f" %w: {dtype}[{shapes[1]}] = constant {{value = {dtype}[{shapes[1]}] splat 0.5}}"
        f' %y: {dtype}[{shapes[2]}] = conv(%x, %w) {{layout = "NHWC", {attributes}}} return %y }}'
    )


def split(graph, tile=0):
    run_passes(
        graph,
        [WinogradConvolution(choose_tile=lambda *_: tile), FoldConstants()],
        held=EVERYTHING_HELD,
    )
    verify(graph)
    return graph


APART = "pads = [12, 12, 12, 12], dilations = [12, 12]"


@pytest.mark.parametrize(
    ("x", "w", "y", "attributes", "parts"),
    [
        ((1, 33, 33, 32), (32, 32, 3, 3), (1, 33, 33, 32), APART, 9),
        (
            ("N", 7, 9, 24), (40, 24, 3, 3), ("N", 7, 9, 40),
            "pads = [6, 6, 6, 6], dilations = [6, 6]", 9,
        ),
        (
            (1, 9, 9, 32), (32, 32, 3, 3), (1, 9, 9, 32),
            "pads = [9, 9, 9, 9], dilations = [9, 9]", 1,
        ),
        (
            (2, 9, 10, 32), (16, 32, 3, 2), (2, 7, 6, 16),
            "pads = [8, 3, 6, 7], dilations = [8, 9], strides = [1, 2]", 4,
        ),
        (
            (1, 1, 100, 64), (64, 64, 1, 2), (1, 1, 100, 64),
            "pads = [0, 64, 0, 0], dilations = [1, 64]", 2,
        ),
        (
            (1, 4, 5, 6, 16), (16, 16, 3, 3, 3), (1, 4, 5, 6, 16),
            "pads = [3, 3, 3, 3, 3, 3], dilations = [3, 3, 3]", 27,
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
def test_every_tap_is_multiplied_where_it_meets_the_image(
    x, w, y, attributes, parts, dtype
):
    graph = conv(x, w, y, attributes, dtype)
    random = np.random.default_rng(0)
    weights = only(graph, "constant").attributes["value"]
    filled = random.standard_normal(w).astype(weights.dtype)
    only(graph, "constant").attributes["value"] = filled
    before = copy_of(graph)
    split(graph)
    assert ops(graph).count("conv") == parts
    assert all(
        node.operand(1).type.shape[2:] == (1,) * (len(x) - 2)
        for node in graph.nodes
        if node.op == "conv"
    )
    tolerance = {"f32": 1e-5, "f64": 1e-12, "f16": 1e-3}[dtype]
    assert_same_results(before, graph, tolerance=tolerance, dims={"N": 2})


def test_a_tap_that_meets_no_place_is_left_out():
    graph = conv(
        (1, 9, 9, 32),
        (32, 32, 3, 3),
        (1, 9, 9, 32),
        "pads = [9, 9, 9, 9], dilations = [9, 9]",
    )
    assert ops(split(graph)) == ["conv"]


def test_a_window_that_sees_nothing_but_its_border_stays():
    nothing = conv((1, 3, 3, 32), (32, 32, 2, 2), (1, 1, 1, 32),
                   "pads = [4, 4, 4, 4], dilations = [9, 9], strides = [9, 9]")  # fmt: skip
    assert ops(split(nothing)) == ["conv"]


@pytest.mark.parametrize(
    ("x", "w", "y", "attributes", "reason"),
    [
        (
            (1, 33, 33, 32), (32, 32, 3, 3), (1, 33, 33, 32),
            "pads = [2, 2, 2, 2], dilations = [2, 2]", "nearly all taps meet the image",
        ),
        (
            (1, 33, 33, 4), (4, 4, 3, 3), (1, 33, 33, 4), APART,
            "moving takes longer than so few products",
        ),
        (
            (1, 33, 33, 32), (32, 1, 3, 3), (1, 33, 33, 32), APART + ", groups = 32",
            "a filter for each channel has no product",
        ),
        (
            ("N", "N", "N", 32), (32, 32, 3, 3), ("N", "N", "N", 32), APART,
            "nobody knows which taps meet the image",
        ),
        (
            (1, 3, 3, 64), (64, 64, 5, 5), (1, 3, 3, 64), "pads = [2, 2, 2, 2]",
            "taps lie side by side",
        ),
    ],
)  # fmt: skip
def test_other_convolutions_stay(x, w, y, attributes, reason):
    assert ops(split(conv(x, w, y, attributes))) == ["conv"], reason


def test_fewer_products_in_winograds_domain_go_first():
    near = "pads = [4, 4, 4, 4], dilations = [4, 4]"
    sizes = (1, 28, 28, 64), (64, 64, 3, 3), (1, 28, 28, 64)
    assert "winograd_output" in ops(split(conv(*sizes, near), tile=4))
    far = "pads = [12, 12, 12, 12], dilations = [12, 12]"
    assert ops(split(conv(*sizes, far), tile=4)).count("conv") == 9
