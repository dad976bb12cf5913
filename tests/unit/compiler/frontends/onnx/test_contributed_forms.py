"""onnxruntime's own forms of operators of ONNX, beside its CPU kernels or numpy."""

import numpy as np
import pytest

import tilewright as tw
from fakes import onnx_models
from fakes.contributed import agrees, ours
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx import load
from tilewright.compiler.graph.evaluator import evaluate

RNG = np.random.default_rng(29)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def test_a_range_takes_vectors_and_a_step_of_one() -> None:
    agrees("Range", [np.array([2], np.int64), np.array([9], np.int64)], constants=[0, 1])
    start, limit, step = (np.array(x, np.float32) for x in (5, -1, -1.5))
    agrees("Range", [start, limit, step], constants=[0, 1, 2])
    agrees("Range", [np.array(1, np.int32), np.array(6, np.int32), np.array(2, np.int32)])


def test_an_axis_is_inserted_and_triangles_are_cut() -> None:
    agrees("ExpandDims", [floats(3, 2), np.array(1, np.int32)], constants=[1])
    agrees("Trilu", [floats(2, 4, 5), np.array(1)], upper=0)
    agrees("GatherND", [floats(2, 3, 4), np.array([[0, 2], [1, 0]])])


def test_borders_are_operands() -> None:
    amounts = np.array([0, 1, 2, 0])
    agrees("Pad", [floats(3, 4), amounts, np.array([7], np.float32)], constants=[1])
    agrees("Pad", [floats(3, 4), amounts[None]], mode="reflect", constants=[1])


@pytest.mark.parametrize(("dim", "size", "step"), [(1, 3, 2), (-1, 4, 1), (0, 1, 1)])
def test_windows_along_an_axis(dim: int, size: int, step: int) -> None:
    agrees("UnfoldTensor", [floats(2, 7, 5)], dim=dim, size=size, step=step)


def test_distinct_elements_come_as_they_first_appear() -> None:
    agrees("Unique", [np.array([3, 1, 3, 2, 1, 9], np.float32)], outputs=3)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_images_are_sampled_where_a_grid_says(mode: str) -> None:
    grid = RNG.uniform(-1.3, 1.3, (2, 3, 4, 2)).astype(np.float32)
    agrees("GridSample", [floats(2, 3, 5, 6), grid], mode=mode, padding_mode="border")


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_tokens_that_would_repeat_a_run_get_the_lowest_score(size: int) -> None:
    ids = RNG.integers(0, 3, (4, 8))
    agrees("NGramRepeatBlock", [ids, floats(4, 5)], ngram_size=size)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_runs_are_found_in_texts_of_any_length(size: int) -> None:
    body = f"""graph (int64[B, T] ids, float[B, V] scores) => (float[B, V] y) {{
      y = com.microsoft.NGramRepeatBlock<ngram_size = {size}> (ids, scores)
    }}"""
    graph = load(onnx_models.parse(body))
    for length in (0, 1, 2, 3, 9):
        ids, scores = RNG.integers(0, 3, (4, length)), floats(4, 5)
        scores[:, 1] = np.nan
        (found,) = evaluate(graph, [ids, scores])
        (expected,) = agrees("NGramRepeatBlock", [ids, scores], ngram_size=size)
        np.testing.assert_array_equal(found, expected)


def test_texts_shorter_than_a_run_repeat_none() -> None:
    scores = floats(4, 5)
    for size in (7, 1_000_000):
        (found,) = agrees(
            "NGramRepeatBlock", [np.zeros((4, 6), np.int64), scores], ngram_size=size
        )
        np.testing.assert_array_equal(found, scores)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 3])
def test_runs_are_found_by_compiled_code_in_texts_of_no_token_and_more(size: int) -> None:
    body = f"""graph (int64[B, T] ids, float[B, V] scores) => (float[B, V] y) {{
      y = com.microsoft.NGramRepeatBlock<ngram_size = {size}> (ids, scores)
    }}"""
    model = tw.compile(onnx_models.parse(body))
    for length in (0, 1, 3, 8):
        ids, scores = RNG.integers(0, 3, (4, length)), floats(4, 5)
        (expected,) = agrees("NGramRepeatBlock", [ids, scores], ngram_size=size)
        np.testing.assert_array_equal(model(ids, scores), expected)


def test_runs_of_very_many_tokens_are_refused() -> None:
    body = """graph (int64[B, T] ids, float[B, V] scores) => (float[B, V] y) {
      y = com.microsoft.NGramRepeatBlock<ngram_size = 1000000> (ids, scores)
    }"""
    with pytest.raises(ModelError, match="runs of 1000000 tokens are not supported"):
        load(onnx_models.parse(body))


def test_products_of_complex_numbers() -> None:
    a, b = floats(2, 3, 2), floats(3, 2)
    left, right = (x[..., 0] + 1j * x[..., 1] for x in (a, b))
    for op, other in (("ComplexMul", right), ("ComplexMulConj", right.conj())):
        expected = left * other
        (found,) = ours(op, [a, b])
        np.testing.assert_allclose(found[..., 0], expected.real, atol=1e-5)
        np.testing.assert_allclose(found[..., 1], expected.imag, atol=1e-5)


