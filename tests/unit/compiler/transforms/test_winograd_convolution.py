"""Convolutions in Winograd's domain are the same convolutions, to a few more roundings."""

import numpy as np
import pytest

from fakes.graphs import (
    EVERYTHING_HELD,
    assert_same_results,
    copy_of,
    only,
    ops,
    parse,
    run,
)
from tilewright.base.dtypes import f32
from tilewright.base.symbolic import parse as parse_dim
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.passes import run_passes
from tilewright.compiler.transforms import FoldConstants, WinogradConvolution


def pass_with(tile):
    return WinogradConvolution(choose_tile=lambda *_: tile)


def conv(x, w, y, attributes="", layout="NHWC"):
    return (
        f"graph @g<N: 1..>(%x: f32[{x}]) {{ %w: f32[{w}] = constant {{value = f32[{w}] splat 0.5}}"
        f' %y: f32[{y}] = conv(%x, %w) {{layout = "{layout}"{attributes}}} return %y }}'
    )


SAME = ", pads = [1, 1, 1, 1]"


def test_a_convolution_is_transforms_around_a_product_for_each_pair_of_points():
    graph = run(
        [pass_with(4), FoldConstants()],
        conv("2, 9, 6, 5", "7, 5, 3, 3", "2, 9, 6, 7", SAME),
    )
    assert ops(graph) == ["pad", "winograd_input", "matmul", "winograd_output"]
    # The last tiles are whole: 12 rows of results and 8 columns.
    assert only(graph, "pad").attributes["pads"] == (0, 1, 1, 0, 0, 4, 3, 0)
    assert str(only(graph, "matmul").operands[1].type) == "f32[36, 5, 7]"


def test_groups_are_more_points_of_one_product():
    graph = run(
        [pass_with(4), FoldConstants()],
        conv("2, 9, 6, 6", "15, 2, 3, 3", "2, 9, 6, 15", SAME + ", groups = 3"),
    )
    assert ops(graph) == ["pad", "winograd_input", "matmul", "winograd_output"]
    left, right = (str(operand.type) for operand in only(graph, "matmul").operands)
    assert (left, right) == ("f32[108, 12, 2]", "f32[108, 2, 5]")


def test_the_machine_is_asked_about_one_group_and_how_many_there_are():
    asked = []
    choose = WinogradConvolution(choose_tile=lambda *sizes: asked.append(sizes) or 0)
    run([choose], conv("2, 9, 6, 6", "15, 2, 3, 3", "2, 7, 4, 15", ", groups = 3"))
    assert asked == [([1, 7, 4], 2, 5, 3, 3, f32, (1, 1))], "one image of two"


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("x", "y", "pads"),
    [
        ((1, 7, 9, 3), (1, 7, 9, 4), SAME),
        ((2, 6, 6, 1), (2, 4, 4, 4), ""),
        ((1, 3, 3, 2), (1, 1, 1, 4), ""),
        ((1, 5, 4, 3), (1, 6, 2, 4), ", pads = [2, 0, 1, 0]"),
        ((2, 9, 9, 2), (2, 5, 5, 4), ", dilations = [2, 2]"),
        ((1, 7, 10, 3), (1, 7, 6, 4), ", pads = [3, 1, 3, 1], dilations = [3, 3]"),
        ((2, 5, 8, 1), (2, 3, 2, 4), ", dilations = [1, 3]"),
        ((1, 7, 7, 2), (1, 7, 7, 4), ", pads = [6, 6, 6, 6], dilations = [6, 6]"),
    ],
)
def test_the_results_are_those_of_the_direct_sum(tile, x, y, pads, groups):
    of_all = (*x[:-1], groups * x[-1])
    shapes = [", ".join(map(str, s)) for s in (of_all, (4, x[-1], 3, 3), y)]
    graph = parse(conv(*shapes, f"{pads}, groups = {groups}"))
    random = np.random.default_rng(0)
    weights = random.standard_normal((4, x[-1], 3, 3)).astype(np.float32)
    only(graph, "constant").attributes["value"] = weights
    before = copy_of(graph)
    run_passes(graph, [pass_with(tile)], held=EVERYTHING_HELD)
    verify(graph)
    assert "winograd_output" in ops(graph)
    assert_same_results(before, graph, tolerance=1e-5)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (conv("1, 9, 9, 3", "4, 3, 3, 3", "1, 4, 4, 4", ", strides = [2, 2]"), "strides"),
        (conv("1, 9, 9, 3", "4, 3, 3, 1", "1, 7, 9, 4"), "not square"),
        (conv("1, 9, 3", "4, 3, 3", "1, 7, 4"), "one axis"),
        (conv("1, 3, 9, 9", "4, 3, 3, 3", "1, 4, 7, 7", "", "NCHW"), "channels first"),
    ],
)
def test_other_convolutions_stay(text, reason):
    assert "conv" in ops(run([pass_with(4)], text)), reason


