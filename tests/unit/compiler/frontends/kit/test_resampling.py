"""Images resampled by computed sizes, scales and regions, beside the op whose tables are made of numbers."""

import itertools

import numpy as np
import onnxruntime
import pytest

import tilewright as tw
from fakes import onnx_models
from fakes.computed_operands import both
from fakes.onnx_models import run_node
from tilewright.base.errors import InputError
from tilewright.compiler.frontends.onnx.load import load
from tilewright.compiler.graph.evaluator import evaluate

IMAGE = np.random.default_rng(5).standard_normal((1, 2, 5, 7)).astype(np.float32)
SCALES = np.array([1, 1, 1.8, 0.6], np.float32)
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_crop_and_resize", "tf_half_pixel_for_nn",
)  # fmt: skip
REGION = np.array([0, 0, 0.1, 0.4, 1, 1, 1.3, 0.9], np.float32)


def region(coordinates: str) -> np.ndarray | None:
    return REGION if coordinates == "tf_crop_and_resize" else None


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_computed_scales_and_regions_are_numbers_that_come_late(coordinates: str) -> None:
    arrays = [IMAGE, region(coordinates), SCALES]
    option = {"coordinate_transformation_mode": coordinates, "extrapolation_value": 7.5}
    for mode in ("linear", "cubic"):
        both("Resize", arrays, [1, 2], mode=mode, **option)
        both("Resize", arrays, [1, 2], mode=mode, exclude_outside=1, **option)
    for rule in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        both("Resize", arrays, [1, 2], mode="nearest", nearest_mode=rule, **option)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("scales", [(0.6, 1.7), (2.0, 1.0)])
def test_half_pixels_of_tensorflow_are_what_onnxruntime_has(
    scales: tuple[float, float],
) -> None:
    """By any rule of rounding, and by taps, too; opset 13 took them away."""
    factors = np.array([1, 1, *scales], np.float32)
    none = np.zeros(0, np.float32)
    rules = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    modes = [{"mode": "nearest", "nearest_mode": rule} for rule in rules]
    for mode in (*modes, {"mode": "linear"}, {"mode": "cubic"}):
        options = {**mode, "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
        arrays = {"x0": IMAGE, "x1": none, "x2": factors}
        model = onnx_models.one_node("Resize", arrays.values(), opset=11, **options)
        session = onnxruntime.InferenceSession(model.SerializeToString())
        (expected,) = session.run(
            None,
            dict(zip((i.name for i in model.graph.input), arrays.values(), strict=True)),
        )
        (found,) = both("Resize", [IMAGE, none, factors], [1, 2], opset=11, **options)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("scales", [(0.3, 0.45), (1.7, 0.21), (2.0, 3.0)])
def test_the_taps_of_a_smaller_image_are_counted_when_it_runs(
    mode: str, scales: tuple[float, float]
) -> None:
    given = np.array([1, 1, *scales], np.float32)
    for exclude in (0, 1):
        both(
            "Resize",
            [IMAGE, None, given],
            [2],
            mode=mode,
            antialias=1,
            exclude_outside=exclude,
        )


@pytest.mark.thinned(5)
@pytest.mark.parametrize("policy", ["not_larger", "not_smaller", "stretch"])
@pytest.mark.parametrize("sizes", [(7, 8), (3, 2), (1, 1), (5, 7)])
def test_computed_sizes_keep_the_shape_of_an_image(
    policy: str, sizes: tuple[int, int]
) -> None:
    arrays = [IMAGE, None, None, np.array(sizes)]
    for mode in ("linear", "nearest"):
        both("Resize", arrays, [3], axes=[3, 2], keep_aspect_ratio_policy=policy, mode=mode)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float16, np.float64])
def test_elements_of_other_types_are_rounded_once(dtype: type) -> None:
    x = np.random.default_rng(5).integers(0, 200, (3, 6)).astype(dtype)
    # Of sums in f32 that lie beside the middle of two halves, the two may take either.
    tolerance = float(np.finfo(np.float16).eps) if dtype is np.float16 else 2e-5
    for mode, scale in itertools.product(("linear", "cubic", "nearest"), (0.7, 1.9)):
        arrays = [x, None, np.array([1, scale], np.float32)]
        both("Resize", arrays, [2], mode=mode, tolerance=tolerance)


