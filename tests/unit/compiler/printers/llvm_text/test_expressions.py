"""Every operator, on every data type, as scalar and as vector, against the kernel evaluator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest

from fakes.dot_kernels import applied, operands
from fakes.lowered import lower
from fakes.native_kernel import NativeKernel, assert_same, needs_x86, targets_here
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Symbol, symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.dot_products import dot_of_bytes
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Binary,
    Buffer,
    Call,
    Compare,
    Const,
    Expression,
    Fma,
    For,
    Horizontal,
    If,
    Index,
    Kernel,
    Load,
    LoopKind,
    Parameter,
    Select,
    Store,
    Unary,
)
from tilewright.compiler.printers.llvm_text.function import emit_kernel

pytestmark = needs_x86

COUNT = 61


Outputs = Mapping[str, tuple[Callable[..., Expression], DType]]


def pointwise(outputs: Outputs, inputs: Sequence[DType], lanes: int) -> Kernel:
    """`out[i] = value(in0[i], in1[i], …)` for every output, in vectors with a masked tail."""
    buffers = [Buffer(f"x{n}", dtype, (COUNT,)) for n, dtype in enumerate(inputs)]
    results = [Buffer(name, dtype, (COUNT,)) for name, (_, dtype) in outputs.items()]
    i, v = symbol("i"), symbol("v")
    place = i * lanes + v
    stores = tuple(
        Store(out, (place,), value(*(Load(b, (place,)) for b in buffers)))
        for out, (value, _) in zip(results, outputs.values(), strict=True)
    )
    inside = If(Compare("lt", Index(place), Index(COUNT)), stores)
    vector = For(Symbol("v"), lanes, (inside,), LoopKind.VECTOR)
    body = (For(Symbol("i"), -(-COUNT // lanes), (vector,)),)
    parameters = [Parameter(b, AccessMode.READ) for b in buffers]
    parameters += [Parameter(b, AccessMode.WRITE) for b in results]
    return Kernel("k", tuple(parameters), (), (), body)


def special(dtype: DType, seed: int, count: int = COUNT) -> np.ndarray:
    """Values that include the edges of the type."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.integers(0, 2, count).astype(bool)
    if dtype.is_float:
        values = rng.normal(0, 20, count)
        edges = [0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-7, -3e38]
        edges = rng.permutation(edges)[:count]
        values[: len(edges)] = edges
        with np.errstate(over="ignore"):
            return values.astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    values = rng.integers(info.min, info.max, count, dtype=dtype.numpy, endpoint=True)
    values[:6] = [info.min, info.max, 0, 1, info.max // 2, 2]
    if dtype.is_signed:
        values[6] = -1
    small = rng.integers(max(info.min, -9), 9, count // 2).astype(dtype.numpy)
    values[-len(small) :] = small
    return values


def check_all(outputs: Outputs, inputs, lanes, *, seed=0, target=None, arrays=None):
    kernel = pointwise(outputs, inputs, lanes)
    arrays = arrays or [special(d, seed + n) for n, d in enumerate(inputs)]
    results = [np.zeros(COUNT, dtype.numpy) for _, dtype in outputs.values()]
    assert_same(kernel, [*arrays, *results], target=target)


def check(value, inputs, output, lanes, **options):
    check_all({"out": (value, output)}, inputs, lanes, **options)


def unary(op: str, dtype: DType) -> tuple[Callable[..., Expression], DType]:
    return lambda x: Unary(op, x, dtype), dtype


def binary(op: str, dtype: DType) -> tuple[Callable[..., Expression], DType]:
    return lambda x, y: Binary(op, x, y, dtype), dtype


FLOAT_UNARY = ("neg", "abs", "sqrt", "floor", "ceil", "round", "trunc")
INTEGER_UNARY = ("neg", "abs", "not", "floor", "ceil", "round", "trunc")
BINARY = ("add", "sub", "mul", "div", "mod", "floormod", "min", "max")
BITWISE = ("and", "or", "xor")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.thinned(5)
@pytest.mark.parametrize("lanes", [1, 3, 4, 16])
@pytest.mark.parametrize("dtype", dtypes.FLOATS, ids=str)
def test_float_operators_of_one_operand_agree(dtype, lanes):
    outputs = {op: unary(op, dtype) for op in FLOAT_UNARY}
    outputs["is_nan"] = unary("is_nan", dtypes.bool_)
    check_all(outputs, [dtype], lanes)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("dtype", dtypes.INTEGERS, ids=str)
def test_integer_operators_of_one_operand_agree(dtype, lanes):
    check_all({op: unary(op, dtype) for op in INTEGER_UNARY}, [dtype], lanes)


def test_logical_not_agrees():
    check_all({"not": unary("not", dtypes.bool_)}, [dtypes.bool_], 8)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("lanes", [1, 3, 16])
@pytest.mark.parametrize("dtype", dtypes.NUMERIC, ids=str)
def test_arithmetic_of_two_operands_agrees(dtype, lanes):
    check_all({op: binary(op, dtype) for op in BINARY}, [dtype, dtype], lanes)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", dtypes.INTEGERS, ids=str)
def test_integer_division_by_zero_gives_zero_and_never_traps(dtype):
    arrays = [special(dtype, 3), np.zeros(COUNT, dtype.numpy)]
    outputs = {op: binary(op, dtype) for op in ("div", "mod", "floormod")}
    check_all(outputs, [dtype, dtype], 4, arrays=arrays)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", [*dtypes.INTEGERS, dtypes.bool_], ids=str)
def test_bitwise_operators_agree(dtype):
    check_all({op: binary(op, dtype) for op in BITWISE}, [dtype, dtype], 16)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", dtypes.INTEGERS, ids=str)
def test_shifts_below_the_width_agree(dtype):
    amounts = np.random.default_rng(0).integers(0, dtype.bits, COUNT).astype(dtype.numpy)
    arrays = [special(dtype, 1), amounts]
    outputs = {op: binary(op, dtype) for op in ("shl", "shr")}
    check_all(outputs, [dtype, dtype], 16, arrays=arrays)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", dtypes.INTEGERS, ids=str)
def test_integer_powers_wrap_and_truncate(dtype):
    low = -3 if dtype.is_signed else 0
    exponents = np.random.default_rng(0).integers(low, 12, COUNT).astype(dtype.numpy)
    arrays = [special(dtype, 1), exponents]
    check_all({"pow": binary("pow", dtype)}, [dtype, dtype], 4, arrays=arrays)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("dtype", dtypes.ANY, ids=str)
def test_comparisons_agree(dtype, lanes):
    arrays = [special(dtype, 1), special(dtype, 2)]
    arrays[1][::2] = arrays[0][::2]

    def compared(op: str) -> tuple[Callable[..., Expression], DType]:
        return lambda x, y: Compare(op, x, y), dtypes.bool_

    outputs = {op: compared(op) for op in COMPARISONS}
    check_all(outputs, [dtype, dtype], lanes, arrays=arrays)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("source", dtypes.ANY, ids=str)
def test_casts_agree(source, lanes):
    def converted(target: DType) -> tuple[Callable[..., Expression], DType]:
        return lambda x: e.cast(x, target), target

    outputs = {t.name: converted(t) for t in dtypes.ANY if t is not source}
    check_all(outputs, [source], lanes)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize(
    ("source", "target"),
    [("f32", "i32"), ("f64", "u64"), ("f16", "i16"), ("bf16", "u16"), ("i8", "u8")],
)
def test_bits_read_as_another_type_agree(source, target, lanes):
    source, target = dtypes.parse(source), dtypes.parse(target)
    check(lambda x: e.bitcast(x, target), [source], target, lanes)
    # Any bits but those of a NaN, which may lose its payload on the way.
    numbers = [special(source, 3)]
    plain = np.where(np.isnan(numbers[0].astype(np.float64)), 0, numbers[0])
    arrays = [plain.astype(source.numpy).view(target.numpy)]
    outputs = {"out": (lambda x: e.bitcast(x, source), source)}
    check_all(outputs, [target], lanes, arrays=arrays)


@pytest.mark.thinned(9)
@pytest.mark.parametrize("level", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("half", [dtypes.f16, dtypes.bf16], ids=str)
def test_every_16_bit_float_converts_exactly_to_f32_and_back(half, level):
    bits = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    values = bits.view(half.numpy)
    count = len(values)
    x, y = Buffer("x", half, (count,)), Buffer("y", dtypes.f32, (count,))
    z = Buffer("z", half, (count,))
    i, v = symbol("i"), symbol("v")
    place = (i * 16 + v,)
    wide = e.cast(Load(x, place), dtypes.f32)
    stores = (Store(y, place, wide), Store(z, place, e.cast(Load(y, place), half)))
    vector = For(Symbol("v"), 16, stores, LoopKind.VECTOR)
    kernel = Kernel(
        "k",
        tuple(Parameter(b, a) for b, a in zip((x, y, z), AccessMode, strict=False)),
        (), (), (For(Symbol("i"), count // 16, (vector,)),),
    )  # fmt: skip
    arrays = [values, np.zeros(count, np.float32), np.zeros(count, half.numpy)]
    assert_same(kernel, arrays, target=level)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("wide", [dtypes.f32, dtypes.f64], ids=str)
@pytest.mark.parametrize("level", targets_here(), ids=lambda t: t.cpu)
@pytest.mark.parametrize("half", [dtypes.f16, dtypes.bf16], ids=str)
def test_rounding_to_16_bits_is_to_nearest_even(half, wide, level):
    """The middle of two neighbours goes to the even one, its own neighbours to the nearer."""
    largest = int(np.asarray(np.inf, half.numpy).view(np.uint16)) - 1
    bits = np.linspace(0, largest - 1, COUNT).astype(np.uint16)
    below, above = bits.view(half.numpy), (bits + 1).astype(np.uint16).view(half.numpy)
    even = np.where(bits % 2 == 0, bits, bits + 1).astype(np.uint16).view(half.numpy)
    middle = ((below.astype(np.float64) + above.astype(np.float64)) / 2).astype(wide.numpy)
    for sign in (1, -1):
        for values, want in (
            (middle, even),
            (np.nextafter(middle, np.asarray(np.inf, wide.numpy)), above),
            (np.nextafter(middle, np.asarray(0, wide.numpy)), below),
        ):
            kernel = pointwise({"half": (lambda x: e.cast(x, half), half)}, [wide], 4)
            got = np.zeros(COUNT, half.numpy)
            NativeKernel(kernel, level)([sign * values, got])
            np.testing.assert_array_equal(
                got.astype(np.float64), sign * want.astype(np.float64)
            )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", dtypes.ANY, ids=str)
def test_selection_agrees(dtype):
    inputs = [dtypes.bool_, dtype, dtype]
    check(e.select, inputs, dtype, 16)


@pytest.mark.parametrize("dtype", [dtypes.f32, dtypes.f64, dtypes.i32], ids=str)
@pytest.mark.parametrize("lanes", [1, 16])
def test_fused_multiply_add_rounds_once(dtype, lanes):
    arrays = [special(dtype, n) for n in range(3)]
    if dtype.is_float:
        arrays = [np.where(np.isfinite(a), a, 3).astype(dtype.numpy) for a in arrays]
        arrays = [np.clip(a, -1e6, 1e6).astype(dtype.numpy) for a in arrays]
    check(lambda x, y, z: Fma(x, y, z, dtype), [dtype] * 3, dtype, lanes, arrays=arrays)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("lanes", [2, 3, 7, 16])
@pytest.mark.parametrize("dtype", dtypes.NUMERIC, ids=str)
def test_lanes_are_combined_like_the_evaluator_does(dtype, lanes):
    x = Buffer("x", dtype, (lanes * 5,))
    results = {op: Buffer(op, dtype, (5,)) for op in ("add", "mul", "min", "max")}
    i = symbol("i")
    vector: Expression = Load(x, (i * lanes,), lanes)
    stores = tuple(
        Store(out, (i,), Horizontal(op, vector, dtype)) for op, out in results.items()
    )
    parameters = [Parameter(x, AccessMode.READ)]
    parameters += [Parameter(out, AccessMode.WRITE) for out in results.values()]
    kernel = Kernel("k", tuple(parameters), (), (), (For(Symbol("i"), 5, stores),))
    outputs = [np.zeros(5, dtype.numpy) for _ in results]
    small = np.random.default_rng(0).integers(1, 3, lanes * 5).astype(dtype.numpy)
    assert_same(kernel, [small, *outputs])
    extremes = with_outputs(kernel, ("x", "min", "max"))
    assert_same(extremes, [special(dtype, 5, lanes * 5), *outputs[:2]])


def with_outputs(kernel: Kernel, names: tuple[str, ...]) -> Kernel:
    """The kernel with some of its parameters only."""
    (loop,) = kernel.body
    stores = tuple(s for s in loop.body if s.buffer.name in names)
    parameters = tuple(p for p in kernel.parameters if p.buffer.name in names)
    return Kernel("k", parameters, (), (), (For(loop.var, loop.extent, stores),))


def test_indices_are_values():
    check(
        lambda x: e.binary(
            "add", x, e.cast(Index(symbol("i") * 16 + symbol("v")), dtypes.i32)
        ),
        [dtypes.i32],
        dtypes.i32,
        16,
    )


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, 4.0, -1.0, -2.0, 0.25])
def test_constant_powers_agree(exponent):
    def power(x: Expression) -> Expression:
        return Binary("pow", x, e.const(exponent, dtypes.f64), dtypes.f64)

    kernel = pointwise({"pow": (power, dtypes.f64)}, [dtypes.f64], 8)
    x, got = special(dtypes.f64, 7), np.zeros(COUNT)
    NativeKernel(kernel)([x, got])
    for base, value in zip(x.tolist(), got.tolist(), strict=True):
        try:
            want = math.pow(base, exponent)
        except (ValueError, ZeroDivisionError, OverflowError):
            with np.errstate(all="ignore"):
                want = float(np.power(np.float64(base), np.full(1, exponent))[0])
        same = value == want or (math.isnan(value) and math.isnan(want))
        assert same or math.isclose(value, want, rel_tol=1e-15), (base, value, want)


def test_bf16_values_are_those_of_ml_dtypes():
    assert dtypes.bf16.numpy == np.dtype(ml_dtypes.bfloat16)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["v1", "v2", "v3", "v4", "aarch64", "riscv64"])
@pytest.mark.parametrize(
    "dtype", [dtypes.f16, dtypes.bf16, dtypes.f32, dtypes.f64], ids=str
)
def test_no_operator_needs_a_library_on_any_target(target, dtype):
    """The linker refuses undefined symbols, so building is the test."""

    def everything(x, y):
        total = x
        for op in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid"):
            total = Binary("add", total, Unary(op, x, dtype), dtype)
        for op in ("floor", "ceil", "round", "trunc", "abs", "neg"):
            total = Binary("add", total, Unary(op, x, dtype), dtype)
        for op in ("pow", "mod", "floormod", "min", "max", "div"):
            total = Binary("add", total, Binary(op, x, y, dtype), dtype)
        for other in (
            dtypes.i8,
            dtypes.u64,
            dtypes.i64,
            dtypes.f16,
            dtypes.bf16,
            dtypes.f64,
        ):
            total = Binary("add", total, e.cast(e.cast(x, other), dtype), dtype)
        return Fma(total, x, y, dtype)

    kernel = pointwise({"all": (everything, dtype)}, [dtype, dtype], 4)

    class OnlyLinked(NativeKernel):
        def _load(self):
            return None

    assert len(OnlyLinked(kernel, Target.parse(target)).image) > 1000


# --- sums of products of bytes ---------------------------------------------------------------


def _words(lanes: int) -> Kernel:
    """`out[0, v] += bytes of x[k, v] * bytes of y[k, v]` in so many lanes."""
    steps = 5
    x, y = (Buffer(name, dtypes.i32, (steps, lanes)) for name in "xy")
    out = Buffer("out", dtypes.i32, (1, lanes))
    k, v = symbol("k"), symbol("v")
    product = Call(dot_of_bytes(), (Load(x, (k, v)), Load(y, (k, v))))
    total = Store(out, (0, v), e.binary("add", Load(out, (0, v)), product))
    vector = For(Symbol("v"), lanes, (total,), LoopKind.VECTOR)
    body = (For(Symbol("k"), steps, (vector,), reduction=True),)
    parameters = (
        Parameter(x, AccessMode.READ), Parameter(y, AccessMode.READ), Parameter(out, AccessMode.READ_WRITE)
    )  # fmt: skip
    return Kernel("k", parameters, (), (), body)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("target", targets_here(), ids=str)
def test_products_of_bytes_are_added_without_saturation(target: Target, lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    arrays = [
        rng.integers(-(1 << 31), 1 << 31, (rows, lanes)).astype(np.int32)
        for rows in (5, 5, 1)
    ]
    assert_same(_words(lanes), arrays, target=target)


@pytest.mark.parametrize(
    ("cpu", "lanes"),
    [("sapphirerapids", {4, 8, 16}), ("alderlake", {4, 8, 16}), ("haswell", set())],
)
def test_they_are_one_instruction_where_the_target_has_it(
    cpu: str, lanes: set[int]
) -> None:
    target = Target.parse(f"x86_64-linux -mcpu={cpu}")
    for count in (1, 4, 8, 16):
        text = emit_kernel(lower(_words(count), target), target).text
        assert ("vpdpbusd" in text) == (count in lanes)


@pytest.mark.parametrize(
    ("cpu", "lanes"), [("x86-64-v2", 4), ("x86-64-v3", 8), ("x86-64-v4", 16)]
)
def test_elsewhere_they_are_two_products_of_16_bits_which_do_not_saturate(
    cpu: str, lanes: int
) -> None:
    target = Target.parse(f"x86_64-linux -mcpu={cpu}")
    text = emit_kernel(lower(_words(lanes), target), target).text
    calls = [line for line in text.splitlines() if "call" in line and "pmadd" in line]
    assert calls
    assert len(calls) % 2 == 0
    assert "maddubs" not in text


def words(narrow: DType, wide: DType, lanes: int) -> Kernel:
    """`out[i]` = the bits of a few `x`."""
    count, each = 32, wide.itemsize // narrow.itemsize
    x = Buffer("x", narrow, (count * each,))
    out = Buffer("out", wide, (count,))
    i, v = symbol("i"), symbol("v")
    place = i * lanes + v
    block = Load(x, (place * each,), each)
    store = Store(out, (place,), e.bitcast(block, wide))
    vector = For(Symbol("v"), lanes, (store,), LoopKind.VECTOR)
    body = (For(Symbol("i"), count // lanes, (vector,)),)
    parameters = (Parameter(x, AccessMode.READ), Parameter(out, AccessMode.WRITE))
    return Kernel("k", parameters, (), (), body)


@pytest.mark.parametrize("lanes", [1, 4, 16])
@pytest.mark.parametrize(
    ("narrow", "wide"),
    [(dtypes.u8, dtypes.i32), (dtypes.i16, dtypes.i32), (dtypes.bf16, dtypes.i32)],
    ids=str,
)
def test_elements_side_by_side_are_words_in_lanes(narrow, wide, lanes):
    kernel = words(narrow, wide, lanes)
    each = wide.itemsize // narrow.itemsize
    x = special(narrow, 5, 32 * each)
    out = np.zeros(32, wide.numpy)
    assert_same(kernel, [x, out])
    evaluate(kernel, [x, out])
    np.testing.assert_array_equal(out.view(np.uint8), x.view(np.uint8))


@pytest.mark.parametrize("lanes", [1, 2, 8])
def test_a_word_is_as_many_narrow_lanes(lanes):
    x = Buffer("x", dtypes.i32, (lanes,))
    out = Buffer("out", dtypes.u8, (4 * lanes,))
    value = e.bitcast(Load(x, (0,), lanes), dtypes.u8)
    assert value.lanes == 4 * lanes
    parameters = (Parameter(x, AccessMode.READ), Parameter(out, AccessMode.WRITE))
    kernel = Kernel("k", parameters, (), (), (Store(out, (0,), value),))
    arrays = [np.arange(lanes, dtype=np.int32) * 0x01020304, np.zeros(4 * lanes, np.uint8)]
    assert_same(kernel, arrays)
    evaluate(kernel, arrays)
    np.testing.assert_array_equal(arrays[1], arrays[0].view(np.uint8))


@pytest.mark.sampled(3)
@pytest.mark.thinned(17)
@pytest.mark.parametrize("lanes", [1, 4, 16, 32])
@pytest.mark.parametrize("row", INSTRUCTIONS.values(), ids=INSTRUCTIONS)
def test_instructions_agree_with_their_meaning(row, lanes):
    for target in targets_here():
        assert_same(applied(row, 64, lanes), operands(row, 64), target=target)


# --- a choice between what is there and something new ----------------------------------------


def chosen_in_place(
    dtype: DType, width: int, *, kept_first: bool = True, shift: int = 0
) -> Kernel:
    """Elements of `y` that `x` picks are replaced."""
    x, y = Buffer("x", dtype, (4 * width,)), Buffer("y", dtype, (5 * width,))
    place = symbol("i") * width + symbol("v")
    kept, new = Load(y, (place + shift,)), Const(7, dtype)
    sides = (kept, new) if kept_first else (new, kept)
    chosen = Select(Compare("lt", Load(x, (place,)), Const(1, dtype)), *sides, dtype)
    vector = For(Symbol("v"), width, (Store(y, (place,), chosen),), LoopKind.VECTOR)
    parameters = (Parameter(x, AccessMode.READ), Parameter(y, AccessMode.READ_WRITE))
    return Kernel("k", parameters, (), (), (For(Symbol("i"), 4, (vector,)),))


@pytest.mark.thinned(7)
@pytest.mark.parametrize(
    "dtype", [dtypes.f32, dtypes.i32, dtypes.f64, dtypes.i64, dtypes.u8]
)
@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("kept_first", [True, False])
@pytest.mark.parametrize("target", targets_here())
def test_what_is_chosen_in_place_is_the_same_everywhere(
    dtype: DType, width: int, kept_first: bool, target: Target
) -> None:
    rng = np.random.default_rng(width)
    arrays = [rng.integers(0, 3, n * width).astype(dtype.numpy) for n in (4, 5)]
    kernel = chosen_in_place(dtype, width, kept_first=kept_first)
    assert_same(kernel, arrays, target=target)


@pytest.mark.parametrize(
    ("level", "shift", "is_hidden"),
    [("v3", 0, True), ("v3", 1, False), ("v2", 0, False), ("v4", 0, False)],
)
def test_a_choice_in_place_is_no_store_under_a_mask_where_those_are_slow(
    level: str, shift: int, is_hidden: bool
) -> None:
    target = Target.level(level)
    text = emit_kernel(
        lower(chosen_in_place(dtypes.f32, 8, shift=shift), target), target
    ).text
    assert ('asm ""' in text) is is_hidden
