"""Blocks and grids whose sizes are data, beside the same operands as numbers and beside onnxruntime."""

import numpy as np
import pytest

import tilewright as tw
from fakes import onnx_models
from fakes.computed_operands import both
from tilewright.base.errors import InputError, ModelError, TilewrightError

RNG = np.random.default_rng(9)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


FORMS = {
    "plain": ((5, 5), (1, 5), {}),
    "a border": ((5, 4), (3, 2), {"pads": [0, 1, 1, 2]}),
    "steps": ((7, 6), (2, 3), {"strides": [2, 3]}),
    "gaps": ((6, 6), (2, 2), {"dilations": [1, 5], "pads": [1, 0, 0, 1]}),
    "three axes": ((3, 4, 5), (1, 2, 5), {"strides": [1, 2, 1]}),
    "one axis": ((9,), (4,), {"strides": [2], "dilations": [2]}),
    "single pixels": ((2, 2), (1, 1), {}),
}


def columns(
    image: tuple[int, ...], block: tuple[int, ...], form: dict[str, list[int]]
) -> int:
    rank = len(image)
    pads, strides = form.get("pads", [0] * 2 * rank), form.get("strides", [1] * rank)
    gaps = form.get("dilations", [1] * rank)
    return int(np.prod([
        (image[i] + pads[i] + pads[rank + i] - gaps[i] * (block[i] - 1) - 1) // strides[i] + 1
        for i in range(rank)
    ]))  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_blocks_are_added_up_where_data_says(name: str) -> None:
    image, block, form = FORMS[name]
    x = floats(2, 3 * int(np.prod(block)), columns(image, block, form))
    arrays = [x, np.array(image), np.array(block)]
    both("Col2Im", arrays, [1, 2], **form)


@pytest.mark.slow
def test_only_the_image_may_be_data() -> None:
    arrays = [floats(1, 12, 6), np.array([4, 3]), np.array([2, 2])]
    constant = onnx_models.one_node("Col2Im", arrays, constants=[1, 2])
    computed = onnx_models.one_node("Col2Im", arrays, constants=[2])
    expected = tw.compile(constant)(arrays[0])
    np.testing.assert_allclose(tw.compile(computed)(*arrays[:2]), expected, atol=1e-6)


def test_an_image_that_does_not_fit_its_blocks_fails_the_call() -> None:
    arrays = [floats(1, 12, 6), np.array([4, 3]), np.array([2, 2])]
    model = tw.compile(onnx_models.one_node("Col2Im", arrays, constants=[2]))
    with pytest.raises(TilewrightError):
        model(arrays[0], np.array([5, 5]))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(2, 3, 4, 5), (1, 1, 1, 3), (3, 1, 1, 1), (2, 1, 3, 2, 5), (1, 2, 1, 1, 4)])  # fmt: skip
def test_grids_of_computed_sizes_beside_onnxruntime(
    size: tuple[int, ...], corners: int
) -> None:
    runtime = pytest.importorskip("onnxruntime")
    rank = len(size) - 2
    arrays = [floats(size[0], rank, rank + 1), np.array(size)]
    model = onnx_models.one_node("AffineGrid", arrays, align_corners=corners)
    session = runtime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"x0": arrays[0], "x1": arrays[1]})
    (found,) = both("AffineGrid", arrays, [1], align_corners=corners)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


POOLS = {
    "usual": [[0, 1, 1, 6, 4], [1, 0, 2, 3, 5], [0, 2.5, 0.5, 4.5, 3.5]],
    "beyond the image": [[1, -4, -3, 20, 30], [0, 8, 9, 12, 14]],
    "one pixel, and none": [[0, 3, 2, 3, 2], [1, 5, 4, 2, 1]],
    "just below a half": [
        [0, 0.49999997, 0.49999997, 3, 3],
        [1, 1, 1, -0.49999997, 2.4999998],
    ],
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", POOLS)
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_maxima_of_regions_beside_onnxruntime(name: str, scale: float) -> None:
    runtime = pytest.importorskip("onnxruntime")
    image = floats(2, 3, 6, 7)
    image[0, 1, 2, 3], image[1, 2, 4, 2] = np.inf, -np.inf
    arrays = [image, np.array(POOLS[name], np.float32)]
    options = {"pooled_shape": [3, 2], "spatial_scale": scale}
    model = onnx_models.one_node("MaxRoiPool", arrays, **options)
    session = runtime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"x0": arrays[0], "x1": arrays[1]})
    np.testing.assert_array_equal(
        onnx_models.run_node("MaxRoiPool", arrays, **options)[0], expected
    )


def test_no_regions_have_no_maxima() -> None:
    arrays = [floats(1, 2, 3, 4), np.zeros((0, 5), np.float32)]
    (found,) = onnx_models.run_node("MaxRoiPool", arrays, pooled_shape=[2, 2])
    assert found.shape == (0, 2, 2, 2)


def test_a_maximum_of_a_region_with_nan_is_nan() -> None:
    image = np.full((1, 1, 4, 4), -np.inf, np.float32)
    image[0, 0, 1, 1] = np.nan
    arrays = [image, np.array([[0, 0, 0, 3, 3]], np.float32)]
    (found,) = onnx_models.run_node("MaxRoiPool", arrays, pooled_shape=[2, 2])
    expected = np.full((2, 2), -np.inf)
    expected[0, 0] = np.nan
    np.testing.assert_array_equal(found[0, 0], expected)


@pytest.mark.slow
def test_blocks_that_are_none_of_the_image_fail_the_call_and_name_the_node() -> None:
    x = floats(1, 12, 6)
    given = [np.array([4, 3]), np.array([2, 2])]
    model = tw.compile(onnx_models.one_node("Col2Im", [x, *given]))
    assert model(x, *given).shape == (1, 3, 4, 3)
    bad = [((4, 3), (0, 2)), ((4, 3), (5, 2)), ((1, 1), (2, 2)), ((6, 3), (2, 2))]
    for image, block in (*bad, ((5, 3), (3, 3))):
        with pytest.raises(InputError, match=r"^node .*: the data gives size"):
            model(x, np.array(image), np.array(block))


def test_regions_have_a_size_per_axis() -> None:
    arrays = [floats(1, 2, 4, 4), floats(3, 5)]
    with pytest.raises(ModelError, match="'pooled_shape' has 1 sizes, expected 2"):
        tw.compile(onnx_models.one_node("MaxRoiPool", arrays, pooled_shape=[2]))
    arrays[1] = floats(3, 4)
    with pytest.raises(ModelError, match="expected rank 2 with 5 columns"):
        tw.compile(onnx_models.one_node("MaxRoiPool", arrays, pooled_shape=[2, 2]))
