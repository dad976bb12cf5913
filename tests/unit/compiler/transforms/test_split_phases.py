"""`run` compares the results before and after each pass: what is asserted here is the form."""

import numpy as np
import pytest

from fakes.graphs import EVERYTHING_HELD, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.passes import PassContext, run_passes
from tilewright.compiler.transforms import FoldConstants, LegalizeConvolution


def panel(rows, columns, depth, dtype):
    return 4


G = [LegalizeConvolution(choose_panel=panel), FoldConstants()]


def transposed(x, w, y, attributes="", bias=None):
    """A channels-last transposed convolution of weights that are an input, so nothing is folded."""
    third = f", %b: f32[{bias}]" if bias else ""
    operands = "%x, %w, %b" if bias else "%x, %w"
    return (
        f"graph @g<N: 1.., H: 2..>(%x: f32[{x}], %w: f32[{w}]{third}) {{"
        f' %y: f32[{y}] = conv_transpose({operands}) {{layout = "NHWC"{attributes}}}'
        " return %y }"
    )


def convolutions(graph):
    return [n for n in graph.nodes if n.op in ("contract", "matmul")]


def test_phases_that_see_as_many_taps_share_one_convolution():
    attributes = ", strides = [2, 2], pads = [1, 1, 1, 1]"
    graph = run(G, transposed("N, 5, 6, 3", "3, 2, 4, 4", "N, 10, 12, 2", attributes))
    (found,) = convolutions(graph)
    assert found.result.type.shape[1:] == (6, 7, 2 * 2 * 2)
    assert "concat" not in ops(graph)


def test_a_window_as_large_as_its_stride_is_a_matmul():
    graph = run(
        G, transposed("N, 5, 6, 3", "3, 2, 2, 2", "N, 10, 12, 2", ", strides = [2, 2]")
    )
    (found,) = convolutions(graph)
    assert found.op == "matmul"
    assert "slice" not in ops(graph)


def test_phases_with_fewer_taps_have_convolutions_of_their_own():
    attributes = ", strides = [2, 2], pads = [1, 1, 0, 0]"
    graph = run(G, transposed("1, 5, 4, 3", "3, 2, 3, 3", "1, 10, 8, 2", attributes))
    windows = [n.operands[1].type.shape[2:4] for n in convolutions(graph)[:-1]]
    assert windows == [(2, 2), (2, 1), (1, 2)]
    assert convolutions(graph)[-1].op == "matmul"


def test_one_input_place_meets_no_padding():
    graph = run(G, transposed("N, 1, 1, 3", "3, 5, 4, 4", "N, 4, 4, 5"))
    assert [n.op for n in convolutions(graph)] == ["matmul"]
    assert "pad" not in ops(graph)


def test_every_phase_of_single_channels_is_a_depthwise_convolution():
    attributes = ", strides = [2, 2], pads = [1, 1, 1, 1], groups = 3"
    graph = run(G, transposed("1, 5, 6, 3", "3, 1, 4, 4", "1, 10, 12, 3", attributes))
    assert [n.title for n in convolutions(graph)] == ["depthwise_conv"] * 4


def test_a_size_that_is_not_known_stays_open():
    attributes = ", strides = [3, 2], pads = [1, 0, 1, 1]"
    run(G, transposed("N, H, 4, 3", "3, 2, 4, 3", "N, 3*H - 1, 8, 2", attributes))


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        # output padding, cropping that leaves the input's border unread, phases without taps
        ("1, 3, 5, 4", "4, 3, 3, 2", "1, 6, 11, 3",
         "strides = [2, 2], pads = [1, 0, 1, 0], output_padding = [1, 1]"),
        ("2, 6, 4, 2", "2, 3, 3, 2", "2, 3, 4, 3", "strides = [1, 2], pads = [2, 3, 3, 1]"),
        ("1, 4, 5, 2", "2, 3, 1, 1", "1, 10, 9, 3", "strides = [3, 2]"),
        ("1, 4, 4, 2", "2, 3, 3, 3", "1, 8, 8, 3", "dilations = [2, 2]"),
        ("1, 4, 4, 2", "2, 3, 3, 3", "1, 11, 13, 3", "dilations = [2, 3], strides = [2, 2]"),
        ("1, 3, 4, 2", "2, 3, 4, 2", "1, 18, 17, 3", "dilations = [3, 4], strides = [4, 4]"),
        ("1, 3, 3, 4", "4, 3, 4, 4", "1, 6, 6, 6",
         "strides = [2, 2], pads = [1, 1, 1, 1], groups = 2"),
        ("1, 3, 3, 4", "4, 5, 5, 3", "1, 9, 7, 20", "strides = [2, 2], groups = 4"),
        ("1, 2, 3, 2, 2", "2, 3, 3, 2, 4", "1, 5, 6, 6, 3", "strides = [2, 2, 2]"),
        ("1, 5, 2", "2, 3, 5", "1, 15, 3", "strides = [3], pads = [1, 1]"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("bias", [False, True])
def test_results_stay_the_same(x, w, y, attributes, bias):
    channels = y.split(", ")[-1]
    graph = run(G, transposed(x, w, y, f", {attributes}", channels if bias else None))
    assert "conv_transpose" not in ops(graph)


def test_strides_far_beyond_the_window_are_looked_at_in_no_time():
    """Phases without taps are most of them, and neighbours alike; too many of either stay a nest."""
    wide = transposed("1, 2, 1", "1, 2, 3", "1, 60003, 2", ", strides = [60000]")
    assert "conv_transpose" not in ops(run(G, wide))
    assert "conv_transpose" in ops(
        run(G, wide.replace("60003", "70003").replace("60000", "70000"))
    )
    graph = parse(wide.replace("60003", str(3 + (1 << 40))).replace("60000", str(1 << 40)))
    run_passes(graph, G, PassContext(), held=EVERYTHING_HELD)
    assert "conv_transpose" in ops(graph)


def test_taps_that_stand_alone_make_no_graph_of_thousands():
    """Every tap is a phase between phases without taps: 17 runs on each axis."""
    attributes = ", strides = [64, 64], dilations = [4, 4]"
    graph = run(G, transposed("1, 2, 2, 1", "1, 1, 9, 9", "1, 97, 97, 1", attributes))
    assert "conv_transpose" in ops(graph)


def test_infinities_reach_only_places_whose_window_has_them():
    """Filters of shorter phases padded with zeros would make NaN of them."""
    text = transposed("1, 3, 3, 1", "1, 1, 3, 3", "1, 7, 7, 1", ", strides = [2, 2]")
    inputs = [np.full((1, 3, 3, 1), np.inf, np.float32), np.ones((1, 1, 3, 3), np.float32)]
    (result,) = evaluate(run(G, text), inputs)
    assert np.isposinf(result).all()
