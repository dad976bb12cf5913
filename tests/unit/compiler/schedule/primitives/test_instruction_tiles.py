"""An instruction for two rows and two columns takes a tile of a product of words, and of nothing else."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.loop_nests import body_text, product
from fakes.native_kernel import assert_same as assert_same_code
from fakes.native_kernel import needs_x86
from tilewright.base.dtypes import i32, i64
from tilewright.base.errors import ScheduleError
from tilewright.compiler.kernel.builder import KernelBuilder
from tilewright.compiler.kernel.dot_products import dot_of_bytes, dot_of_long_words
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.ir import AccessMode, Call, Kernel
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.schedule.primitives import multiply_tiles, reorder
from tilewright.compiler.schedule.trace import Schedule, replay


def sums(
    rows: int,
    vectors: int,
    lanes: int = 4,
    *,
    taps: int = 2,
    depth: int = 3,
    bits: int = 64,
) -> Kernel:
    """`y[m, v, l] += dot(a[m, t, k], b[t, k, v * lanes + l])`, the loops of the sum outside."""
    word = i64 if bits == 64 else i32
    b = KernelBuilder("sums")
    a = b.parameter("a", word, (rows, taps, depth))
    w = b.parameter("b", word, (taps, depth, vectors * lanes))
    y = b.parameter("y", i32, (rows, vectors, lanes), AccessMode.READ_WRITE)
    dot = dot_of_long_words() if bits == 64 else dot_of_bytes()
    with (
        b.reduce((taps, depth), ("t", "k")) as (t, k),
        b.nest((rows, vectors, lanes), ("m", "v", "l")) as (m, v, lane),
    ):
        words = (b.load(a, (m, t, k)), b.load(w, (t, k, v * lanes + lane)))
        b.accumulate("add", y, (m, v, lane), Call(dot, words))
    return b.build()


def operands(kernel: Kernel) -> list[np.ndarray]:
    """Words of all bytes, and totals that are not zero."""
    random = np.random.default_rng(5)
    found: list[np.ndarray] = []
    for parameter in kernel.parameters:
        shape = [int(str(extent)) for extent in parameter.buffer.shape]
        itemsize = parameter.buffer.dtype.itemsize
        data = random.integers(0, 256, (*shape, itemsize), np.uint8)
        data[..., :2] |= 0x80  # products of 255 by -128, too
        found.append(data.view(parameter.buffer.dtype.numpy).reshape(shape))
    return found


def expected(arrays: list[np.ndarray]) -> np.ndarray:
    """By numpy, of the bytes; sums wrap."""
    a, w, y = arrays
    left = a.view(np.uint8).reshape(*a.shape, -1).astype(np.int64)
    right = w.view(np.int8).reshape(*w.shape, -1).astype(np.int64)
    total = np.einsum("mtke,tkne->mn", left, right).reshape(y.shape)
    return (y + total).astype(np.int32)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("lanes", [2, 4, 16])
@pytest.mark.parametrize("vectors", [2, 3])
@pytest.mark.parametrize("rows", [2, 3, 6])
def test_every_step_is_the_instruction_on_pairs_of_rows_and_columns(
    rows: int, vectors: int, lanes: int
) -> None:
    kernel = sums(rows, vectors, lanes)
    changed = multiply_tiles(kernel, "t", "m", "usmmla")
    verify(changed)
    text = body_text(changed)
    assert text.count("intrinsic<usmmla, 4>") == -(-rows // 2) * vectors * lanes // 2
    assert "dot_u8i8" not in text
    arrays = operands(kernel)
    want = expected(arrays)
    for each in (kernel, changed):
        found = [array.copy() for array in arrays]
        evaluate(each, found)
        np.testing.assert_array_equal(found[2], want)


@needs_x86
@pytest.mark.parametrize("rows", [2, 3])
def test_machines_without_the_instruction_compute_what_it_means(rows: int) -> None:
    kernel = multiply_tiles(sums(rows, 2), "t", "m", "usmmla")
    assert_same_code(kernel, operands(kernel))


def test_a_record_of_it_can_be_run_again() -> None:
    kernel = sums(3, 2)
    s = Schedule(kernel)
    s.apply(multiply_tiles, "t", "m", "usmmla")
    assert body_text(replay(kernel, s.kernel.trace)) == body_text(s.kernel)


@pytest.mark.parametrize("name", ["usdot", "smmla", "gemm"])
def test_other_instructions_are_refused(name: str) -> None:
    with pytest.raises(ScheduleError, match="multiplies no tiles of words") as caught:
        multiply_tiles(sums(2, 2), "t", "m", name)
    assert "usmmla" in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "loop", "tile", "reason"),
    [
        (sums(2, 2, 3), "t", "m", "columns be pairs"),
        (sums(2, 2), "m", "v", "inside of a sum"),
        (sums(2, 2), "t", "v", "inside of a sum"),
        (sums(2, 2, bits=32), "t", "m", "a sum of its products"),
        (product(2, 4), "i", "j", "inside of a sum"),
        (reorder(sums(2, 3), ["t", "k", "v", "m", "l"]), "t", "v", "other words in every"),
        (reorder(sums(2, 2), ["t", "k", "m", "l", "v"]), "t", "m", "side by side"),
    ],
)
def test_what_is_no_tile_of_its_products_is_refused(
    kernel: Kernel, loop: str, tile: str, reason: str
) -> None:
    with pytest.raises(ScheduleError, match=reason):
        multiply_tiles(kernel, loop, tile, "usmmla")
