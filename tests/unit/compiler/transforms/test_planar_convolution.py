"""Convolutions with places of the image in lanes: which they are, and that they are the same."""

import numpy as np
import pytest

from fakes.contractions import form_of
from fakes.graphs import assert_same_results, only, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.transforms import (
    ConvertLayout,
    FoldConstants,
    LegalizeConvolution,
    Simplify,
)

LANES = 8


def panel(rows, columns, depth, dtype):
    return LANES


G = [LegalizeConvolution(choose_panel=panel), FoldConstants(), Simplify()]
IMAGES = [ConvertLayout(), *G]


def conv(x, w, y, attributes="", symbols="N: 1..", layout="NHWC"):
    """A convolution whose result is wanted channels first."""
    result = "%y"
    move = ""
    if layout == "NHWC":
        first, *places, channels = y.split(", ")
        perm = [0, len(places) + 1, *range(1, len(places) + 1)]
        result = "%z"
        move = f"%z: f32[{', '.join((first, channels, *places))}] = transpose(%y) {{perm = {perm}}}"
    return (
        f"graph @g<{symbols}>(%x: f32[{x}], %w: f32[{w}]) {{"
        f' %y: f32[{y}] = conv(%x, %w) {{layout = "{layout}"{attributes}}} {move} return {result} }}'
    )


def assert_planar(passes, text):
    before, graph = parse(text), run(passes, text)
    assert "contract:conv_planar" in ops(graph)
    assert_same_results(before, graph, tolerance=1e-5)
    return graph


@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        ("2, 20, 30, 5", "3, 5, 3, 3", "2, 18, 28, 3", ""),
        ("2, 20, 30, 5", "3, 5, 3, 3", "2, 20, 30, 3", ", pads = [1, 1, 1, 1]"),
        ("1, 9, 33, 6", "2, 6, 3, 2", "1, 10, 30, 2", ", pads = [2, 1, 1, 0], dilations = [1, 4]"),
        ("2, 300, 8", "3, 8, 9", "2, 276, 3", ", dilations = [3]"),
        ("1, 7, 8, 60, 4", "2, 4, 2, 1, 3", "1, 6, 8, 60, 2", ", pads = [0, 0, 1, 0, 0, 1]"),
        ("2, 1, 200, 4", "3, 4, 1, 9", "2, 1, 192, 3", ""),
    ],
)  # fmt: skip
def test_few_filters_leave_the_lanes_to_places(x, w, y, attributes):
    graph = assert_planar(G, conv(x, w, y, attributes))
    assert ops(graph).count("contract:conv_planar") == 1


def test_places_between_rows_are_computed_and_not_looked_at():
    graph = assert_planar(G, conv("N, 20, 30, 5", "3, 5, 3, 3", "N, 18, 28, 3"))
    node = only(graph, "contract:conv_planar")
    assert node.attributes["right"] == "n, c, 30*kh + kw + p"
    assert node.result.type.shape[-1] == 17 * 30 + 28


def test_sizes_of_the_batch_and_the_first_axis_may_be_unknown():
    text = conv("N, H, 30, 5", "3, 5, 3, 3", "N, H - 2, 28, 3", symbols="N: 1.., H: 3..")
    graph = assert_planar(G, text)
    assert_same_results(parse(text), graph, dims={"N": 1, "H": 17})


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        ("N, L, 5", "3, 5, 3", "N, L - 2, 3", ""),
        ("N, L, 5", "3, 5, 9", "N, L, 3", ", pads = [4, 4]"),
        ("N, L, 5", "3, 5, 2", "N, L - 3, 3", ", dilations = [3]"),
        ("N, L, 1", "6, 1, 4", "N, (L - 4) // 2 + 1, 6", ", strides = [2]"),
        ("N, L, 1", "6, 1, 10", "N, (L - 3) // 5 + 1, 6", ", strides = [5], pads = [3, 4]"),
        ("N, 1, L, 5", "3, 5, 1, 3", "N, 1, L - 2, 3", ""),
    ],
)  # fmt: skip
def test_the_length_of_a_line_may_be_unknown(x, w, y, attributes):
    text = conv(x, w, y, attributes, symbols="N: 1.., L: 4..")
    graph = assert_planar(G, text)
    for length in (4, 5, 11, 14, 15, 63):
        assert_same_results(parse(text), graph, dims={"N": 2, "L": length})


