"""`col2im` with a stride: phases of stride 1, or a move where each place is in one block."""

import pytest

from fakes.graphs import assert_same_results, ops, parse, run
from tilewright.compiler.transforms import ConvertLayout, LegalizeConvolution, Simplify


def panel(rows, columns, depth, dtype):
    return 4


G = [ConvertLayout(), LegalizeConvolution(choose_panel=panel), Simplify()]


def fold(channels, image, block, strides, pads=None, dilations=None, dtype="f32"):
    rank = len(image)
    pads, dilations = pads or [0] * (2 * rank), dilations or [1] * rank
    counts = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1)
        // strides[i]
        + 1
        for i in range(rank)
    ]
    rows, columns = channels, 1
    for extent, count in zip(block, counts, strict=True):
        rows, columns = rows * extent, columns * count
    result = ", ".join(map(str, ("N", channels, *image)))
    return (
        f"graph @g<N: 1..>(%x: {dtype}[N, {rows}, {columns}]) {{"
        f" %y: {dtype}[{result}] = col2im(%x) {{image = {list(image)}, block = {list(block)},"
        f" strides = {list(strides)}, pads = {pads}, dilations = {dilations}}} return %y }}"
    )


@pytest.mark.thinned(4)
@pytest.mark.parametrize("stride", [2, 3, 5])
@pytest.mark.parametrize("block", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("pads", [[0, 0], [1, 2], [4, 0]])
def test_strided_blocks_are_blocks_of_stride_one(stride, block, pads):
    text = fold(3, (23,), (block,), (stride,), pads)
    graph = run(G, text)
    assert all(
        node.attributes["strides"] == () for node in graph.nodes if node.op == "col2im"
    )
    assert_same_results(parse(text), graph)


@pytest.mark.parametrize("dilation", [2, 3, 4])
@pytest.mark.parametrize("stride", [2, 3])
def test_dilated_blocks_meet_only_some_phases(stride, dilation):
    text = fold(2, (20, 9), (3, 2), (stride, 1), [1, 0, 0, 1], [dilation, 1])
    graph = run(G, text)
    assert_same_results(parse(text), graph)


@pytest.mark.parametrize(
    ("image", "block", "strides", "pads"),
    [
        ((9, 10), (3, 3), (2, 2), [1, 1, 1, 1]),
        ((9, 10), (4, 2), (3, 1), [0, 1, 2, 0]),
        ((8, 13), (5, 4), (3, 2), [2, 3, 2, 1]),
        ((5, 6, 7), (2, 3, 2), (2, 2, 3), [0, 1, 0, 0, 1, 1]),
    ],
)
def test_every_axis_has_its_own_phases(image, block, strides, pads):
    text = fold(2, image, block, strides, pads)
    graph = run(G, text)
    assert_same_results(parse(text), graph)


def test_blocks_that_do_not_meet_are_moved():
    text = fold(3, (12, 20), (4, 5), (4, 5))
    graph = run(G, text)
    assert ops(graph) == ["reshape", "transpose", "reshape"]
    assert_same_results(parse(text), graph)


def test_places_between_blocks_are_zero():
    text = fold(2, (11,), (2,), (4,))
    graph = run(G, text)
    assert_same_results(parse(text), graph)


def test_integers_have_phases_too():
    text = fold(2, (9, 10), (3, 3), (2, 2), dtype="i32")
    assert_same_results(parse(text), run(G, text))


def test_blocks_of_stride_one_stay():
    assert ops(run(G, fold(2, (9, 10), (3, 3), (1, 1)))) == ["col2im"]