def test_one_element_and_none() -> None:
    both("Resize", [IMAGE[..., :1], None, SCALES], [2], mode="linear")
    both("Resize", [IMAGE, None, None, np.array([1, 2, 0, 3])], [3], mode="linear")
    both("Resize", [IMAGE[:0], None, SCALES], [2], mode="cubic")


def test_upsample_takes_computed_scales_too() -> None:
    for mode in ("nearest", "linear"):
        both(
            "Upsample",
            [IMAGE, np.array([1, 1, 2.3, 3], np.float32)],
            [1],
            opset=9,
            mode=mode,
        )


@pytest.mark.slow
def test_a_dynamic_image_is_resampled_by_kernels_alone() -> None:
    model = onnx_models.parse("""graph (float[1,2,H,W] x, float[1,2,P,Q] like) => (float[1,2,P,Q] y) {
      sizes = Shape (like)
      y = Resize<mode = "linear"> (x, , , sizes)
    }""")
    compiled = tw.compile(
        model
    )  # a step on the host would be a warning, which is an error here
    like = np.zeros((1, 2, 9, 4), np.float32)
    (expected,) = run_node(
        "Resize", [IMAGE, None, None, np.array(like.shape)], constants=[3], mode="linear"
    )
    np.testing.assert_allclose(compiled(IMAGE, like), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_scales_that_are_joined_of_numbers_and_data_leave_the_other_axes_alone() -> None:
    model = onnx_models.parse("""graph (float[N,2,5,7] x, float[2] s) => (float[a,b,c,d] y) {
      one = Constant<value_floats = [1.0, 1.0]> ()
      scales = Concat<axis = 0> (one, s)
      y = Resize<mode = "linear"> (x, , scales)
    }""")
    compiled = tw.compile(model)
    (expected,) = run_node("Resize", [IMAGE, None, SCALES], constants=[2], mode="linear")
    np.testing.assert_allclose(compiled(IMAGE, SCALES[2:]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("scale", [1.3, 0.7, 1.1, 0.33])
def test_a_scale_that_is_no_short_ratio_makes_sizes_of_a_named_size(scale: float) -> None:
    joined = """graph (float[1,2,H,7] x, float[1] s) => (float[a,b,c,d] y) {
      known = Constant<value_floats = [1.0, 1.0, SCALE]> ()
      scales = Concat<axis = 0> (known, s)
      y = Resize<mode = "linear"> (x, , scales)
    }"""
    given = """graph (float[1,2,H,7] x) => (float[a,b,c,d] y) {
      scales = Constant<value_floats = [1.0, 1.0, SCALE, 1.0]> ()
      y = Resize<mode = "linear"> (x, , scales)
    }"""
    one = np.ones(1, np.float32)
    for text, more in ((given, []), (joined, [one])):
        graph = load(onnx_models.parse(text.replace("SCALE", str(scale))))
        for height in (5, 9, 10):
            x = (
                np.random.default_rng(height)
                .standard_normal((1, 2, height, 7))
                .astype(np.float32)
            )
            scales = np.array([1, 1, scale, 1], np.float32)
            known = onnx_models.one_node(
                "Resize", [x, None, scales], constants=[2], mode="linear"
            )
            (expected,) = evaluate(load(known), [x])
            (found,) = evaluate(graph, [x, *more])
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_a_computed_scale_that_makes_no_size_fails_the_call() -> None:
    graph = load(onnx_models.one_node("Resize", [IMAGE, None, SCALES]))
    for scale in (np.nan, np.inf, -1.0):
        with pytest.raises(
            InputError, match=r"node .*, a scale of which makes no size: the"
        ):
            evaluate(graph, [IMAGE, np.array([1, 1, scale, 1], np.float32)])


@pytest.mark.parametrize("scale", [0.6, 0.7, 2.3])
def test_the_nearest_pixel_is_found_in_single_precision(scale: float) -> None:
    # 3 / 0.6 is 5 there, and 4.9999998 in wider numbers of the same scale.
    image = np.arange(41, dtype=np.float32).reshape(1, 1, 1, 41)
    count = int(np.float32(41) * np.float32(scale))
    places = np.floor(np.arange(count, dtype=np.float32) / np.float32(scale))
    wanted = np.minimum(places, 40)[None, None, None]
    scales = np.array([1, 1, 1, scale], np.float32)
    option = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    (found,) = both("Resize", [image, None, scales], [2], mode="nearest", **option)
    np.testing.assert_array_equal(found, wanted)


def test_a_symmetric_place_on_a_boundary_is_not_rounded_below_it() -> None:
    """Place 3 of 7 lies at 2 of 5 exactly: (1 - 7 / 7.5) * 2.5 + 3.5 / 1.5 - 0.5."""
    image = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5)
    scales = np.array([1, 1, 1, 1.5], np.float32)
    option = {"coordinate_transformation_mode": "half_pixel_symmetric"}
    (found,) = both(
        "Resize", [image, None, scales], [2], mode="nearest", nearest_mode="floor", **option
    )
    np.testing.assert_array_equal(found.reshape(-1), [0, 0, 1, 2, 2, 3, 4])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_the_taps_of_a_known_scale_are_written_out_where_sizes_are_open(mode: str) -> None:
    model = onnx_models.parse(f"""graph (float[1,2,H,W] x) => (float[1,2,P,Q] y) {{
      scales = Constant<value_floats = [1.0, 1.0, 0.5, 0.4]> ()
      y = Resize<mode = "{mode}", antialias = 1> (x, , scales)
    }}""")
    graph = load(model)
    assert {n.op for n in graph.nodes} >= {"gather"}
    kinds = [n for n in graph.nodes if n.op == "reduce_sum" and n.result.type.rank > 2]
    assert not kinds  # only weights are added up by a reduction
    (expected,) = run_node(
        "Resize",
        [IMAGE, None, np.array([1, 1, 0.5, 0.4], np.float32)],
        constants=[2],
        mode=mode,
        antialias=1,
    )
    (y,) = evaluate(graph, [IMAGE])
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)


def test_a_picture_of_known_sizes_with_many_taps_is_resampled_axis_by_axis() -> None:
    model = onnx_models.parse("""graph (float16[1,1,16,24] x) => (float16[1,1,4,6] y) {
      scales = Constant<value_floats = [1.0, 1.0, 0.25, 0.25]> ()
      y = Resize<mode = "linear", antialias = 1> (x, , scales)
    }""")
    graph = load(model)
    assert [n.op for n in graph.nodes if n.op != "constant"] == [
        "cast",
        "resize",
        "resize",
        "cast",
    ]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("option", ["", ", antialias = 1"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_images_of_an_open_batch_are_resampled_as_those_of_a_known_one(
    mode: str, option: str
) -> None:
    def model(batch: int | str):
        return onnx_models.parse(f"""graph (float[{batch},2,16,24] x) => (float[{batch},2,P,Q] y) {{
          scales = Constant<value_floats = [1.0, 1.0, 0.25, 0.5]> ()
          y = Resize<mode = "{mode}"{option}> (x, , scales)
        }}""")

    for batch in ("N", 3):
        kinds = [n.op for n in load(model(batch)).nodes if n.op != "constant"]
        assert set(kinds) <= {"resize", "cast"}
    x = np.random.default_rng(0).standard_normal((3, 2, 16, 24)).astype(np.float32)
    known, open_ = (tw.compile(model(batch)) for batch in (3, "N"))
    np.testing.assert_array_equal(open_(x), known(x))
    np.testing.assert_array_equal(open_(x[1:2]), known(x)[1:2])


@pytest.mark.parametrize("rows", [1, 2])
def test_the_only_element_of_an_axis_of_pytorch_is_the_first(rows: int) -> None:
    """Its formula says 0 for a length of 1; smooth curves show what stands before it."""
    image = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3) ** 2
    sizes = np.array([1, 1, 3, 1])
    option = {"coordinate_transformation_mode": "pytorch_half_pixel", "mode": "cubic"}
    for constants in ([3], []):
        (found,) = run_node(
            "Resize", [image[:, :, :rows], None, None, sizes * [1, 1, 0, 1] + [0, 0, rows, 0]],
            constants=constants, **option,
        )  # fmt: skip
        np.testing.assert_array_equal(found, image[:, :, :rows, :1])