@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        ("N, 20, L, 5", "3, 5, 3, 3", "N, 18, L - 2, 3", ""),
        ("N, L, L, 5", "3, 5, 1, 3", "N, L, L - 2, 3", ""),
        ("N, M, L, 4", "2, 4, 3, 2", "N, M, L - 1, 2", ", pads = [1, 1, 1, 1], dilations = [1, 3]"),
        ("N, M, L, 1", "3, 1, 2, 4", "N, M - 1, L // 2 - 1, 3", ", strides = [1, 2]"),
        ("N, 3, M, L, 4", "2, 4, 2, 1, 3", "N, 2, M, L, 2", ", pads = [0, 0, 1, 0, 0, 1]"),
    ],
)  # fmt: skip
def test_rows_of_unknown_length_have_lanes_of_their_own(x, w, y, attributes):
    text = conv(x, w, y, attributes, symbols="N: 1.., M: 2.., L: 4..")
    graph = assert_planar(G, text)
    for dims in (
        {"N": 2, "M": 3, "L": 17},
        {"N": 1, "M": 2, "L": 4},
        {"N": 1, "M": 9, "L": 33},
    ):
        assert_same_results(parse(text), graph, dims=dims)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "is_planar"), [("64", True), ("L", False)])
def test_filters_that_nearly_fill_vectors_keep_them_where_rows_may_be_short(
    size, is_planar
):
    shapes = f"N, {size}, {size}, 50", "6, 50, 9, 9", f"N, {size}, {size}, 6"
    text = conv(*shapes, ", pads = [4, 4, 4, 4]", symbols="N: 1.., L: 1..")
    assert ("contract:conv_planar" in ops(run(G, text))) == is_planar


@pytest.mark.parametrize(
    ("w", "y", "attributes"),
    [
        ("8, 5, 3, 3", "N, 18, 28, 8", ""),  # no lane is empty
        ("3, 5, 3, 3", "N, 9, 14, 3", ", strides = [2, 2]"),
        ("3, 5, 3, 3", "N, 18, 14, 3", ", strides = [1, 2]"),
        ("3, 5, 2, 29", "N, 19, 2, 3", ""),  # rows of two places, and 28 between them
        ("3, 5, 1, 1", "N, 20, 30, 3", ""),
    ],
)
def test_other_convolutions_keep_filters_in_lanes(w, y, attributes):
    assert "contract:conv_planar" not in ops(run(G, conv("N, 20, 30, 5", w, y, attributes)))


def test_one_filter_over_channels_that_lie_last_stays_a_sum_of_channels():
    text = conv("N, 20, 30, 6", "1, 6, 3, 3", "N, 18, 28, 1")
    assert "contract:depthwise_conv" in ops(run(G, text))
    text = conv("N, 6, 20, 30", "1, 6, 3, 3", "N, 1, 18, 28", layout="NCHW")
    graph = assert_planar(IMAGES, text)
    assert "transpose" not in {node.op for node in graph.nodes if node.result.type.rank > 3}


def test_channels_that_lie_first_before_and_after_are_not_moved():
    text = (
        "graph @g(%x: f32[1, 2, 20, 30], %w: f32[16, 2, 3, 3], %b: f32[16, 1, 1]) {"
        ' %y: f32[1, 16, 20, 30] = conv(%x, %w) {layout = "NCHW", pads = [1, 1, 1, 1]}'
        " %s: f32[1, 16, 20, 30] = add(%y, %b) %r: f32[1, 16, 20, 30] = relu(%s) return %r }"
    )
    assert_planar(IMAGES, text)
    # The next convolution reads channels last: full panels then save the move.
    more = text.replace(
        "%w: f32[16, 2, 3, 3]", "%w: f32[16, 2, 3, 3], %v: f32[16, 16, 3, 3]"
    )
    more = more.replace(
        "return %r",
        '%z: f32[1, 16, 18, 28] = conv(%r, %v) {layout = "NCHW"} return %z',
    )
    assert ops(run(IMAGES, more)).count("contract:conv") == 2


@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        ("2, 1, 400", "16, 1, 10", "2, 16, 79", ", strides = [5]"),
        ("2, 3, 203", "40, 3, 4", "2, 40, 101", ", strides = [2], pads = [1, 1]"),
        ("1, 2, 5, 90", "24, 2, 2, 6", "1, 24, 6, 30", ", strides = [1, 3], pads = [1, 2, 1, 1]"),
    ],
)  # fmt: skip
def test_neighbours_that_one_stride_takes_are_channels(x, w, y, attributes):
    text = conv(x, w, y, attributes, layout="NCHW")
    taps = [int(d) for d in w.split(", ")]
    graph = assert_planar(IMAGES, text)
    node = only(graph, "contract:conv_planar")
    stride = int(attributes.split("]")[0].split(" ")[-1].strip("["))
    assert node.operands[0].type.shape[0] == taps[1] * stride
    assert node.operands[0].type.shape[-2] == taps[-1] // stride


