"""Quantized types, against the formulas of the specification in numpy."""

import numpy as np
import pytest

from fakes.stablehlo_text import run
from tilewright.base.errors import ModelError

A, B = "!quant.uniform<i8:f32, 0.1:-30>", "!quant.uniform<i8:f32, 0.5:-20>"


def quantized(x: np.ndarray, scale: float, zero: int) -> np.ndarray:
    moved = (x / np.float32(scale)).astype(np.float32) + np.float32(zero)
    return np.round(np.clip(moved, -128, 127)).astype(np.int8)


def dequantized(q: np.ndarray, scale: float, zero: int) -> np.ndarray:
    return (q.astype(np.float32) - np.float32(zero)) * np.float32(scale)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("add", np.add), ("subtract", np.subtract), ("multiply", np.multiply),
        ("maximum", np.maximum), ("divide", np.divide),
    ],
)  # fmt: skip
def test_arithmetic_is_that_of_the_numbers_that_are_meant(
    op: str, function: np.ufunc
) -> None:
    x, y = np.random.default_rng(1).integers(-128, 127, (2, 50)).astype(np.int8)
    body = f"""
    %a = stablehlo.bitcast_convert %x : (tensor<50xi8>) -> tensor<50x{A}>
    %b = stablehlo.bitcast_convert %y : (tensor<50xi8>) -> tensor<50x{B}>
    %s = "stablehlo.{op}"(%a, %b) : (tensor<50x{A}>, tensor<50x{B}>) -> tensor<50x{B}>
    %r = stablehlo.bitcast_convert %s : (tensor<50x{B}>) -> tensor<50xi8>
    return %r : tensor<50xi8>"""
    (found,) = run(body, "%x: tensor<50xi8>, %y: tensor<50xi8>", x, y)
    with np.errstate(all="ignore"):
        real = function(dequantized(x, 0.1, -30), dequantized(y, 0.5, -20))
        expected = quantized(real.astype(np.float32), 0.5, -20)
    defined = np.isfinite(real)
    np.testing.assert_array_equal(found[defined], expected[defined])


def test_a_product_of_weights_by_channel_is_that_of_what_they_mean() -> None:
    choose = np.random.default_rng(2)
    x = choose.normal(size=(3, 4)).astype(np.float32)
    w = choose.integers(-128, 127, (4, 2)).astype(np.int8)
    type_ = "tensor<4x2x!quant.uniform<i8:f32:1, {0.1,0.5}>>"
    body = f"""
    %q = stablehlo.bitcast_convert %w : (tensor<4x2xi8>) -> {type_}
    %r = stablehlo.dot_general %x, %q, contracting_dims = [1] x [0] : (tensor<3x4xf32>, {type_}) -> tensor<3x2xf32>
    return %r : tensor<3x2xf32>"""
    (found,) = run(body, "%x: tensor<3x4xf32>, %w: tensor<4x2xi8>", x, w)
    meant = w.astype(np.float32) * np.float32([0.1, 0.5])
    np.testing.assert_allclose(found, x @ meant, rtol=1e-5, atol=1e-4)


def test_a_reduction_adds_what_is_meant() -> None:
    x = np.int8([-30, -20, -10, 0])
    body = f"""
    %a = stablehlo.bitcast_convert %x : (tensor<4xi8>) -> tensor<4x{A}>
    %z = stablehlo.constant dense<0.0> : tensor<f32>
    %q = stablehlo.uniform_quantize %z : (tensor<f32>) -> tensor<{A}>
    %s = stablehlo.reduce(%a init: %q) applies stablehlo.add across dimensions = [0] : (tensor<4x{A}>, tensor<{A}>) -> tensor<{A}>
    %r = stablehlo.uniform_dequantize %s : (tensor<{A}>) -> tensor<f32>
    return %r : tensor<f32>"""
    (found,) = run(body, "%x: tensor<4xi8>", x)
    assert found == pytest.approx(6.0)


def test_limits_of_the_storage_hold() -> None:
    type_ = "tensor<2x!quant.uniform<i8<-100:100>:f32, 1.0>>"
    body = f"""
    %q = stablehlo.uniform_quantize %x : (tensor<2xf32>) -> {type_}
    %r = stablehlo.bitcast_convert %q : ({type_}) -> tensor<2xi8>
    return %r : tensor<2xi8>"""
    (found,) = run(body, "%x: tensor<2xf32>", np.float32([500, -500]))
    assert found.tolist() == [100, -100]


def test_storage_without_a_sign_is_called_by_one_letter() -> None:
    type_ = "!quant.uniform<u8<0:200>:f32, 0.5:128>"
    body = f"""
    %q = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> tensor<4x{type_}>
    %r = stablehlo.bitcast_convert %q : (tensor<4x{type_}>) -> tensor<4xui8>
    return %r : tensor<4xui8>"""
    (found,) = run(body, "%x: tensor<4xf32>", np.float32([-99, 0, 1.2, 99]))
    np.testing.assert_array_equal(found, np.uint8([0, 128, 130, 200]))


