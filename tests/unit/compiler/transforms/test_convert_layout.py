import pytest

from fakes.graphs import assert_stays, ops, run
from tilewright.compiler.transforms import ConvertLayout, FoldConstants

L = [ConvertLayout(), FoldConstants()]
SPLAT = "constant {value = f32[SHAPE] splat 0.125}"


def weights(name, shape):
    return f"%{name}: f32[{shape}] = {SPLAT.replace('SHAPE', shape)}"


def net(*lines, result="y", shape="N, 4, 6, 5", extra=""):
    return (
        f"graph @g<N: 1..>(%x: f32[{shape}]{extra}) {{ {weights('w', '4, 4, 3, 3')} "
        f"{' '.join(lines)} return %{result} }}"
    )


C1 = "%a: f32[N, 4, 6, 5] = conv(%x, %w) {pads = [1, 1, 1, 1]}"
SAME = "f32[N, 4, 6, 5]"


def transposes(graph):
    return [n.attributes["perm"] for n in graph.nodes if n.op == "transpose"]


def layouts(graph):
    return {n.attributes["layout"] for n in graph.nodes if "layout" in n.attributes}


def test_a_convolution_stands_between_two_transposes():
    graph = run(L, net(C1, result="a"))
    assert ops(graph) == ["transpose", "conv", "transpose"]
    assert transposes(graph) == [(0, 2, 3, 1), (0, 3, 1, 2)]
    assert layouts(graph) == {"NHWC"}


def test_everything_between_two_convolutions_runs_channels_last():
    graph = run(
        L,
        net(
            C1,
            weights("s", "4, 1, 1"),
            f"%b: {SAME} = mul(%a, %s)",
            f"%c: {SAME} = relu(%b)",
            f"%d: {SAME} = add(%c, %a)",
            f"%e: {SAME} = max_pool(%d) {{kernel = [3, 3], pads = [1, 1, 1, 1]}}",
            f"%y: {SAME} = conv(%e, %w) {{pads = [1, 1, 1, 1]}}",
        ),
    )
    assert ops(graph) == [
        "transpose", "conv", "mul", "relu", "add", "max_pool", "conv", "transpose",
    ]  # fmt: skip
    assert layouts(graph) == {"NHWC"}


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("%y: f32[N, 4, 8, 7] = pad(%a) {pads = [0, 0, 1, 2, 0, 0, 1, 0]}", 2),
        (
            "%y: f32[N, 2, 6, 5] = slice(%a) {axes = [1], starts = [1], sizes = [2], steps = [1]}",
            2,
        ),
        ("%y: f32[N, 8, 6, 5] = concat(%a, %a) {axis = 1}", 2),
        ("%y: f32[N, 4, 6, 5] = softmax(%a) {axis = 1}", 2),
        ("%y: f32[N, 4, 12, 10] = resize(%a) {sizes = [N, 4, 12, 10]}", 2),
        ("%y: f32[N, 4, 6, 10] = tile(%a) {repeats = [1, 1, 1, 2]}", 2),
        ("%y: f32[N, 4, 1, 1] = reduce_mean(%a) {axes = [2, 3]}", 1),
        ("%y: f32[N, 4] = reduce_mean(%a) {axes = [2, 3], keepdims = false}", 1),
        ("%y: f32[N, 6, 5] = reduce_max(%a) {axes = [1], keepdims = false}", 1),
        ("%y: i64[N, 6, 5] = arg_max(%a) {axis = 1, keepdims = false}", 1),
        ("%y: f32[N, 4, 6] = reduce_sum(%a) {axes = [-1], keepdims = false}", 2),
        ("%y: f32[N, 4, 30] = reshape(%a) {shape = [N, 4, 30]}", 2),
        ("%y: f32[N, 4, 6, 5] = lrn(%a) {size = 3}", 2),
    ],
)
def test_ops_behind_a_convolution_run_channels_last(line, count):
    graph = run(L, net(C1, line))
    assert len(transposes(graph)) == count
    place = [n.op for n in graph.nodes].index("conv")
    assert graph.nodes[place + 1].op != "transpose"