@pytest.mark.parametrize(
    ("x", "w", "y", "attributes"),
    [
        ("2, 1, 400", "16, 1, 9", "2, 16, 79", ", strides = [5]"),  # a tap would be none
        ("2, 1, 400", "16, 1, 10", "2, 16, 77", ", strides = [5], dilations = [2]"),
        ("2, 1, 40, 40", "16, 1, 4, 4", "2, 16, 19, 19", ", strides = [2, 2]"),
    ],
)
def test_other_strides_keep_filters_in_lanes(x, w, y, attributes):
    assert "contract:conv_planar" not in ops(
        run(IMAGES, conv(x, w, y, attributes, layout="NCHW"))
    )


def test_phases_of_a_transposed_convolution_read_one_tensor_of_planes():
    text = (
        "graph @g(%x: f32[1, 6, 20, 20], %w: f32[6, 1, 5, 5]) {"
        " %y: f32[1, 1, 43, 43] = conv_transpose(%x, %w) {strides = [2, 2]} return %y }"
    )
    before, graph = parse(text), run(IMAGES, text)
    assert_same_results(before, graph, tolerance=1e-5)
    planar = [node for node in graph.nodes if form_of(node) == "contract:conv_planar"]
    assert len(planar) == 4
    assert any("+ 2" in str(node.attributes["right"]) for node in planar)
    moved = [node for node in graph.nodes if node.op == "transpose"]
    assert all(node.operands[0] is not graph.inputs[0] for node in moved)


def test_channels_that_are_wanted_last_in_short_rows_are_dear_to_move():
    text = (
        "graph @g(%x: f32[1, 2, 20, 30], %w: f32[3, 2, 3, 3]) {"
        ' %y: f32[1, 3, 18, 28] = conv(%x, %w) {layout = "NCHW"}'
        " %z: f32[1, 18, 28, 3] = transpose(%y) {perm = [0, 2, 3, 1]} return %z }"
    )
    assert "contract:conv" in ops(run(IMAGES, text))
    deep = text.replace("1, 2, 20, 30", "1, 64, 20, 30").replace(
        "3, 2, 3, 3", "3, 64, 3, 3"
    )
    assert "contract:conv_planar" in ops(run(IMAGES, deep))


def test_a_small_cut_of_a_large_image_is_cut_before_it_is_moved():
    text = (
        "graph @g(%x: f32[1, 90, 90, 6], %w: f32[2, 6, 3, 3]) {"
        " %c: f32[1, 20, 20, 6] = slice(%x)"
        " {axes = [1, 2], starts = [3, 4], sizes = [20, 20], steps = [1, 1]}"
        ' %y: f32[1, 18, 18, 2] = conv(%c, %w) {layout = "NHWC"}'
        " %z: f32[1, 2, 18, 18] = transpose(%y) {perm = [0, 3, 1, 2]} return %z }"
    )
    graph = assert_planar(G, text)
    assert only(graph, "contract:conv_planar").operands[1].type.shape == (1, 6, 400)


def test_halves_are_widened_once():
    text = conv("1, 20, 30, 5", "3, 5, 3, 3", "1, 18, 28, 3").replace("f32", "f16")
    graph = run(G, text)
    assert [str(v.type.dtype) for v in only(graph, "contract:conv_planar").operands] == [
        "f32",
        "f32",
    ]
    assert_same_results(parse(text), graph, tolerance=1e-2)


def test_a_border_that_is_not_of_zeros_stays_where_it_is():
    text = (
        "graph @g(%x: f32[1, 20, 30, 5], %w: f32[3, 5, 3, 3]) {"
        ' %p: f32[1, 22, 32, 5] = pad(%x) {pads = [0, 1, 1, 0, 0, 1, 1, 0], mode = "edge"}'
        ' %y: f32[1, 20, 30, 3] = conv(%p, %w) {layout = "NHWC"}'
        " %z: f32[1, 3, 20, 30] = transpose(%y) {perm = [0, 3, 1, 2]} return %z }"
    )
    assert_planar(G, text)


def test_what_is_no_number_reaches_only_the_windows_it_is_in():
    text = conv("1, 20, 30, 5", "3, 5, 3, 3", "1, 18, 28, 3")
    before, graph = parse(text), run(G, text)
    x = np.ones((1, 20, 30, 5), np.float32)
    x[0, 4, 29, 2], x[0, 9, 0, 0] = np.inf, np.nan
    w = np.ones((3, 5, 3, 3), np.float32)
    np.testing.assert_array_equal(evaluate(graph, [x, w])[0], evaluate(before, [x, w])[0])
