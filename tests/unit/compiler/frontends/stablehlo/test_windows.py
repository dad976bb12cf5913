"""Reductions of windows, long ones in rounds, against sums of slices in numpy."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from fakes.stablehlo_text import run, type_of
from tilewright.compiler.frontends.stablehlo import load
from tilewright.compiler.graph.evaluator import evaluate

CHOOSE = np.random.default_rng(4)
LAST = "stablehlo.return %b : tensor<f32>"
NAMED = {
    "add": (np.sum, 0.0), "maximum": (np.max, -np.inf), "minimum": (np.min, np.inf),
    "multiply": (np.prod, 1.0),
}  # fmt: skip


def reduce_window(
    region: str, x: np.ndarray, start: float, result: tuple[int, ...], **window: object
) -> np.ndarray:
    attributes = ", ".join(f"{name} = {value}" for name, value in window.items())
    type_ = type_of(np.zeros(result, np.float32))
    number = {np.inf: "0x7F800000", -np.inf: "0xFF800000"}.get(start, repr(start))
    body = f"""
    %s = stablehlo.constant dense<{number}> : tensor<f32>
    %r = "stablehlo.reduce_window"(%x, %s) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      {region}
    }}) {{{attributes}}} : ({type_of(x)}, tensor<f32>) -> {type_}
    return %r : {type_}"""
    (found,) = run(body, f"%x: {type_of(x)}", x)
    return found


def applied(op: str) -> str:
    return f"%c = stablehlo.{op} %a, %b : tensor<f32>\n stablehlo.return %c : tensor<f32>"


@pytest.mark.parametrize("op", NAMED)
@pytest.mark.parametrize("size", [1, 2, 65, 100])
def test_long_windows_are_those_of_numpy(op: str, size: int) -> None:
    x = CHOOSE.uniform(0.9, 1.1, (2, 130)).astype(np.float32)
    count = 130 - size + 1
    found = reduce_window(
        applied(op), x, NAMED[op][1], (2, count), window_dimensions=f"array<i64: 1, {size}>"
    )
    seen = sliding_window_view(x.astype(np.float64), size, axis=1)
    np.testing.assert_allclose(found, NAMED[op][0](seen, axis=-1), rtol=2e-5)


@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (3, 1), (1, 2), (2, 3)])
def test_long_windows_have_strides_dilations_and_padding(
    stride: int, dilation: int
) -> None:
    x = CHOOSE.normal(size=(12, 30)).astype(np.float32)
    wide = np.pad(x, ((1, 0), (4, 2)), constant_values=-np.inf)
    span = (9 - 1) * dilation + 1
    seen = sliding_window_view(wide, (9, span), axis=(0, 1))[:, ::stride, :, ::dilation]
    expected = seen.max((-1, -2))
    found = reduce_window(
        applied("maximum"), x, -np.inf, expected.shape, window_dimensions="array<i64: 9, 9>",
        window_strides=f"array<i64: 1, {stride}>", window_dilations=f"array<i64: 1, {dilation}>",
        padding="dense<[[1, 0], [4, 2]]> : tensor<2x2xi64>",
    )  # fmt: skip
    np.testing.assert_array_equal(found, expected)


def test_elements_of_a_window_keep_their_order() -> None:
    x = CHOOSE.normal(size=100).astype(np.float32)
    found = reduce_window(LAST, x, 0.0, (31,), window_dimensions="array<i64: 70>")
    np.testing.assert_array_equal(found, x[69:])


@pytest.mark.parametrize("op", ["add", "multiply"])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_and_products(op: str, reverse: bool) -> None:
    x = CHOOSE.uniform(0.9, 1.1, (100, 2)).astype(np.float32)
    edges = "[0, 99]" if reverse else "[99, 0]"
    found = reduce_window(
        applied(op), x, NAMED[op][1], x.shape, window_dimensions="array<i64: 100, 1>",
        padding=f"dense<[{edges}, [0, 0]]> : tensor<2x2xi64>",
    )  # fmt: skip
    running = np.cumsum if op == "add" else np.cumprod
    wide = x.astype(np.float64)
    expected = running(wide[::-1], 0)[::-1] if reverse else running(wide, 0)
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_windows_between_which_nothing_fits_give_nothing() -> None:
    x = np.zeros((3, 2), np.float32)
    found = reduce_window(
        applied("add"), x, 0.0, (0, 2), window_dimensions="array<i64: 5, 1>"
    )
    assert found.shape == (0, 2)


OPEN = """
func.func private @combined(%a: tensor<f32>, %b: tensor<f32>) -> tensor<f32> {{
  {region}
}}
func.func @main(%x: tensor<2x?xf32>) -> tensor<2x?xf32> {{
  %n = stablehlo.get_dimension_size %x, dim = 1 : (tensor<2x?xf32>) -> tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %two = stablehlo.constant dense<2> : tensor<i32>
  %w = {window} : tensor<i32>
  %low = stablehlo.subtract %w, %one : tensor<i32>
  %one1 = stablehlo.reshape %one : (tensor<i32>) -> tensor<1xi32>
  %w1 = stablehlo.reshape %w : (tensor<i32>) -> tensor<1xi32>
  %low1 = stablehlo.reshape %low : (tensor<i32>) -> tensor<1xi32>
  %sizes = stablehlo.concatenate %one1, %w1, dim = 0 : (tensor<1xi32>, tensor<1xi32>) -> tensor<2xi32>
  %ones = stablehlo.constant dense<1> : tensor<2xi32>
  %zeros = stablehlo.constant dense<0> : tensor<3xi32>
  %edges4 = stablehlo.concatenate %zeros, %low1, dim = 0 : (tensor<3xi32>, tensor<1xi32>) -> tensor<4xi32>
  %edges = stablehlo.reshape %edges4 : (tensor<4xi32>) -> tensor<2x2xi32>
  %s = stablehlo.constant dense<{start}> : tensor<f32>
  %r = stablehlo.custom_call @stablehlo.dynamic_reduce_window(%x, %s, %sizes, %ones, %ones, %ones, %edges) {{called_computations = [@combined]}} : (tensor<2x?xf32>, tensor<f32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2x2xi32>) -> tensor<2x?xf32>
  return %r : tensor<2x?xf32>
}}"""
MIXED = """%c = stablehlo.multiply %a, %b : tensor<f32>
  %d = stablehlo.add %a, %b : tensor<f32>
  %e = stablehlo.add %c, %d : tensor<f32>
  return %e : tensor<f32>"""


@pytest.mark.parametrize(
    ("window", "length"),
    [
        ("stablehlo.add %n, %two", lambda n: n + 2),
        ("stablehlo.maximum %n, %n", lambda n: n),
        ("stablehlo.divide %n, %two", lambda n: n // 2),
    ],
)
def test_the_size_of_a_window_may_be_that_of_a_call(
    window: str, length: Callable[[int], int]
) -> None:
    largest = applied("maximum").replace("stablehlo.return", "return")
    for region, start, function in (
        (largest, "0xFF800000", lambda seen: seen.max(-1)),
        # a b + a + b is one less than the product of a + 1 and b + 1
        (MIXED, "0.0", lambda seen: (seen + 1).prod(-1) - 1),
    ):
        text = OPEN.format(region=region, window=window, start=start)
        graph = load(text.encode()).graph
        for count in (2, 3, 7, 64, 100):
            x = CHOOSE.uniform(-0.1, 0.1, (2, count)).astype(np.float32)
            size = length(count)
            edge = -np.inf if region is largest else 0
            wide = np.pad(x, ((0, 0), (0, size - 1)), constant_values=edge)
            expected = function(sliding_window_view(wide, size, axis=1))
            (found,) = evaluate(graph, [x])
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reverse", ["[1, 0]", "[true, false]"])
def test_the_short_form_says_in_words_or_numbers_what_is_reversed(reverse: str) -> None:
    x, w = np.arange(9, dtype=np.float32), np.float32([1, 2, 3, 4])
    body = f"""
    %a = stablehlo.reshape %x : (tensor<9xf32>) -> tensor<1x3x3x1xf32>
    %b = stablehlo.reshape %w : (tensor<4xf32>) -> tensor<2x2x1x1xf32>
    %c = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
      window = {{reverse = {reverse}}} {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
      : (tensor<1x3x3x1xf32>, tensor<2x2x1x1xf32>) -> tensor<1x2x2x1xf32>
    %r = stablehlo.reshape %c : (tensor<1x2x2x1xf32>) -> tensor<4xf32>
    return %r : tensor<4xf32>"""
    (found,) = run(body, "%x: tensor<9xf32>, %w: tensor<4xf32>", x, w)
    assert found.tolist() == [15, 25, 45, 55]
