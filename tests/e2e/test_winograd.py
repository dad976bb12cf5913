"""Convolutions in Winograd's domain as machine code: how many digits they lose, beside the direct sum."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from fakes.onnx_models import one_node
from tilewright.transform import PassContext

CHANNELS = 128
SIZES = [(1, 3, 3), (2, 5, 4), (1, 8, 31), (3, 17, 57), (0, 8, 9)]


def convolution(
    shape: tuple[int, int, int, int],
    filters: int,
    groups: int,
    pads: tuple[int, int, int, int] = (1, 1, 1, 1),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Images [N, C, H, W], filters of 3 x 3, and the convolution with a border of zeros in f64."""
    random = np.random.default_rng(shape[2])
    x = random.standard_normal(shape).astype(np.float32)
    w = random.standard_normal((filters, shape[1] // groups, 3, 3)).astype(np.float32)
    return x, w, direct(x, w, groups, pads)


def direct(
    x: np.ndarray, w: np.ndarray, groups: int, pads: tuple[int, int, int, int]
) -> np.ndarray:
    """The sum of products in f64."""
    images, _, height, width = x.shape
    filters, own, *_ = w.shape
    top, left, bottom, right = pads
    wide = np.pad(x.astype(np.float64), [(0, 0), (0, 0), (top, bottom), (left, right)])
    rows, columns = height + top + bottom - 2, width + left + right - 2
    expected = np.zeros((images, groups, filters // groups, rows, columns))
    taps = w.astype(np.float64).reshape(groups, -1, own, 3, 3)
    for i in range(3):
        for j in range(3):
            cut = wide[:, :, i : i + rows, j : j + columns]
            cut = cut.reshape(images, groups, own, rows, columns)
            # One product of matrices for each image and group.
            expected += np.einsum("ngchw,gfc->ngfhw", cut, taps[..., i, j], optimize=True)
    return expected.reshape(images, filters, rows, columns)


def names_of(compiled: tilewright.Model) -> set[str]:
    """The names of its kernels."""
    return {kernel.name for kernel in compiled.kernels}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "groups"),
    [(29, 1), (29, 2), pytest.param(56, 1, marks=pytest.mark.slow)],
)
def test_few_digits_are_lost_beside_the_direct_sum(size: int, groups: int) -> None:
    """As docs/numerics.md says; errors relative to the largest result.

    As many channels are summed to a result, in groups or not.
    """
    shape = (1, CHANNELS * groups, size, size)
    x, w, expected = convolution(shape, 67 * groups, groups)
    model = one_node("Conv", [x, w], constants=[1], pads=[1, 1, 1, 1], group=groups)
    found: list[float] = []
    for disabled in (["winograd-convolution"], []):
        with PassContext(disabled_pass=disabled):
            compiled = tilewright.compile(model, threads=1, target="x86_64-v3")
        names = names_of(compiled)
        assert any("winograd" in name for name in names) is not bool(disabled), names
        found.append(float(np.abs(compiled(x) - expected).max() / np.abs(expected).max()))
    direct, winograd = found
    assert direct < 2e-6
    assert winograd < 4 * direct


@pytest.mark.sampled(7)
@pytest.mark.parametrize("target", ["x86_64-v2", "x86_64-v3", "host"])
@pytest.mark.parametrize(
    ("shape", "filters", "groups", "pads"),
    [
        ((1, 64, 203, 251), 64, 4, (1, 1, 1, 1)),
        ((2, 48, 29, 31), 48, 2, (0, 2, 1, 0)),
        ((3, 96, 14, 17), 144, 2, (1, 1, 1, 1)),
        ((1, 128, 28, 28), 42, 2, (2, 0, 2, 1)),
        ((5, 192, 7, 7), 192, 3, (1, 1, 1, 1)),
    ],
)
def test_groups_of_any_width_are_convolved_at_odd_sizes(
    shape: tuple[int, int, int, int],
    filters: int,
    groups: int,
    pads: tuple[int, int, int, int],
    target: str,
) -> None:
    x, w, expected = convolution(shape, filters, groups, pads)
    bias = np.linspace(-3, 3, filters, dtype=np.float32)
    model = one_node("Conv", [x, w, bias], constants=[1, 2], pads=list(pads), group=groups)
    compiled = tilewright.compile(model, threads=1, target=target)
    # Whether it pays is this machine's to say.
    assert target == "host" or any("winograd" in name for name in names_of(compiled))
    expected = expected + bias.reshape(1, -1, 1, 1)
    assert np.abs(compiled(x) - expected).max() < 1e-5 * np.abs(expected).max()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 0, 0, 0), (2, 0, 1, 3)])
@pytest.mark.parametrize("target", ["x86_64-v3", "host"])
def test_one_compilation_convolves_images_of_any_size(
    target: str, pads: tuple[int, int, int, int]
) -> None:
    x, w, _ = convolution((1, 64, 9, 9), 64, 1)
    model = one_node("Conv", [x, w], constants=[1], pads=list(pads))
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for axis, symbol in ((0, "n"), (2, "h"), (3, "w")):
        dims[axis].dim_param = symbol
    compiled = tilewright.compile(model, threads=1, target=target)
    assert any("winograd" in name for name in names_of(compiled))
    for images, height, width in SIZES:
        shape = (images, 64, height, width)
        image = np.random.default_rng(height).standard_normal(shape).astype(np.float32)
        expected = direct(image, w, 1, pads)
        result = compiled(image)
        assert result.shape == expected.shape
        allowed = 1e-5 * np.abs(expected).max(initial=1)
        np.testing.assert_allclose(result, expected, rtol=0, atol=allowed)


@pytest.mark.slow
@pytest.mark.parametrize("side", [7, 14, 30])
def test_an_image_of_a_batch_is_the_image_alone(side: int) -> None:
    """Bit for bit, whether the number of images was known or not (docs/numerics.md)."""
    x, w, _ = convolution((5, 128, side, side), 64, 1)

    def compiled(images: int | str) -> tilewright.Model:
        model = one_node("Conv", [x, w], constants=[1], pads=[1, 1, 1, 1])
        dim = model.graph.input[0].type.tensor_type.shape.dim[0]
        if isinstance(images, str):
            dim.dim_param = images
        else:
            dim.dim_value = images
        model.graph.output[0].type.tensor_type.ClearField("shape")
        return tilewright.compile(model, threads=1)

    one, five, any_number = compiled(1), compiled(5), compiled("n")
    alone = np.concatenate([one(image[None]) for image in x])
    np.testing.assert_array_equal(five(x), alone)
    np.testing.assert_array_equal(any_number(x), alone)
    np.testing.assert_array_equal(any_number(x[3:4]), alone[3:4])


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_stays_in_its_group_and_tile(bad: float) -> None:
    """It reaches all that the direct sum has it reach, the rest of those tiles, and no other group."""
    shape = (1, 128, 28, 28)
    x, w, _ = convolution(shape, 128, 2)
    model = one_node("Conv", [x, w], constants=[1], pads=[1, 1, 1, 1], group=2)
    compiled = tilewright.compile(model, threads=1, target="x86_64-v3")
    assert any("winograd" in name for name in names_of(compiled))
    clean = compiled(x)
    x[0, 70, 13, 13] = bad
    found = compiled(x)
    assert not np.isfinite(found[0, 64:, 12:15, 12:15]).any()
    near = np.zeros(shape, bool)
    near[0, 64:, 12:16, 12:16] = True
    np.testing.assert_array_equal(found[~near], clean[~near])