def test_a_pooling_without_any_convolution_stays():
    text = "graph @g(%x: f32[1, 2, 4, 4]) { %y: f32[1, 2, 3, 3] = max_pool(%x) {kernel = [2, 2]} return %y }"
    assert_stays([ConvertLayout()], text)


def test_the_models_own_transposes_cancel():
    graph = run(
        L,
        net(
            C1,
            "%b: f32[N, 6, 5, 4] = transpose(%a) {perm = [0, 2, 3, 1]}",
            "%c: f32[N, 6, 5, 4] = layer_norm(%b)",
            f"%d: {SAME} = transpose(%c) {{perm = [0, 3, 1, 2]}}",
            f"%y: {SAME} = add(%d, %x)",
        ),
    )
    assert ops(graph) == ["transpose", "conv", "layer_norm", "add", "transpose"]


def test_one_dimensional_convolutions_become_flat_images():
    graph = run(
        L,
        f"graph @g<N: 1..>(%x: f32[N, 4, 9]) {{ {weights('w', '4, 2, 3')}"
        " %a: f32[N, 4, 5] = conv(%x, %w) {pads = [1, 1], strides = [2], groups = 2}"
        " %y: f32[N, 4, 5] = relu(%a) return %y }",
    )
    (conv,) = (n for n in graph.nodes if n.op == "conv")
    assert conv.result.type.rank == 4
    assert conv.attributes["pads"] == (0, 1, 0, 1)
    assert conv.attributes["strides"] == (1, 2)
    assert ops(graph)[-1] == "transpose"


def test_one_dimensional_transposed_convolutions_too():
    graph = run(
        L,
        f"graph @g(%x: f32[1, 2, 5]) {{ {weights('w', '2, 3, 3')}"
        " %y: f32[1, 3, 12] = conv_transpose(%x, %w) {strides = [2], output_padding = [1]}"
        " return %y }",
    )
    (conv,) = (n for n in graph.nodes if n.op == "conv_transpose")
    assert conv.attributes["output_padding"] == (0, 1)


def test_channel_shuffles_stay_within_the_channels():
    graph = run(
        L,
        net(
            C1,
            "%b: f32[N, 2, 2, 6, 5] = reshape(%a) {shape = [N, 2, 2, 6, 5]}",
            "%c: f32[N, 2, 2, 6, 5] = transpose(%b) {perm = [0, 2, 1, 3, 4]}",
            f"%d: {SAME} = reshape(%c) {{shape = [N, 4, 6, 5]}}",
            f"%y: {SAME} = conv(%d, %w) {{pads = [1, 1, 1, 1]}}",
        ),
    )
    assert transposes(graph) == [(0, 2, 3, 1), (0, 1, 2, 4, 3), (0, 3, 1, 2)]


def test_a_gate_per_channel_is_reshaped_not_moved():
    graph = run(
        L,
        net(
            C1,
            "%b: f32[N, 4] = reduce_mean(%a) {axes = [2, 3], keepdims = false}",
            "%c: f32[N, 4] = sigmoid(%b)",
            "%d: f32[N, 4, 1, 1] = reshape(%c) {shape = [N, 4, 1, 1]}",
            f"%y: {SAME} = mul(%a, %d)",
        ),
    )
    assert len(transposes(graph)) == 2


def test_real_data_in_the_other_order_is_not_moved_for_an_addition():
    graph = run(L, net(C1, f"%y: {SAME} = add(%a, %z)", extra=f", %z: {SAME}"))
    assert ops(graph) == ["transpose", "conv", "transpose", "add"]


def test_data_that_a_convolution_moved_anyway_is_used_for_a_residual():
    graph = run(L, net(C1, f"%y: {SAME} = add(%x, %a)"))
    assert ops(graph) == ["transpose", "conv", "add", "transpose"]


