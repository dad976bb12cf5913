import numpy as np
import pytest

from fakes.contractions import form_of
from fakes.graphs import only, ops, run
from tilewright.base.symbolic import ceildiv, symbol
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.passes import PassContext, run_passes
from tilewright.compiler.transforms import (
    ConvertLayout,
    FoldConstants,
    LegalizeConvolution,
    PackMatmul,
)


def panel(rows, columns, depth, dtype):
    return 4


G = [LegalizeConvolution(choose_panel=panel), FoldConstants()]


def conv(x, w, y, attributes=""):
    return (
        f"graph @g<N: 1..>(%x: f32[{x}]) {{ %w: f32[{w}] = constant {{value = f32[{w}] splat 0.5}}"
        f' %y: f32[{y}] = conv(%x, %w) {{layout = "NHWC"{attributes}}} return %y }}'
    )


def test_padding_becomes_a_pad_in_front():
    graph = run(G, conv("N, 5, 6, 3", "7, 3, 3, 3", "N, 4, 6, 7", ", pads = [1, 0, 0, 2]"))
    assert ops(graph) == ["pad", "contract:conv"]
    assert only(graph, "pad").attributes["pads"] == (0, 1, 0, 0, 0, 0, 2, 0)


def test_weights_are_packed_in_panels_of_filters():
    graph = run(G, conv("N, 5, 6, 3", "7, 3, 3, 3", "N, 3, 4, 7"))
    packed = graph.nodes[-1].operands[1]
    assert packed.type.shape == (1, 2, 3, 3, 3, 4)
    assert graph.nodes[-1].attributes["result"] == "n, oh, ow, l + 4*p"


def test_groups_are_packed_one_by_one():
    attributes = ", groups = 2, strides = [2, 1], dilations = [1, 2]"
    graph = run(G, conv("N, 5, 6, 4", "6, 2, 3, 2", "N, 2, 4, 6", attributes))
    node = graph.nodes[-1]
    assert form_of(node) == "contract:conv"
    assert node.operands[1].type.shape == (2, 1, 3, 2, 2, 4)
    assert node.attributes["left"] == "n, kh + 2*oh, 2*kw + ow, c + 2*g"


