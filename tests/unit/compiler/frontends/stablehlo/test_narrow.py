"""Elements of few bits: every value of every format survives, and numbers between are rounded."""

import ml_dtypes
import numpy as np
import pytest

from fakes.stablehlo_text import run

FORMATS = {
    "f4E2M1FN": ml_dtypes.float4_e2m1fn, "f6E2M3FN": ml_dtypes.float6_e2m3fn,
    "f6E3M2FN": ml_dtypes.float6_e3m2fn, "f8E3M4": ml_dtypes.float8_e3m4,
    "f8E4M3": ml_dtypes.float8_e4m3, "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz, "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f8E5M2": ml_dtypes.float8_e5m2, "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


def there_and_back(x: np.ndarray, name: str) -> np.ndarray:
    type_, narrow = f"tensor<{x.size}xf32>", f"tensor<{x.size}x{name}>"
    body = f"""
    %n = stablehlo.convert %x : ({type_}) -> {narrow}
    %r = stablehlo.convert %n : ({narrow}) -> {type_}
    return %r : {type_}"""
    return run(body, f"%x: {type_}", x)[0]


@pytest.mark.parametrize("name", FORMATS)
def test_floats_are_rounded_as_their_format_says(name: str) -> None:
    choose = np.random.default_rng(0)
    edges = [
        0,
        -0.0,
        np.inf,
        -np.inf,
        448,
        464,
        465,
        1e30,
        -57344,
        61440,
        7.5,
        7.75,
        0.25,
        1.75,
    ]
    x = np.concatenate(
        [edges, choose.normal(size=300) * 2.0 ** choose.uniform(-20, 18, 300)]
    )
    x = x.astype(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(FORMATS[name]).astype(np.float32)
    np.testing.assert_array_equal(there_and_back(x, name), expected)


@pytest.mark.parametrize("name", FORMATS)
def test_floats_of_every_format_go_in_and_come_out(name: str) -> None:
    x = np.array([0, 0.5, -1, 1.5, 3], np.float32).astype(FORMATS[name])
    type_ = f"tensor<{x.size}x{name}>"
    body = f"""
    %s = stablehlo.add %x, %x : {type_}
    return %s : {type_}"""
    (found,) = run(body, f"%x: {type_}", x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, x + x)


@pytest.mark.parametrize(("name", "bits"), [("i4", 4), ("i2", 2)])
def test_integers_wrap(name: str, bits: int) -> None:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    body = f"""
    %a = stablehlo.constant dense<[{low}, {high}, {high}, -1]> : tensor<4x{name}>
    %b = stablehlo.constant dense<[-1, 1, {high}, -1]> : tensor<4x{name}>
    %s = stablehlo.add %a, %b : tensor<4x{name}>
    %r = stablehlo.convert %s : (tensor<4x{name}>) -> tensor<4xi32>
    return %r : tensor<4xi32>"""
    assert run(body, "")[0].tolist() == [high, low, -2, -2]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("stablehlo.shift_right_logical %a, %one", [7, 4, 1, 0]),
        ("stablehlo.shift_right_arithmetic %a, %one", [-1, -4, 1, 0]),
        ("stablehlo.shift_left %a, %one", [-2, 0, 6, 0]),
        ("stablehlo.popcnt %a", [4, 1, 2, 0]),
        ("stablehlo.count_leading_zeros %a", [0, 0, 2, 4]),
        ("stablehlo.not %a", [0, 7, -4, -1]),
        ("stablehlo.negate %a", [1, -8, -3, 0]),
    ],
)
def test_bits_above_a_narrow_integer_do_not_count(op: str, expected: list[int]) -> None:
    body = f"""
    %a = stablehlo.constant dense<[-1, -8, 3, 0]> : tensor<4xi4>
    %one = stablehlo.constant dense<1> : tensor<4xi4>
    %s = {op} : tensor<4xi4>
    %r = stablehlo.convert %s : (tensor<4xi4>) -> tensor<4xi32>
    return %r : tensor<4xi32>"""
    assert run(body, "")[0].tolist() == expected


def test_arguments_and_results_of_few_bits_keep_their_type() -> None:
    x = np.array([-8, 7, 3], np.int8).astype(ml_dtypes.int4)
    body = "%r = stablehlo.add %x, %x : tensor<3xi4>\nreturn %r : tensor<3xi4>"
    (found,) = run(body, "%x: tensor<3xi4>", x)
    assert found.dtype == ml_dtypes.int4
    assert found.astype(np.int8).tolist() == [0, -2, 6]


@pytest.mark.parametrize("name", ["i2", "i4", "ui2", "ui4"])
@pytest.mark.parametrize("wide", ["f32", "f64", "bf16"])
def test_floats_beyond_the_range_of_small_integers_saturate(name: str, wide: str) -> None:
    bits, signed = int(name[-1]), name[0] == "i"
    low = -(1 << (bits - 1)) if signed else 0
    x = np.float32(
        [-300, -8.9, -1.5, -0.5, 0.9, 3.2, 7.9, 15.9, 130, np.inf, -np.inf, np.nan]
    )
    body = f"""
    %a = stablehlo.convert %x : (tensor<12xf32>) -> tensor<12x{wide}>
    %n = stablehlo.convert %a : (tensor<12x{wide}>) -> tensor<12x{name}>
    %r = stablehlo.convert %n : (tensor<12x{name}>) -> tensor<12xi32>
    return %r : tensor<12xi32>"""
    expected = np.trunc(np.clip(np.nan_to_num(x), low, low + (1 << bits) - 1))
    if wide == "bf16":
        expected[np.isin(x, np.float32([15.9]))] = min(16, low + (1 << bits) - 1)
    np.testing.assert_array_equal(run(body, "%x: tensor<12xf32>", x)[0], expected)


def test_packed_floats_of_four_bits_are_the_bits_of_bytes() -> None:
    """As weights of MXFP4 and NVFP4 are read: two elements in a byte, the lower bits first."""
    x = np.arange(256, dtype=np.uint8).reshape(2, 128)
    body = """
    %n = stablehlo.bitcast_convert %x : (tensor<2x128xui8>) -> tensor<2x128x2xf4E2M1FN>
    %s = stablehlo.convert %n : (tensor<2x128x2xf4E2M1FN>) -> tensor<2x128x2xf32>
    %w = stablehlo.bitcast_convert %n : (tensor<2x128x2xf4E2M1FN>) -> tensor<2x128x2xui4>
    %b = stablehlo.bitcast_convert %w : (tensor<2x128x2xui4>) -> tensor<2x128x2xf4E2M1FN>
    %r = stablehlo.bitcast_convert %b : (tensor<2x128x2xf4E2M1FN>) -> tensor<2x128xui8>
    return %s, %r : tensor<2x128x2xf32>, tensor<2x128xui8>"""
    found, back = run(body, "%x: tensor<2x128xui8>", x)
    bits = np.stack([x & 15, x >> 4], -1)
    expected = bits.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(back, x)
