import numpy as np
import pytest

from fakes.graphs import EVERYTHING_HELD, ops, parse, run
from tilewright.compiler.graph.evaluator import evaluate
from tilewright.compiler.ops import catalogue
from tilewright.compiler.passes import run_passes
from tilewright.compiler.readers.graph_text import parse_graph
from tilewright.compiler.transforms import FoldConstants, FoldScales, GrowLate, Simplify

PASSES = [Simplify(), FoldScales(), GrowLate(), FoldConstants()]
LINEAR = 'mode = "linear"'
RULES = (
    LINEAR,
    'mode = "cubic", coordinate_mode = "align_corners"',
    'mode = "nearest", nearest_mode = "floor", coordinate_mode = "asymmetric"',
)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def literal(array: np.ndarray) -> str:
    shape = ", ".join(map(str, array.shape))
    return f"f32[{shape}] [{', '.join(repr(float(x)) for x in array.ravel())}]"


def one_image(
    rule: str = LINEAR,
    filters: int = 5,
    conv: str = "",
    window: int = 1,
    channels: int = 40,
) -> str:
    """An image that grows from 5 x 7 to 13 x 20, and a convolution of it."""
    weights = literal(numbers(filters, channels, window, window))
    size = f"{14 - window}, {21 - window}"
    return f"""graph @g(%x: f32[2, {channels}, 5, 7]) {{
      %r: f32[2, {channels}, 13, 20] = resize(%x) {{sizes = [2, {channels}, 13, 20], {rule}}}
      %w: f32[{filters}, {channels}, {window}, {window}] = constant {{value = {weights}}}
      %b: f32[{filters}] = constant {{value = {literal(numbers(filters, seed=1))}}}
      %y: f32[2, {filters}, {size}] = conv(%r, %w, %b) {{{conv}}}
      return %y
    }}"""


def several_images(axis: int, product: str, filters: int = 9) -> str:
    """Channels of an image, of one that grows to its size and of one more, side by side and mixed."""

    def shape(channels: int, high: int, wide: int) -> str:
        sizes = [1, high, wide]
        sizes.insert(axis, channels)
        return ", ".join(map(str, sizes))

    weights = numbers(80, filters)
    weights = weights.T.reshape(filters, 80, 1, 1) if product == "conv" else weights
    form = ", ".join(map(str, weights.shape))
    return f"""graph @g(%x: f32[{shape(16, 12, 8)}], %y: f32[{shape(32, 3, 4)}], %z: f32[{shape(32, 6, 8)}]) {{
      %u: f32[{shape(32, 12, 8)}] = resize(%y) {{sizes = [{shape(32, 12, 8)}], {LINEAR}}}
      %v: f32[{shape(32, 12, 8)}] = resize(%z) {{sizes = [{shape(32, 12, 8)}], {LINEAR}}}
      %c: f32[{shape(80, 12, 8)}] = concat(%u, %x, %v) {{axis = {axis}}}
      %w: f32[{form}] = constant {{value = {literal(weights)}}}
      %m: f32[{shape(filters, 12, 8)}] = {product}(%c, %w)
      %s: f32[{shape(filters, 12, 8)}] = relu(%m)
      return %s
    }}"""


def assert_same_numbers(text: str, *shapes: tuple[int, ...]) -> None:
    arrays = [numbers(*shape, seed=n) for n, shape in enumerate(shapes)]
    (wanted,) = evaluate(parse_graph(text, catalogue.schema), arrays)
    (got,) = evaluate(run(PASSES, text), arrays)
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("rule", RULES)
def test_channels_are_mixed_before_the_image_grows(rule: str) -> None:
    text = one_image(rule)
    shown = [op for op in ops(run(PASSES, text)) if op not in {"constant", "reshape"}]
    assert shown == ["conv", "resize", "add"]
    assert_same_numbers(text, (2, 40, 5, 7))


@pytest.mark.parametrize(("axis", "product"), [(1, "conv"), (3, "matmul")])
def test_images_side_by_side_are_mixed_each_at_its_own_size(
    axis: int, product: str
) -> None:
    text = several_images(axis, product)
    graph = run(PASSES, text)
    assert not {"concat", "slice"} & {*ops(graph)}
    products = [n for n in graph.nodes if n.op == product]
    places = [np.prod(n.result.type.shape) // 9 for n in products]
    assert sorted(places) == [12, 48, 96]
    # The product of the image that does not grow comes last: it adds the others to its sums.
    *_, last, activation = graph.nodes
    assert (last.op, activation.op) == ("add", "relu")
    assert last.operands[1].node in products
    shapes = [[1, 12, 8], [1, 3, 4], [1, 6, 8]]
    for shape, channels in zip(shapes, (16, 32, 32), strict=True):
        shape.insert(axis, channels)
    assert_same_numbers(text, *map(tuple, shapes))


@pytest.mark.thinned(3)
@pytest.mark.parametrize(
    "text",
    [
        one_image(filters=400, channels=8),  # more to grow than there was
        one_image(window=3),
        one_image(conv="pads = [1, 1, 1, 1]").replace("13, 20] = conv", "15, 22] = conv"),
        one_image('mode = "linear", coordinate_mode = "tf_crop_and_resize", roi = f64[8] splat 0.5'),
        one_image().replace("return %y", "return %y, %r"),
        one_image().replace("5, 7]", "26, 40]"),  # it shrinks
    ],
)  # fmt: skip
def test_what_is_no_less_work_or_not_the_same_stays(text: str) -> None:
    assert ops(run([FoldScales(), GrowLate()], text)) == ops(run([FoldScales()], text))


def test_open_sizes_of_images_stay_and_open_numbers_of_images_do_not() -> None:
    batch = one_image().replace("@g(", "@g<N: 1..>(").replace("[2, ", "[N, ")
    assert ops(run([FoldScales(), GrowLate()], batch)).index("conv") < ops(
        run([FoldScales(), GrowLate()], batch)
    ).index("resize")


def test_neighbours_that_do_not_grow_are_multiplied_together() -> None:
    weights = literal(numbers(6, 96, 1, 1))
    text = f"""graph @g(%x: f32[1, 32, 8, 8], %y: f32[1, 32, 8, 8], %z: f32[1, 32, 1, 1]) {{
      %g: f32[1, 32, 8, 8] = resize(%z) {{sizes = [1, 32, 8, 8], {LINEAR}}}
      %c: f32[1, 96, 8, 8] = concat(%x, %y, %g) {{axis = 1}}
      %w: f32[6, 96, 1, 1] = constant {{value = {weights}}}
      %m: f32[1, 6, 8, 8] = conv(%c, %w)
      return %m
    }}"""
    shown = [op for op in ops(run(PASSES, text)) if op != "constant"]
    assert sorted(shown) == ["add", "concat", "conv", "conv", "resize"]
    assert_same_numbers(text, (1, 32, 8, 8), (1, 32, 8, 8), (1, 32, 1, 1))


def test_images_whose_numbers_may_differ_stay_side_by_side() -> None:
    text = several_images(1, "conv").replace("@g(", "@g<N: 1..>(")
    text = text.replace("%x: f32[1, ", "%x: f32[N, ")
    # Only a call with N = 1 is one, so nothing is evaluated here.
    graph = parse(text)
    run_passes(graph, [FoldScales(), GrowLate()], held=EVERYTHING_HELD)
    assert "concat" in ops(graph)
