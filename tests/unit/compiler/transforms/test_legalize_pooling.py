"""`run` compares the results before and after the pass: what is asserted here is the form."""

import itertools

import numpy as np
import pytest

from fakes.graphs import only, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.passes import PassContext, run_passes
from tilewright.compiler.transforms import LegalizePooling

G = [LegalizePooling()]


def pooling(op, x, y, attributes):
    return (
        f"graph @g<N: 1.., H: 2..>(%x: f32[{x}]) {{ %y: f32[{y}] = {op}(%x)"
        f" {{{attributes}}} return %y }}"
    )


@pytest.mark.parametrize(
    ("op", "reduction"), [("max_pool", "reduce_max"), ("average_pool", "reduce_mean")]
)
def test_a_window_larger_than_the_image_is_a_reduction(op, reduction):
    attributes = "kernel = [50, 40], strides = [50, 40], ceil_mode = true"
    graph = run(G, pooling(op, "2, 3, 7, 5", "2, 3, 1, 1", attributes))
    assert ops(graph) == [reduction]
    assert graph.nodes[0].attributes["axes"] == (2, 3)


def test_taps_that_meet_only_padding_go():
    attributes = "kernel = [20, 3], pads = [9, 1, 9, 1]"
    graph = run(G, pooling("max_pool", "1, 2, 4, 9", "1, 2, 3, 9", attributes))
    kernels = [n.attributes["kernel"] for n in graph.nodes]
    assert kernels in ([(6, 3)], [(6, 1), (1, 3)])


@pytest.mark.parametrize("dilation", [1, 2, 5])
def test_a_window_beyond_all_bounds_costs_what_the_image_holds(dilation):
    kernel, pad = 2**40, 2**39 * dilation
    count = 5 + 2 * pad - (kernel - 1) * dilation
    attributes = f"kernel = [{kernel}], pads = [{pad}, {pad}], dilations = [{dilation}]"
    graph = parse(pooling("max_pool", "1, 2, 5", f"1, 2, {count}", attributes))
    run_passes(graph, G, PassContext())
    verify(graph)
    assert only(graph, "max_pool").attributes["kernel"][0] <= 10


def test_a_mean_that_counts_padding_still_does():
    attributes = "kernel = [9, 9], pads = [4, 4, 4, 4], count_include_pad = true"
    graph = run(G, pooling("average_pool", "1, 2, 3, 3", "1, 2, 3, 3", attributes))
    assert ops(graph)[-1] == "mul"


@pytest.mark.parametrize("op", ["max_pool", "average_pool", "lp_pool"])
def test_a_large_window_slides_along_one_axis_after_the_other(op):
    attributes = "kernel = [5, 6], pads = [2, 2, 2, 3], dilations = [1, 1]"
    graph = run(G, pooling(op, "N, 3, 9, 11", "N, 3, 9, 11", attributes))
    assert [n.attributes["kernel"] for n in graph.nodes] == [(5, 1), (1, 6)]


def test_means_of_sixteen_bit_floats_are_rounded_once():
    attributes = "kernel = [5, 6]"
    text = pooling("average_pool", "1, 1, 6, 6", "1, 1, 2, 1", attributes)
    graph = run(G, text.replace("f32", "f16"))
    assert "average_pool" in ops(graph)
    x = np.zeros((1, 1, 6, 6), np.float16)
    x[..., 1, :], x[..., 2, :], x[..., 1, 0] = 2048, -2048, 2050
    (y,) = evaluate(graph, [x])
    np.testing.assert_array_equal(y, np.full((1, 1, 2, 1), 2 / 30, np.float16))


def test_a_small_window_stays_whole():
    attributes = 'kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1], layout = "NHWC"'
    graph = run(G, pooling("max_pool", "N, 9, 11, 3", "N, 5, 6, 3", attributes))
    assert only(graph, "max_pool").attributes["kernel"] == (3, 3)


def test_elements_are_picked_out_of_vectors_in_a_pass_of_their_own():
    attributes = "kernel = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]"
    graph = run(G, pooling("max_pool", "N, 3, 9, 11", "N, 3, 5, 6", attributes))
    assert [n.attributes["kernel"] for n in graph.nodes] == [(3, 1), (1, 3)]


def test_no_pass_is_made_along_an_axis_without_a_window():
    attributes = "kernel = [9, 1, 8], pads = [4, 0, 0, 4, 0, 0]"
    graph = run(G, pooling("max_pool", "N, 3, 9, 2, 11", "N, 3, 9, 2, 4", attributes))
    assert [n.attributes["kernel"] for n in graph.nodes] == [(9, 1, 1), (1, 1, 8)]


@pytest.mark.parametrize(
    ("kernel", "stride", "kernels"),
    [(7, 7, [(7, 7)]), (16, 20, [(16, 16)]), (7, 6, None), (6, 6, None), (17, 17, None)],
)
def test_windows_of_an_open_picture_that_share_nothing_stay_whole(kernel, stride, kernels):
    """There may be one, along whose last axis no lanes would go."""
    attributes = f"kernel = [{kernel}, {kernel}], strides = [{stride}, {stride}]"
    count = f"(H - {kernel}) // {stride} + 1"
    text = pooling("max_pool", "1, 2, H, H", f"1, 2, {count}, {count}", attributes)
    graph = parse(text.replace("H: 2..", f"H: {kernel}.."))
    run_passes(graph, G, PassContext())
    verify(graph)
    found = [n.attributes["kernel"] for n in graph.nodes]
    assert found == (kernels or [(kernel, 1), (1, kernel)])


def test_windows_that_share_nothing_are_cut_where_it_is_known_that_there_are_several():
    attributes = "kernel = [7, 7], strides = [7, 7]"
    graph = run(G, pooling("max_pool", "1, 2, 28, 28", "1, 2, 4, 4", attributes))
    assert [n.attributes["kernel"] for n in graph.nodes] == [(7, 1), (1, 7)]


def test_an_axis_of_open_size_keeps_its_window():
    attributes = 'kernel = [2, 2], layout = "NHWC"'
    graph = run(G, pooling("max_pool", "N, H, 7, 2", "N, H - 1, 6, 2", attributes))
    assert ops(graph) == ["max_pool"]


ODD = [
    (size, kernel, stride, dilation, begin, end, ceil)
    for size, kernel, stride, dilation, (begin, end), ceil in itertools.product(
        (1, 2, 5, 8), (1, 3, 8), (1, 3), (1, 2, 3), ((0, 0), (1, 0), (3, 5)), (False, True)
    )
    if begin < kernel * dilation
    and end < kernel * dilation
    and size + begin + end >= (kernel - 1) * dilation + 1
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("op", "include"),
    [
        ("max_pool", False),
        ("average_pool", False),
        ("average_pool", True),
        ("lp_pool", False),
    ],
)
def test_results_stay_the_same_for_every_window(op, include):
    for size, kernel, stride, dilation, begin, end, ceil in ODD:
        span = size + begin + end - (kernel - 1) * dilation - 1
        count = span // stride + 1
        if ceil:
            count = min(-(-span // stride) + 1, -(-(size + begin) // stride))
        attributes = (
            f"kernel = [{kernel}], strides = [{stride}], dilations = [{dilation}],"
            f" pads = [{begin}, {end}], ceil_mode = {str(ceil).lower()}"
            + (", count_include_pad = true" if include else "")
        )
        run(G, pooling(op, f"1, 2, {size}", f"1, 2, {count}", attributes))
