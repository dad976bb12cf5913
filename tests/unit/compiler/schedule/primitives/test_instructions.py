"""An instruction takes the place of a loop that means the same, and of no other."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fakes.loop_nests import assert_same, body_text
from fakes.lowered import lower
from fakes.native_kernel import assert_same as assert_same_code
from fakes.native_kernel import needs_x86, targets_here
from fakes.tile_kernels import product_in_tiles
from tilewright.base.dtypes import DType, bf16, f32, i8, i16, i32, u8
from tilewright.base.errors import ScheduleError
from tilewright.base.symbolic import symbol
from tilewright.base.target import Target
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.expressions import const
from tilewright.compiler.kernel.instructions import INSTRUCTIONS
from tilewright.compiler.kernel.ir import Intrinsic, Kernel, Load
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.printers.llvm_text.function import emit_kernel
from tilewright.compiler.schedule.primitives import reorder, tensorize, unroll, vectorize
from tilewright.compiler.schedule.trace import Schedule, replay


def packed(
    left: DType, right: DType, total: DType, each: int, *, rows=3, depth=5, lanes=16
) -> Kernel:
    """`y[m, n] = sum over p, k of a[m, each * p + k] * b[p, n, k]`."""
    b = KernelBuilder("packed")
    a = b.parameter("a", left, (rows, each * depth))
    w = b.parameter("b", right, (depth, lanes, each))
    y = b.result("y", total, (rows, lanes))
    with b.nest((rows, lanes), ("m", "n")) as (m, n):
        b.store(y, (m, n), 0)
    with (
        b.reduce((depth,), ("p",)) as (p,),
        b.nest((rows, lanes), ("i", "j")) as (i, j),
        b.reduce((each,), ("k",)) as (k,),
    ):
        x = b.cast(b.load(a, (i, p * each + k)), total)
        b.accumulate("add", y, (i, j), b.mul(x, b.cast(b.load(w, (p, j, k)), total)))
    return b.build()


CASES = {
    "vpdpbusd": (u8, i8, i32, 4),
    "vpdpwssd": (i16, i16, i32, 2),
    "vpmaddwd": (i16, i16, i32, 2),
    "sdot": (i8, i8, i32, 4),
    "udot": (u8, u8, i32, 4),
    "usdot": (u8, i8, i32, 4),
}


@pytest.mark.parametrize("name", CASES)
def test_a_loop_of_products_becomes_the_instruction(name: str) -> None:
    before = packed(*CASES[name])
    after = tensorize(before, "k", name)
    assert f"intrinsic<{name}, 1>(y[i, j], bits<i32>(a[i, " in body_text(after)
    assert_same(before, after)
    assert_same(before, vectorize(after, "j"))


TILES = {"smmla": (i8, i8), "ummla": (u8, u8), "usmmla": (u8, i8)}


@pytest.mark.parametrize("name", TILES)
def test_a_nest_over_a_tile_becomes_the_instruction(name: str) -> None:
    before = product_in_tiles(*TILES[name], 3, 11, 5)
    after = tensorize(before, "i", name)
    assert f"intrinsic<{name}, 4>(" in body_text(after)
    verify(after)
    assert_same(before, after)


@needs_x86
def test_a_machine_without_tiles_computes_what_the_nest_says() -> None:
    kernel = product_in_tiles(i8, i8, 3, 11, 5)
    for target in targets_here():
        assert_same_code(tensorize(kernel, "i", "smmla"), arrays_of(kernel), target=target)


@pytest.mark.parametrize(
    ("kernel", "loop", "reason"),
    [
        (product_in_tiles(u8, i8, 2, 8, 2), "i", "is of u8, expected i8"),
        (product_in_tiles(i8, i8, 2, 8, 2), "j", "a loop over 2|a reduction over 8, expected"),
        (product_in_tiles(i8, i8, 2, 8, 2), "k", "a reduction over 8, expected a loop over 2"),
        (
            reorder(product_in_tiles(i8, i8, 2, 8, 2), ["j", "i"]), "j",
            "are not elements side by side, in the order of 'j', 'i'",
        ),
    ],
)  # fmt: skip
def test_a_nest_that_is_no_tile_is_refused(kernel: Kernel, loop: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=f"not what 'smmla' computes: .*({reason})"):
        tensorize(kernel, loop, "smmla")


@pytest.mark.parametrize("lanes", [1, 2, 6])
def test_lanes_that_are_no_whole_tiles_are_refused(lanes: int) -> None:
    words = tuple(const(1, i32, lanes) for _ in range(3))
    problem = Intrinsic(INSTRUCTIONS["smmla"], words, lanes).problem()
    assert problem == f"{lanes} lanes of 'smmla', expected whole tiles of 4"


def arrays_of(kernel: Kernel, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for parameter in kernel.parameters:
        info = np.iinfo(parameter.buffer.dtype.numpy)
        shape = [int(str(d)) for d in parameter.buffer.shape]
        found.append(rng.integers(info.min, info.max, shape, info.dtype, endpoint=True))
    return found


@pytest.mark.thinned(3)
@needs_x86
@pytest.mark.parametrize("name", CASES)
def test_the_machine_computes_what_the_loop_says_to_the_last_bit(name: str) -> None:
    kernel = packed(*CASES[name], lanes=32)
    scheduled = unroll(vectorize(tensorize(kernel, "k", name), "j"), "i")
    for target in targets_here():
        assert_same_code(scheduled, arrays_of(kernel), target=target)


def test_whole_vectors_of_words_are_read_at_a_time() -> None:
    scheduled = vectorize(tensorize(packed(*CASES["vpdpbusd"]), "k", "vpdpbusd"), "j")
    target = Target.parse("x86_64 -mcpu=sapphirerapids")
    text = emit_kernel(lower(scheduled, target), target).text
    assert "load <64 x i8>" in text
    assert text.count("@llvm.x86.avx512.vpdpbusd.512(<16 x i32> ") == 1
    assert "extractelement" not in text


def test_the_order_of_factors_and_terms_does_not_matter() -> None:
    b = KernelBuilder("turned")
    a, w = b.parameter("a", u8, (8, 4)), b.parameter("b", i8, (8, 4))
    y = b.parameter("y", i32, (8,))
    out = b.result("out", i32, (8,))
    with b.nest((8,), ("i",)) as (i,):
        b.store(out, (i,), b.load(y, (i,)))
        with b.reduce((4,), ("k",)) as (k,):
            product = b.mul(b.cast(b.load(w, (i, k)), i32), b.cast(b.load(a, (i, k)), i32))
            b.store(out, (i,), b.add(product, Load(out, (i,))))
    before = b.build()
    after = tensorize(before, "k", "vpdpbusd")
    assert "bits<i32>(a[i, 0 : 4 lanes]), bits<i32>(b[i, 0 : 4 lanes])" in body_text(after)
    assert_same(before, after)


def test_brain_floats_take_consent() -> None:
    before = packed(bf16, bf16, f32, 2)
    with pytest.raises(ScheduleError, match="denormal numbers are zeros"):
        tensorize(before, "k", "vdpbf16ps")
    after = tensorize(before, "k", "vdpbf16ps", inexact=True)
    assert_same(before, after, exact=False)


@needs_x86
def test_brain_floats_are_the_machines_to_the_last_bit() -> None:
    kernel = packed(bf16, bf16, f32, 2)
    scheduled = vectorize(tensorize(kernel, "k", "vdpbf16ps", inexact=True), "j")
    rng = np.random.default_rng(0)
    arrays = [
        rng.normal(0, 1, shape).astype(dtype)
        for shape, dtype in (
            ((3, 10), ml_dtypes.bfloat16), ((5, 16, 2), ml_dtypes.bfloat16), ((3, 16), np.float32)
        )
    ]  # fmt: skip
    for target in targets_here():
        assert_same_code(scheduled, arrays, target=target)


def one_loop(
    *, extent=4, left=u8, stride=1, reduction=True, moves=False, doubled=False
) -> Kernel:
    """A loop that differs in one thing from what `vpdpbusd` computes."""
    b = KernelBuilder("other")
    a = b.parameter("a", left, (64,))
    w = b.parameter("b", i8, (64,))
    y = b.result("y", i32, (64,))
    with b.nest((8,), ("i",)) as (i,), b.loop(extent, "k", reduction=reduction) as k:
        x = b.cast(b.load(a, (i * 4 + k * stride,)), i32)
        product = b.mul(x, b.cast(b.load(w, (i * 4 + k,)), i32))
        place = i + k if moves else i
        b.accumulate("add", y, (place,), b.mul(product, 2) if doubled else product)
    return b.build()


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (one_loop(extent=3), "a reduction over 3, expected a reduction over 4"),
        (one_loop(extent=symbol("n", 1)), "a reduction over n, expected"),
        (one_loop(reduction=False), "a loop over 4, expected a reduction over 4"),
        (one_loop(left=i8), "`a.*` is of i8, expected u8"),
        (one_loop(stride=2), "`a.*` are not elements side by side, in the order of 'k'"),
        (one_loop(stride=-1), "are not elements side by side"),
        (one_loop(moves=True), "is another element in every iteration"),
        (one_loop(doubled=True), "expected the form"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_loop_that_means_something_else_is_refused(kernel: Kernel, reason: str) -> None:
    with pytest.raises(ScheduleError, match=f"not what 'vpdpbusd' computes: .*{reason}"):
        tensorize(kernel, "k", "vpdpbusd")


def test_elements_along_a_diagonal_are_refused() -> None:
    b = KernelBuilder("diagonal")
    a, w = b.parameter("a", u8, (4, 1, 4)), b.parameter("b", i8, (4,))
    y = b.result("y", i32, (1,))
    with b.reduce((4,), ("k",)) as (k,):
        x = b.cast(b.load(a, (k, 0, k)), i32)
        b.accumulate("add", y, (0,), b.mul(x, b.cast(b.load(w, (k,)), i32)))
    with pytest.raises(
        ScheduleError, match=r"`a\[k, 0, k\]` are not elements side by side"
    ):
        tensorize(b.build(), "k", "vpdpbusd")


def test_a_factor_that_is_computed_is_refused() -> None:
    b = KernelBuilder("computed")
    a, w = b.parameter("a", u8, (4,)), b.parameter("b", i8, (4,))
    y = b.result("y", i32, (1,))
    with b.reduce((4,), ("k",)) as (k,):
        x = b.cast(b.add(b.load(a, (k,)), 1), i32)
        b.accumulate("add", y, (0,), b.mul(x, b.cast(b.load(w, (k,)), i32)))
    with pytest.raises(ScheduleError, match="is not read from memory"):
        tensorize(b.build(), "k", "vpdpbusd")


def test_a_product_with_what_is_being_written_is_refused() -> None:
    b = KernelBuilder("inside")
    y, w = b.result("y", i16, (4,)), b.parameter("b", i16, (4,))
    with b.reduce((2,), ("k",)) as (k,):
        b.accumulate("add", y, (3,), b.mul(b.load(y, (k,)), b.load(w, (k,))))
    with pytest.raises(ScheduleError, match="not what 'vpmaddwd' computes"):
        tensorize(b.build(), "k", "vpmaddwd")


def test_an_unknown_instruction_has_a_near_one() -> None:
    with pytest.raises(ScheduleError, match="unknown instruction 'vpdpbuds'") as error:
        tensorize(one_loop(), "k", "vpdpbuds")
    assert "vpdpbusd" in str(error.value.hint)


def test_the_step_is_part_of_the_trace() -> None:
    schedule = Schedule(packed(bf16, bf16, f32, 2))
    schedule.apply(tensorize, "k", "vdpbf16ps", inexact=True)
    schedule.apply(reorder, ["j", "i"])
    again = replay(packed(bf16, bf16, f32, 2), schedule.kernel.trace)
    assert body_text(again) == body_text(schedule.kernel)
    with pytest.raises(
        ScheduleError, match="'inexact' of 'tensorize' is 1, expected yes or no"
    ):
        schedule.apply(tensorize, "k", "vdpbf16ps", inexact=1)