def test_a_constant_of_quantized_elements_lists_its_integers() -> None:
    body = f"""
    %q = stablehlo.constant() <{{value = dense<[1, -2, 3]> : tensor<3xi8>}}> : () -> tensor<3x{A}>
    %r = stablehlo.uniform_dequantize %q : (tensor<3x{A}>) -> tensor<3xf32>
    return %r : tensor<3xf32>"""
    (found,) = run(body, "")
    np.testing.assert_allclose(found, dequantized(np.int8([1, -2, 3]), 0.1, -30))


def test_arguments_and_results_are_arrays_of_the_storage() -> None:
    stored = np.int8([-128, -30, 127])
    (found,) = run(f"return %x : tensor<3x{A}>", f"%x: tensor<3x{A}>", stored)
    np.testing.assert_array_equal(found, stored, strict=True)


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("<i8:f32, 0.0:3>", r"a scale .* is 0\.0, expected a positive f32"),
        ("<i8:f32, -0.5:3>", r"a scale .* is -0\.5"),
        ("<i8:f32, 0.5:300>", "a zero point .* is 300, expected -128 to 127"),
        ("<i8<-300:300>:f32, 0.5>", "-300 to 300 are no limits of i8"),
        ("<i8<3:-3>:f32, 0.5>", "3 to -3 are no limits of i8"),
        ("<u8<-1:3>:f32, 0.5>", "-1 to 3 are no limits of ui8"),
        ("<i8:f32:1, {0.5}>", "axis 1 of .* does not fit 1 dimensions"),
        ("<i8:f32, {0.5, 0.5}>", "has 2 scales and no axis"),
        ("<f32:f32, 0.5>", "1:45: got storage of type f32, expected integers"),
    ],
)
def test_types_that_make_no_sense_are_refused(type_: str, message: str) -> None:
    body = f"""%r = stablehlo.uniform_dequantize %x : (tensor<2x!quant.uniform{type_}>) -> tensor<2xf32>
    return %r : tensor<2xf32>"""
    with pytest.raises(ModelError, match=message):
        run(body, f"%x: tensor<2x!quant.uniform{type_}>", np.int8([1, 2]))


BLOCKS = "!quant.uniform<i8:f32:{0:1, 2:2}, {{{0.5:1, 1.0}}, {{2.0:-1, 0.25:3}}}>"


def test_blocks_have_scales_and_zero_points_of_their_own() -> None:
    x = np.arange(-12, 12, dtype=np.int8).reshape(2, 3, 4)
    body = f"""
    %q = stablehlo.bitcast_convert %x : (tensor<2x3x4xi8>) -> tensor<2x3x4x{BLOCKS}>
    %d = stablehlo.uniform_dequantize %q : (tensor<2x3x4x{BLOCKS}>) -> tensor<2x3x4xf32>
    %t = stablehlo.uniform_quantize %d : (tensor<2x3x4xf32>) -> tensor<2x3x4x{BLOCKS}>
    %r = stablehlo.bitcast_convert %t : (tensor<2x3x4x{BLOCKS}>) -> tensor<2x3x4xi8>
    return %d, %r : tensor<2x3x4xf32>, tensor<2x3x4xi8>"""
    meant, back = run(body, "%x: tensor<2x3x4xi8>", x)
    scales = np.repeat(np.float32([[[0.5, 1.0]], [[2.0, 0.25]]]), 2, -1)
    zeros = np.repeat(np.int32([[[1, 0]], [[-1, 3]]]), 2, -1)
    np.testing.assert_array_equal(meant, (x - zeros) * scales)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("{0:2}, {1.0, 2.0}", "has scales"),
        ("{0:3}, {{1.0}}", "do not fit"),
        ("{0:0}, {{1.0}}", "do not fit"),
        ("{2:1}, {{1.0}}", "do not fit"),
        ("{0:1, 0:1}, {{1.0}, {2.0}}", "has scales"),
        ("{1:2}, {{1.0}, {1.0, 2.0}}", "no grid"),
        ("{1:2}, {{-1.0, 1.0}}", "positive"),
    ],
)
def test_blocks_that_make_no_sense_are_refused(form: str, said: str) -> None:
    type_ = f"tensor<2x4x!quant.uniform<i8:f32:{form}>>"
    body = f"""
    %q = stablehlo.bitcast_convert %x : (tensor<2x4xi8>) -> {type_}
    %r = stablehlo.uniform_dequantize %q : ({type_}) -> tensor<2x4xf32>
    return %r : tensor<2x4xf32>"""
    with pytest.raises(ModelError, match=said):
        run(body, "%x: tensor<2x4xi8>", np.zeros((2, 4), np.int8))