def test_real_transforms_and_back() -> None:
    x = floats(2, 3, 10)
    options = {"signal_ndim": 1, "onesided": 1, "normalized": 0}
    (found,) = ours("Rfft", [x], **options)
    expected = np.fft.rfft(x)
    np.testing.assert_allclose(found[..., 0], expected.real, atol=1e-5)
    np.testing.assert_allclose(found[..., 1], expected.imag, atol=1e-5)
    np.testing.assert_allclose(ours("Irfft", [found], **options)[0], x, atol=1e-5)
    with pytest.raises(ModelError, match="'normalized' is not 0"):
        ours("Rfft", [x], **{**options, "normalized": 1})


def test_products_of_short_integers() -> None:
    a, b = (RNG.integers(-99, 99, s).astype(np.int16) for s in ((2, 3, 5), (5, 4)))
    agrees("MatMulInteger16", [a, b])


# --- images with channels last


def test_images_with_channels_last_are_convolved_and_pooled() -> None:
    x, w, bias = floats(2, 7, 6, 4), floats(5, 2, 3, 3), floats(5)
    options = {"pads": [1, 0, 1, 2], "strides": [2, 1], "group": 2}
    w = floats(6, 2, 3, 3)
    bias = floats(6)
    plain = np.moveaxis(x, 3, 1).copy()
    (expected,) = agrees("FusedConv", [plain, w, bias], **options)
    (found,) = ours("NhwcConv", [x, np.moveaxis(w, 1, 3).copy(), bias], **options)
    np.testing.assert_allclose(np.moveaxis(found, 3, 1), expected, atol=1e-5)
    extra = floats(*found.shape)
    (fused,) = ours("NhwcFusedConv", [x, w, bias, extra], activation="Relu", **options)
    np.testing.assert_allclose(fused, np.maximum(found + extra, 0), atol=1e-5)
    whole = RNG.integers(-99, 99, (2, 7, 6, 4)).astype(np.int8)
    agrees("NhwcMaxPool", [whole], kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])


@pytest.mark.parametrize(
    ("name", "numbers"), [("LeakyRelu", [0.3]), ("HardSigmoid", [0.3, 0.4]), ("Clip", [-0.2, 0.5])]
)  # fmt: skip
def test_convolutions_are_activated(name: str, numbers: list[float]) -> None:
    arrays = [floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3)]
    agrees("FusedConv", arrays, activation=name, activation_params=numbers)


def test_padding_of_a_transposed_convolution_is_an_operand() -> None:
    arrays = [floats(1, 3, 5, 4), floats(3, 2, 3, 3), np.array([1, 0, 1, 2])]
    agrees("ConvTransposeWithDynamicPads", arrays, constants=[2], strides=[2, 2])


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_regions_of_images_are_resized_to_one_size(mode: str) -> None:
    x = floats(2, 3, 7, 6)
    regions = np.array(
        [[0, 0, 1, 1], [0.2, 0.1, 0.7, 0.9], [0.8, 0.6, 0.1, 0.3], [-0.3, 0.5, 1.4, 0.5]], np.float32
    )  # fmt: skip
    images = np.array([0, 1, 1, 0], np.int32)
    for size in ((4, 5), (1, 3), (1, 1)):
        arrays = [x, regions, images, np.array(size, np.int32)]
        agrees("CropAndResize", arrays, mode=mode, extrapolation_value=7.5)


def test_the_nearest_pixel_of_a_place_just_below_a_half_is_the_one_before() -> None:
    x = floats(1, 2, 2, 2)
    below = [[np.nextafter(np.float32(0.5), np.float32(0))] * 4, [0.5] * 4]
    arrays = [x, np.array(below, np.float32), np.zeros(2, np.int32), np.ones(2, np.int32)]
    agrees("CropAndResize", arrays, mode="nearest")


@pytest.mark.parametrize("shape", [(1, 1), (3, 3), (2, 3, 5, 5), (0, 2, 2)])
def test_matrices_are_inverted(shape: tuple[int, ...]) -> None:
    x = floats(*shape) + 3 * np.eye(shape[-1], dtype=np.float32)
    (found,) = ours("Inverse", [x])
    np.testing.assert_allclose(found, np.linalg.inv(x), rtol=1e-4, atol=1e-4)
    if x.size:
        agrees("Inverse", [x], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "dtype", [np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64]
)
def test_numbers_are_hashed(dtype: type) -> None:
    x = np.array([[0, 1, 2], [77, 250, 3]], dtype)
    if np.issubdtype(dtype, np.signedinteger):
        x[0, 0] = -5
    for seed, positive in ((0, 1), (42, 0)):
        agrees("MurmurHash3", [x], seed=seed, positive=positive, atol=0, rtol=0)
    with pytest.raises(ModelError, match="32 or 64 bits"):
        ours("MurmurHash3", [x.astype(np.int8)])


@pytest.mark.parametrize("kind", [0, 1])
def test_embeddings_say_what_their_mask_is_for_whoever_infers_shapes(kind: int) -> None:
    ids = RNG.integers(0, 9, (2, 5)).astype(np.int32)
    kept = np.array([[1, 1, 1, 0, 0], [1] * 5], np.int32)
    tables = [floats(9, 8), floats(7, 8), None, floats(8), floats(8)]
    arrays = [ids, None, *tables, kept]
    agrees("EmbedLayerNormalization", arrays, outputs=2, mask_index_type=kind)