@pytest.mark.parametrize(
    ("groups", "depth", "count", "side_by_side"),
    [
        (6, 2, 2, True),
        (6, 4, 2, True),
        (6, 5, 2, False),  # channels too far apart
        (6, 2, 3, False),  # groups would begin anywhere in a vector
        (6, 4, 4, False),  # fill a vector each
        (1, 2, 2, False),
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_filters_of_small_groups_stand_side_by_side(
    groups, depth, count, side_by_side, dtype
):
    channels, filters = groups * depth, groups * count
    text = (
        f"graph @g<N: 1..>(%x: {dtype}[N, 4, 5, {channels}], %w: {dtype}[{filters}, {depth}, 3, 2]) {{"
        f' %y: {dtype}[N, 2, 4, {filters}] = conv(%x, %w) {{groups = {groups}, layout = "NHWC"}}'
        " return %y }"
    )
    graph = run(G, text)
    assert ("pack_panels" not in ops(graph)) == side_by_side
    (node,) = [node for node in graph.nodes if node.op == "contract"]
    *_, last = node.operands[1].type.shape
    assert last == (count if side_by_side else 4)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("count", [1, 2, 4, 5, 9])
def test_every_group_keeps_its_filters_whatever_their_number(count, depth, groups):
    """`run` compares the results: weights are an input, so all of them differ."""
    channels, filters = groups * depth, groups * count
    text = (
        f"graph @g(%x: f32[2, 4, 5, {channels}], %w: f32[{filters}, {depth}, 3, 2]) {{"
        f' %y: f32[2, 2, 4, {filters}] = conv(%x, %w) {{groups = {groups}, layout = "NHWC"}}'
        " return %y }"
    )
    assert "conv" not in ops(run(G, text))


def test_a_point_convolution_is_a_matmul_of_all_pixels():
    graph = run(G, conv("N, 5, 6, 3", "7, 3, 1, 1", "N, 5, 6, 7"))
    assert ops(graph) == ["reshape", "matmul", "reshape"]
    assert str(graph.nodes[0].result.type) == "f32[30*N, 3]"


def test_a_strided_point_convolution_stays_a_convolution():
    graph = run(G, conv("N, 5, 6, 3", "7, 3, 1, 1", "N, 3, 3, 7", ", strides = [2, 2]"))
    assert ops(graph) == ["contract:conv"]


def test_a_padded_point_convolution_pads_first():
    graph = run(G, conv("N, 5, 6, 3", "7, 3, 1, 1", "N, 7, 8, 7", ", pads = [1, 1, 1, 1]"))
    assert ops(graph) == ["pad", "reshape", "matmul", "reshape"]


def test_one_filter_per_channel_is_depthwise():
    graph = run(G, conv("N, 5, 6, 3", "3, 1, 3, 2", "N, 3, 5, 3", ", groups = 3"))
    assert ops(graph) == ["contract:depthwise_conv"]
    assert graph.nodes[-1].operands[1].type.shape == (3, 2, 3)


def test_one_filter_over_a_single_channel_is_depthwise_and_several_are_not():
    graph = run(G, conv("N, 5, 6, 1", "1, 1, 3, 2", "N, 3, 5, 1"))
    assert ops(graph) == ["contract:depthwise_conv"]
    graph = run(G, conv("N, 5, 6, 1", "2, 1, 3, 2", "N, 3, 5, 2"))
    assert ops(graph) == ["contract:conv"]


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks_are_packed_too(rank):
    size, taps = ", ".join(["4"] * rank), ", ".join(["2"] * rank)
    out = ", ".join(["3"] * rank)
    graph = run(G, conv(f"N, {size}, 3", f"5, 3, {taps}", f"N, {out}, 5"))
    assert ops(graph) == ["contract:conv"]


def test_the_bias_becomes_an_addition():
    text = conv("N, 5, 6, 3", "7, 3, 3, 3", "N, 3, 4, 7").replace("%w)", "%w, %b)")
    text = text.replace(
        "{ %w",
        "{ %b: f32[7] = constant {value = f32[7] [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]} %w",
    )
    assert ops(run(G, text)) == ["contract:conv", "add"]


def test_computed_weights_are_packed_at_run_time():
    graph = run(
        G,
        "graph @g(%x: f32[1, 5, 6, 3], %w: f32[7, 3, 2, 2])"
        ' { %y: f32[1, 4, 5, 7] = conv(%x, %w) {layout = "NHWC"} return %y }',
    )
    assert "pack_panels" in ops(graph)
    assert ops(graph)[-1] == "contract:conv"


def test_an_open_number_of_computed_filters_is_packed():
    graph = run(
        G,
        "graph @g<F: 0..>(%x: f32[1, 5, 6, 3], %w: f32[F, 3, 2, 2])"
        ' { %y: f32[1, 4, 5, F] = conv(%x, %w) {layout = "NHWC"} return %y }',
    )
    product = graph.nodes[-1]
    assert form_of(product) == "contract:conv"
    panels = ceildiv(symbol("F"), 4)
    assert product.operands[1].type.shape == (1, panels, 2, 2, 3, 4)
    image, filters = np.ones((1, 5, 6, 3), np.float32), np.arange(60, dtype=np.float32)
    for count in (0, 1, 4, 5):
        weights = filters[: count * 12].reshape(count, 3, 2, 2)
        (found,) = evaluate(graph, [image, weights])
        sums = weights.sum((1, 2, 3))
        np.testing.assert_array_equal(found, np.broadcast_to(sums, (1, 4, 5, count)))


def test_groups_of_an_open_number_of_filters_stay_convolutions():
    graph = run(
        G,
        "graph @g<F: 1..>(%x: f32[1, 5, 6, 6], %w: f32[2*F, 3, 2, 2])"
        ' { %y: f32[1, 4, 5, 2*F] = conv(%x, %w) {layout = "NHWC", groups = 2} return %y }',
    )
    assert ops(graph) == ["conv"]


def test_integer_convolutions_take_the_way_of_floats():
    graph = run(
        G,
        "graph @g(%x: i32[1, 5, 6, 3], %w: i32[7, 3, 2, 2])"
        " { %y: i32[1, 5, 6, 7] = conv(%x, %w)"
        ' {layout = "NHWC", pads = [0, 0, 1, 1]} return %y }',
    )
    assert ops(graph)[-1] == "contract:conv"
    assert "pad" in ops(graph)


def test_without_the_layout_pass_convolutions_stay():
    text = conv("1, 3, 5, 6", "7, 3, 3, 3", "1, 7, 3, 4").replace("NHWC", "NCHW")
    context = PassContext(disabled_pass=["convert-layout"])
    passes = [ConvertLayout(), *G]
    graph = run(passes, text, context=context)
    assert ops(graph) == ["conv"]


def test_the_panel_is_asked_for_loops_over_rows_columns_and_depth():
    asked = []

    def remember(rows, columns, depth, dtype):
        asked.append((" ".join(map(str, rows)), columns, depth, str(dtype)))
        return 0

    passes = [LegalizeConvolution(choose_panel=remember), PackMatmul(choose_panel=remember)]
    graph = run(passes, conv("N, 5, 6, 4", "6, 2, 3, 2", "N, 3, 5, 6", ", groups = 2"))
    assert asked == [("N 3 5", 3, 12, "f32")]
    assert ops(graph)[-1] == "contract:conv"
    run_passes(graph, [])


def test_filters_that_see_one_channel_each_are_depthwise_over_repeated_channels():
    graph = run(G, conv("N, 5, 6, 4", "12, 1, 3, 3", "N, 3, 4, 12", ", groups = 4"))
    assert ops(graph) == ["reshape", "broadcast_to", "reshape", "contract:depthwise_conv"]


def test_many_filters_for_each_channel_stay_panels():
    graph = run(G, conv("N, 5, 6, 2", "16, 1, 3, 3", "N, 3, 4, 16", ", groups = 2"))
    assert ops(graph) == ["contract:conv"]


def test_one_filter_is_a_sum_over_the_channels_of_a_depthwise_convolution():
    graph = run(G, conv("N, 5, 6, 8", "1, 8, 3, 2", "N, 3, 5, 1"))
    assert ops(graph) == ["contract:depthwise_conv", "reduce_sum"]
    graph = run(G, conv("N, 5, 6, 8", "4, 2, 3, 2", "N, 3, 5, 4", ", groups = 4"))
    assert ops(graph) == ["contract:depthwise_conv", "reshape", "reduce_sum"]


def test_one_filter_of_sixteen_bit_floats_sums_over_channels_before_it_rounds():
    text = (
        "graph @g(%x: f16[1, 2, 1, 4]) {"
        " %w: f16[1, 4, 1, 2] = constant {value = f16[1, 4, 1, 2]"
        " [1.0009765625, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0]}"
        ' %y: f16[1, 2, 1, 1] = conv(%x, %w) {layout = "NHWC", pads = [0, 0, 0, 1]} return %y }'
    )
    graph = run(G, text)
    assert "contract:depthwise_conv" in ops(graph)
    x = np.zeros((1, 2, 1, 4), np.float16)
    x[..., 0], x[..., 1] = 1 + 2**-10, 1 + 2**-9
    (y,) = evaluate(graph, [x])
    np.testing.assert_array_equal(y, np.full((1, 2, 1, 1), 2**-20, np.float16))


def test_images_of_sixteen_bit_floats_are_widened_once_and_the_panels_stay():
    text = conv("N, 5, 6, 3", "7, 3, 3, 3", "N, 3, 4, 7").replace("f32", "f16")
    graph = run(G, text)
    assert ops(graph) == ["cast", "contract:conv", "cast"]
    product = only(graph, "contract:conv")
    assert [v.type.dtype.name for v in product.operands] == ["f32", "f16"]


@pytest.mark.parametrize(
    ("channels", "groups", "image", "word"),
    [
        (8, 1, (5, 6), "i64"),
        (16, 2, (5, 6), "i64"),
        (4, 1, (5, 6), "i32"),
        (12, 1, (5, 6), "i32"),
        (8, 1, (3, 4), "i64"),
        (8, 1, (3, 3), "i32"),  # one place has no rows for a tile
    ],
)
def test_channels_are_eight_bytes_to_a_word_where_they_fill_it(
    channels, groups, image, word
):
    passes = [
        ConvertLayout(),
        LegalizeConvolution(choose_panel=panel, products=frozenset({"long_bytes"})),
        FoldConstants(),
    ]
    weights = f"6, {channels // groups}, 3, 3"
    text = (
        f"graph @g(%x: u8[1, {image[0]}, {image[1]}, {channels}]) {{ %w: i8[{weights}] = constant {{value = i8[{weights}] splat -3}}"
        f' %y: i32[1, {image[0] - 2}, {image[1] - 2}, 6] = conv(%x, %w) {{layout = "NHWC", dtype = i32, groups = {groups}}} return %y }}'
    )
    graph = run(passes, text)
    product = only(graph, "contract:conv")
    assert {v.type.dtype.name for v in product.operands} == {word}
