"""What an instruction means as an expression is what its loops compute."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from fakes.dot_kernels import elements, samples
from tilewright.base import dtypes
from tilewright.base.errors import InternalError
from tilewright.compiler.kernel import expressions as e
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.instructions import INSTRUCTIONS, meaning
from tilewright.compiler.kernel.ir import (
    AccessMode,
    Barrier,
    Buffer,
    Instruction,
    Kernel,
    Load,
    Parameter,
    Store,
)
from tilewright.compiler.kernel.verifier import verify

COUNT = 64


def as_loops(row: Instruction) -> Kernel:
    """The instruction's own loops, as a kernel for one lane."""
    parameters = tuple(
        Parameter(x, AccessMode.READ if n else AccessMode.READ_WRITE)
        for n, x in enumerate(row.parameters)
    )
    kernel = Kernel("loops", parameters, (), (), row.body)
    verify(kernel)
    return kernel


def as_words(row: Instruction, lanes: int) -> Kernel:
    """Its meaning in lanes, of operands that lie in memory as words."""
    total, *packed = row.parameters
    result = Buffer("total", total.dtype, (lanes,))
    each = elements(row) * (lanes // row.tile_lanes)
    sides = [Buffer(x.name, x.dtype, (each,)) for x in packed]
    words = [
        e.bitcast(Load(x, (0,), each), dtype)
        for x, dtype in zip(sides, row.operands[1:], strict=True)
    ]
    body = (Store(result, (0,), meaning(row, [Load(result, (0,), lanes), *words])),)
    parameters = (
        Parameter(result, AccessMode.READ_WRITE),
        *(Parameter(x, AccessMode.READ) for x in sides),
    )
    kernel = Kernel("words", parameters, (), (), body)
    verify(kernel)
    return kernel


@pytest.mark.thinned(3)
@pytest.mark.parametrize("row", INSTRUCTIONS.values(), ids=INSTRUCTIONS)
def test_the_meaning_of_an_instruction_is_what_its_loops_compute(row):
    total, *packed = row.parameters
    totals = samples(total.dtype, COUNT, 0)
    tiles = COUNT // row.tile_lanes
    sides = [samples(x.dtype, tiles * elements(row), 1 + n) for n, x in enumerate(packed)]
    found = totals.copy()
    evaluate(as_words(row, COUNT), [found, *sides])
    kernel = as_loops(row)
    for tile, total_of_tile in enumerate(totals.reshape(tiles, *total.shape)):
        want = np.array(total_of_tile)
        blocks = [x.reshape(tiles, -1)[tile].copy() for x in sides]
        evaluate(kernel, [want, *blocks])
        np.testing.assert_array_equal(found.reshape(tiles, *total.shape)[tile], want)


def test_the_product_of_bytes_never_saturates():
    row = INSTRUCTIONS["vpdpbusd"]
    found = np.zeros(1, np.int32)
    largest = np.full(4, 255, np.uint8), np.full(4, -128, np.int8)
    evaluate(as_words(row, 1), [found, *largest])
    assert found[0] == 4 * 255 * -128


def test_brain_floats_flush_what_is_denormal():
    row = INSTRUCTIONS["vdpbf16ps"]
    found = np.full(1, 1e-39, np.float32)
    tiny = np.full(2, 1e-39, ml_dtypes.bfloat16), np.full(2, 1e30, ml_dtypes.bfloat16)
    evaluate(as_words(row, 1), [found, *tiny])
    assert found[0] == 0


def test_statements_without_a_meaning_in_lanes_are_refused_by_name():
    row = Instruction(
        name="odd",
        parameters=(Buffer("x", dtypes.i32, ()),),
        body=(Barrier(),),
        forms=(),
    )
    with pytest.raises(InternalError, match="instruction 'odd': a Barrier has no meaning"):
        meaning(row, [e.const(0, dtypes.i32)])
