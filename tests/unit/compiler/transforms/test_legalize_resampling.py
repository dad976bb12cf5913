"""`run` compares the results before and after the pass: what is asserted here is the form."""

import pytest

from fakes.graphs import ops, run
from tilewright.compiler.transforms import LegalizeResampling

G = [LegalizeResampling()]


def resized(x, y, attributes="", dtype="f32"):
    more = f", {attributes}" if attributes else ""
    text = (
        f"graph @g<N: 1..>(%x: {dtype}[{x}]) {{ %y: {dtype}[{y}] = resize(%x)"
        f" {{sizes = [{y}]{more}}} return %y }}"
    )
    return run(G, text)


def changed_axes(graph):
    """Which axis each node resamples, in order."""
    found = []
    for node in graph.nodes:
        old, new = node.operands[0].type.shape, node.result.type.shape
        found.append(
            tuple(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if a != b)
        )
    return found


def test_an_image_that_grows_is_picked_from_along_rows_first():
    graph = resized("1, 2, 4, 5", "1, 2, 16, 20", 'mode = "linear"')
    assert changed_axes(graph) == [(3,), (2,)]


def test_an_image_that_shrinks_loses_its_rows_first():
    graph = resized("1, 2, 24, 20", "1, 2, 6, 5", 'mode = "cubic"')
    assert changed_axes(graph) == [(2,), (3,)]


def test_what_lies_with_its_channels_last_is_resampled_at_once_where_it_grows_little():
    graph = resized("1, 4, 5, 8", "1, 6, 7, 8", 'mode = "linear"')
    assert changed_axes(graph) == [(1, 2)]


@pytest.mark.parametrize("coordinates", ["align_corners", "asymmetric", "half_pixel"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_every_axis_keeps_its_coordinates(mode, coordinates):
    options = f'mode = "{mode}", coordinate_mode = "{coordinates}", exclude_outside = true'
    graph = resized("3, 1, 5, 2", "7, 1, 16, 9", options)
    assert ops(graph) == ["resize"] * 3


def test_scales_stay_with_their_axes():
    graph = resized(
        "1, 1, 5, 7", "1, 1, 15, 20", 'mode = "linear", scales = f64[4] [1, 1, 3.1, 2.9]'
    )
    scales = [node.attributes["scales"].tolist() for node in graph.nodes]
    assert scales == [[1, 1, 1, 2.9], [1, 1, 3.1, 1]]


@pytest.mark.parametrize(
    ("attributes", "dtype"),
    [
        ('mode = "nearest"', "f32"),
        ('mode = "linear"', "f16"),
        ('mode = "linear", coordinate_mode = "tf_crop_and_resize", roi = f64[8] [0, 0, 0, 0, 1, 1, 1, 1]', "f32"),
    ],
)  # fmt: skip
def test_pixels_that_are_picked_rounded_or_cropped_stay_as_they_are(attributes, dtype):
    assert ops(resized("1, 2, 4, 5", "1, 2, 16, 20", attributes, dtype)) == ["resize"]


def test_one_axis_and_no_elements_stay_as_they_are():
    assert ops(resized("1, 2, 4, 5", "1, 2, 4, 20", 'mode = "linear"')) == ["resize"]
    assert ops(resized("1, 2, 4, 5", "1, 2, 0, 20", 'mode = "linear"')) == ["resize"]
    assert ops(resized("N, 2, 4, 5", "N, 2, 4, 20", 'mode = "linear"')) == ["resize"]


@pytest.mark.parametrize(
    ("old", "new"), [("24, 20", "6, 5"), ("4, 5", "16, 20"), ("6, 20", "18, 5")]
)
def test_an_open_batch_has_the_order_of_a_known_one(old, new):
    """The order decides last digits, and a row of a batch has the same ones in any batch."""
    known, open_ = (
        changed_axes(resized(f"{n}, 2, {old}", f"{n}, 2, {new}", 'mode = "cubic"'))
        for n in ("3", "N")
    )
    assert len(known) == 2
    assert known == open_