def test_images_may_be_of_any_size():
    asked = []
    choose = WinogradConvolution(choose_tile=lambda *sizes: asked.append(sizes) or 4)
    text = conv("N, H, W, 3", "4, 3, 3, 3", "N, H, W, 4", SAME)
    graph = parse(text.replace("N: 1..", "N: 1.., H: 1.., W: 1.."))
    run_passes(graph, [choose], held=EVERYTHING_HELD)
    verify(graph)
    assert "winograd_output" in ops(graph)
    assert str(graph.outputs[0].type) == "f32[N, H, W, 4]"
    ((places, *known),) = asked
    assert len(places) == 3
    assert known == [3, 4, 3, 1, f32, (1, 1)]


def test_places_as_far_apart_as_taps_are_images_of_their_own():
    asked = []
    choose = WinogradConvolution(choose_tile=lambda *sizes: asked.append(sizes) or 2)
    dilated = ", pads = [2, 3, 2, 3], dilations = [2, 3]"
    text = conv("N, H, W, 3", "4, 3, 3, 3", "N, H, W, 4", dilated)
    text = text.replace("N: 1..", "N: 1.., H: 1.., W: 1..")
    graph = parse(text)
    run_passes(graph, [choose], held=EVERYTHING_HELD)
    verify(graph)
    assert str(graph.outputs[0].type) == "f32[N, H, W, 4]"
    assert asked[0][-1] == (2, 3)
    assert only(graph, "winograd_output").attributes["shape"][0] == parse_dim("6*N")
    for dims in ({"N": 2, "H": 5, "W": 7}, {"N": 1, "H": 1, "W": 2}):
        assert_same_results(parse(text), graph, tolerance=1e-5, dims=dims)


def test_a_convolution_stays_where_the_machine_says_so():
    text = conv("1, 9, 9, 3", "4, 3, 3, 3", "1, 7, 7, 4")
    assert "conv" in ops(run([pass_with(0)], text))


def bytes_pass(tile, products=frozenset({"extended", "shorts"})):
    return WinogradConvolution(choose_tile=lambda *_: tile, products=products)


def byte_conv(channels, weight, window=SAME):
    return (
        f"graph @g(%x: u8[1, 9, 6, {channels}]) {{"
        f" %w: i8[5, {channels}, 3, 3] = constant {{value = i8[5, {channels}, 3, 3] splat {weight}}}"
        f' %y: i32[1, 9, 6, 5] = conv(%x, %w) {{layout = "NHWC", dtype = i32{window}}} return %y }}'
    )


def test_bytes_become_16_bit_numbers_whose_products_are_exact():
    graph = run([bytes_pass(4), FoldConstants()], byte_conv(7, -128))
    assert ops(graph) == ["pad", "winograd_input", "matmul", "winograd_output"]
    left, right = (str(operand.type) for operand in only(graph, "matmul").operands)
    assert (left, right) == ("i16[36, 6, 7]", "i16[36, 7, 5]")


@pytest.mark.parametrize("window", [SAME, ", pads = [2, 2, 2, 2], dilations = [2, 2]"])
@pytest.mark.parametrize("tile", [2, 4])
def test_the_results_of_bytes_are_those_of_the_direct_sum_exactly(tile, window):
    graph = parse(byte_conv(13, 1, window))
    random = np.random.default_rng(0)
    weights = random.integers(-128, 128, (5, 13, 3, 3)).astype(np.int8)
    weights[0], weights[1] = -128, 127
    only(graph, "constant").attributes["value"] = weights
    before = copy_of(graph)
    run_passes(graph, [bytes_pass(tile)], held=EVERYTHING_HELD)
    verify(graph)
    assert "winograd_output" in ops(graph)
    assert_same_results(before, graph, tolerance=0)


@pytest.mark.parametrize(("tile", "most"), [(4, 114), (2, 1827)])
def test_bytes_whose_sums_may_be_too_large_stay(tile, most):
    """A result is what is left of 32 bits beside the even part of 24 squared, or of 2 squared."""
    assert "conv" not in ops(run([bytes_pass(tile)], byte_conv(most, -128)))
    assert "conv" in ops(run([bytes_pass(tile)], byte_conv(most + 1, -128)))


def test_bytes_stay_where_they_are_multiplied_as_such():
    graph = run([bytes_pass(4, frozenset({"bytes"}))], byte_conv(7, 1))
    assert "conv" in ops(graph)
