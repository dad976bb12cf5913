"""Functions of the `vmvx` module that work element by element."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.base.errors import DeviceError
from tilewright.runtime.modules.vmvx import create_vmvx_module
from tilewright.runtime.vm.buffer import VmBuffer

MODULE = create_vmvx_module()
SPECIAL = (
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.5,
    3.25,
    math.inf,
    -math.inf,
    math.nan,
    1e-40,
    88.0,
    -90.0,
)
INTEGERS = (0, 1, -1, 2**31 - 1, -(2**31), 7, -7, 31, 32, 33, 12345678, -3)


def call(name: str, *arguments: object) -> object:
    function = MODULE.bind(None, name, None)
    assert function is not None
    return function(*arguments)


def i32(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def u32(value: int) -> int:
    return value % 2**32


def quotient(left: int, right: int) -> int:
    found = abs(left) // abs(right)
    return found if (left < 0) == (right < 0) else -found


INTEGER_ORACLES: dict[str, Callable[[int, int], int]] = {
    "add.2d.i32": lambda a, b: a + b,
    "sub.2d.i32": lambda a, b: a - b,
    "mul.2d.i32": lambda a, b: a * b,
    "and.2d.i32": lambda a, b: a & b,
    "or.2d.i32": lambda a, b: a | b,
    "xor.2d.i32": lambda a, b: a ^ b,
    "shl.2d.i32": lambda a, b: a << (b & 31),
    "shrs.2d.i32": lambda a, b: a >> (b & 31),
    "shru.2d.i32": lambda a, b: u32(a) >> (b & 31),
    "divs.2d.i32": quotient,
    "divu.2d.i32": lambda a, b: u32(a) // u32(b),
}


@pytest.mark.parametrize("name", sorted(INTEGER_ORACLES))
def test_integers_wrap_as_those_of_the_machine(name: str) -> None:
    divides = name.startswith("div")
    pairs = [(a, b) for a in INTEGERS for b in INTEGERS if b or not divides]
    left = VmBuffer(np.array([a for a, _ in pairs], np.int32))
    right = VmBuffer(np.array([b for _, b in pairs], np.int32))
    out = np.zeros(len(pairs), np.int32)
    call(
        name, left, 0, 1, 1, right, 0, 1, 1, VmBuffer(out), 0, len(pairs), 1, 1, len(pairs)
    )
    assert out.tolist() == [i32(INTEGER_ORACLES[name](a, b)) for a, b in pairs]


@pytest.mark.parametrize("name", ["divs.2d.i32", "divu.2d.i32"])
def test_division_of_integers_by_zero_fails(name: str) -> None:
    numbers = VmBuffer(np.array([1, 0], np.int32))
    out = VmBuffer.allocate(8)
    with pytest.raises(DeviceError, match="integer division by zero"):
        call(name, numbers, 0, 2, 1, numbers, 0, 2, 1, out, 0, 2, 1, 1, 2)


FLOAT_ORACLES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add.2d.f32": np.add,
    "sub.2d.f32": np.subtract,
    "mul.2d.f32": np.multiply,
    "div.2d.f32": np.divide,
}


@pytest.mark.parametrize("name", sorted(FLOAT_ORACLES))
@pytest.mark.filterwarnings("error")
def test_floats_keep_nan_infinities_and_the_sign_of_zero(name: str) -> None:
    a, b = np.meshgrid(np.array(SPECIAL, np.float32), np.array(SPECIAL, np.float32))
    out = np.zeros_like(a)
    n, m = a.shape
    call(
        name, VmBuffer(np.ascontiguousarray(a)), 0, m, 1,
        VmBuffer(np.ascontiguousarray(b)), 0, m, 1, VmBuffer(out), 0, m, 1, n, m,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        expected = FLOAT_ORACLES[name](a, b)
    np.testing.assert_array_equal(out, expected)
    assert (np.signbit(out) == np.signbit(expected))[~np.isnan(expected)].all()


UNARY_ORACLES: dict[str, Callable[[float], float]] = {
    "abs.2d.f32": abs,
    "neg.2d.f32": lambda x: -x,
    "ceil.2d.f32": lambda x: float(np.ceil(x)),
    "floor.2d.f32": lambda x: float(np.floor(x)),
    "exp.2d.f32": lambda x: float(np.exp(np.float64(x))),
    "log.2d.f32": lambda x: float(np.log(np.float64(x))),
    "rsqrt.2d.f32": lambda x: float(1 / np.sqrt(np.float64(x))),
}


@pytest.mark.parametrize("name", sorted(UNARY_ORACLES))
def test_functions_of_one_float_are_within_two_units_in_the_last_place(name: str) -> None:
    x = np.array(SPECIAL, np.float32)
    out = np.zeros_like(x)
    call(name, VmBuffer(x), 0, len(x), 1, VmBuffer(out), 0, len(x), 1, 1, len(x))
    with np.errstate(all="ignore"):
        wanted = np.array([UNARY_ORACLES[name](float(v)) for v in x]).astype(np.float32)
    exact = name.partition(".")[0] in {"abs", "neg", "ceil", "floor"}
    if exact:
        np.testing.assert_array_equal(out.view(np.uint32)[~np.isnan(x)],
                                      wanted.view(np.uint32)[~np.isnan(x)])  # fmt: skip
    np.testing.assert_allclose(out, wanted, rtol=0 if exact else 2.4e-7)


def test_leading_zeros_of_every_length() -> None:
    values = [0, *(1 << n for n in range(32)), *((1 << n) - 1 for n in range(1, 33))]
    x = np.array(values, np.uint32)
    out = np.zeros_like(x)
    call("ctlz.2d.i32", VmBuffer(x), 0, 1, 1, VmBuffer(out), 0, 1, 1, len(x), 1)
    assert out.tolist() == [32 - value.bit_length() for value in values]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
def test_copies_follow_offsets_and_strides(bits: int) -> None:
    dtype = np.dtype(f"u{bits // 8}")
    source = np.arange(100, dtype=dtype)
    target = np.full(60, 255, dtype)
    expected = target.copy()
    for i in range(3):
        for j in range(4):
            expected[5 + 13 * i + 3 * j] = source[7 + 2 * i + 11 * j]
    call(
        f"copy.2d.x{bits}", VmBuffer(source), 7, 2, 11, VmBuffer(target), 5, 13, 3, 3, 4
    )  # fmt: skip
    np.testing.assert_array_equal(target, expected)


def test_an_operand_with_strides_of_zero_is_repeated() -> None:
    row = np.array([1, 2, 3], np.float32)
    column = np.array([10, 20], np.float32)
    out = np.zeros((2, 3), np.float32)
    call("add.2d.f32", VmBuffer(row), 0, 0, 1, VmBuffer(column), 0, 1, 0,
         VmBuffer(out), 0, 3, 1, 2, 3)  # fmt: skip
    np.testing.assert_array_equal(out, row + column[:, None])


def test_the_output_may_be_an_operand() -> None:
    x = np.arange(6, dtype=np.float32)
    buffer = VmBuffer(x)
    call("add.2d.f32", buffer, 0, 3, 1, buffer, 0, 3, 1, buffer, 0, 3, 1, 2, 3)
    np.testing.assert_array_equal(x, np.arange(6) * 2)


@pytest.mark.parametrize(
    "value", [0, -1, 2**31 - 1, struct.unpack("<i", b"\0\0\xc0\x7f")[0]]
)
def test_fill_repeats_the_bits_and_leaves_gaps(value: int) -> None:
    out = np.full((3, 5), 9, np.int32)
    call("fill.2d.x32", value, VmBuffer(out), 1, 5, 3, 2)
    assert (out[:, 1:3] == value).all()
    assert (out[:, [0, 3, 4]] == 9).all()


@pytest.mark.parametrize(("rows", "columns"), [(0, 3), (3, 0), (0, 0), (0, 2**40)])
def test_nothing_is_touched_when_a_size_is_zero(rows: int, columns: int) -> None:
    untouched = np.full(4, 7, np.float32)
    empty, full = VmBuffer.allocate(0), VmBuffer(untouched)
    for target in (empty, full):
        call("exp.2d.f32", empty, 0, 1, 1, target, 0, 0, 0, rows, columns)
        call("fill.2d.x32", 1, target, 0, 0, rows, columns)
    assert (untouched == 7).all()


OUTSIDE = [
    (1, 4, 1, 2, 4),  # one element behind the end
    (0, 5, 1, 2, 4),
    (0, 4, 2, 2, 4),
    (2**62, 4, 1, 2, 4),
    (0, 2**62, 2**62, 2, 4),
    (0, 1, 1, 2**63 - 1, 1),
    (-1, 4, 1, 2, 4),
    (0, -4, 1, 2, 4),
    (0, 4, -1, 2, 4),
    (0, 4, 1, -2, 4),
]


@pytest.mark.parametrize("numbers", OUTSIDE)
@pytest.mark.parametrize("side", ["source", "target"])
def test_ranges_outside_of_a_buffer_fail_and_change_nothing(
    numbers: tuple[int, ...], side: str
) -> None:
    offset, stride0, stride1, size0, size1 = numbers
    small = np.zeros(8, np.float32)
    big = np.ones(64, np.float32)
    place = offset, stride0, stride1
    roomy = 0, 4, 1
    read, write = (place, roomy) if side == "source" else (roomy, place)
    source, target = (small, big) if side == "source" else (big, small)
    with pytest.raises(DeviceError):
        call("neg.2d.f32", VmBuffer(source), *read, VmBuffer(target), *write, size0, size1)
    assert (small == 0).all()
    assert (big == 1).all()


def test_read_only_bytes_are_not_written() -> None:
    source = VmBuffer(bytes(16))
    with pytest.raises(DeviceError, match="read-only"):
        call("copy.2d.x32", source, 0, 4, 1, VmBuffer(bytes(16)), 0, 4, 1, 1, 4)


def test_work_is_bounded_by_the_size_of_the_output() -> None:
    out = VmBuffer.allocate(64)
    with pytest.raises(DeviceError, match="name elements twice"):
        call("fill.2d.x32", 1, out, 0, 0, 2**31, 4)
    with pytest.raises(DeviceError, match="name elements twice"):
        call("copy.2d.x8", out, 0, 0, 0, out, 0, 0, 0, 2**31, 2**31)


WITH_BUFFERS = {
    function.name: function.convention.arguments
    for function in MODULE.functions
    if ".2d" in function.name and "ref" in function.convention.arguments
}


@pytest.mark.parametrize("name", WITH_BUFFERS)
def test_null_buffers_are_refused(name: str) -> None:
    arguments = [None if bank == "ref" else 0 for bank in WITH_BUFFERS[name]]
    with pytest.raises(DeviceError, match="is null, expected VmBuffer"):
        call(name, *arguments)