def test_flattening_across_channels_keeps_the_transpose():
    graph = run(L, net(C1, "%y: f32[N, 120] = reshape(%a) {shape = [N, 120]}"))
    assert ops(graph) == ["transpose", "conv", "transpose", "reshape"]


def test_three_spatial_axes():
    graph = run(
        L,
        f"graph @g(%x: f32[1, 2, 4, 5, 3]) {{ {weights('w', '3, 2, 2, 2, 2')}"
        " %a: f32[1, 3, 3, 4, 2] = conv(%x, %w) %y: f32[1, 3, 3, 4, 2] = relu(%a) return %y }",
    )
    assert transposes(graph) == [(0, 2, 3, 4, 1), (0, 4, 1, 2, 3)]


def test_resizing_with_scales_and_regions_moves_them_along():
    graph = run(
        L,
        net(
            C1,
            '%y: f32[N, 4, 3, 9] = resize(%a) {sizes = [N, 4, 3, 9], mode = "linear",'
            " scales = f32[4] [1.0, 1.0, 0.5, 1.8]}",
        ),
    )
    (resize,) = (n for n in graph.nodes if n.op == "resize")
    assert [round(float(s), 1) for s in resize.attributes["scales"]] == [1.0, 0.5, 1.8, 1.0]


def test_rows_of_an_image_are_picked_where_its_channels_lie_last():
    lines = (C1, "%b: f32[N, 4, 9, 5] = gather(%a, %i) {axis = 2}")
    last = "%y: f32[N, 4, 9, 5] = conv(%b, %w) {pads = [1, 1, 1, 1]}"
    graph = run(L, net(*lines, last, extra=", %i: i64[9]"))
    assert ops(graph) == ["transpose", "conv", "gather", "conv", "transpose"]
    (gather,) = (n for n in graph.nodes if n.op == "gather")
    assert gather.attributes["axis"] == 1
    # Indices with axes of their own stand where one axis was: others move.
    table = "%y: f32[N, 4, 3, 3, 5] = gather(%a, %i) {axis = 2}"
    graph = run(L, net(C1, table, extra=", %i: i64[3, 3]"))
    assert ops(graph) == ["transpose", "conv", "transpose", "gather"]


def test_a_norm_over_whole_rows_stays_where_the_rows_are():
    folded = "%b: f32[N, 2, 60] = reshape(%a) {shape = [N, 2, 60]}"
    norm = "%y: f32[N, 2, 60] = instance_norm(%b) {epsilon = 1e-05}"
    graph = run(L, net(C1, folded, norm))
    assert transposes(graph) == [(0, 2, 3, 1), (0, 3, 1, 2)]
    beside = f"%y: {SAME} = instance_norm(%a) {{epsilon = 1e-05}}"
    assert layouts(run(L, net(C1, beside))) == {"NHWC"}


@pytest.mark.parametrize(
    ("scale", "moves"),
    [("f32[] [0.5]", True), ("f32[5] [1.0, 0.5, 0.25, 2.0, 4.0]", True), (None, False)],
)
def test_scales_of_a_quantization_stay_with_their_axis(scale, moves):
    """As many channels as columns: a line of scales that stood elsewhere would go unnoticed."""
    size = "5" if scale is None or "[5]" in scale else ""
    block = " %s: f32[1, 5, 6, 1] = constant() {value = f32[1, 5, 6, 1] splat 0.25}"
    text = f" %s: f32[{size}] = constant() {{value = {scale}}}" if scale else block
    graph = run(
        L,
        "graph @g<N: 1..>(%x: f32[N, 4, 6, 5]) {"
        f" {weights('w', '5, 4, 3, 3')}{text}"
        " %c: f32[N, 5, 6, 5] = conv(%x, %w) {pads = [1, 1, 1, 1]}"
        " %q: i8[N, 5, 6, 5] = quantize_linear(%c, %s) {axis = 1, dtype = i8}"
        " %y: f32[N, 5, 6, 5] = dequantize_linear(%q, %s) {axis = 1} return %y }",
    )
    last = graph.nodes[-1].op
    assert last == ("transpose" if moves else "dequantize_linear")
