"""Declared cases of every op, scheduled and as machine code, against the op's own oracle.

Each kernel runs twice, on buffers that end before and that begin behind an inaccessible page;
results and scratch memory are poisoned.  The default run takes each case in f32 and one more
type on the host; the slow run takes a sample of every type for every x86-64 level this machine has, and of code for
symbolic sizes (`test_sizes` has the longest with a symbol per image size); the nightly run takes the others.
"""

from __future__ import annotations

import numpy as np
import pytest

from conformance.native import special_values
from conformance.native.declared_cases import KernelCase, kernel_cases
from conformance.ops.test_cases import agree
from fakes.native_kernel import needs_x86, targets_apart, targets_here
from fakes.native_library import CodeLoader, NativeLibrary, load_machine_code
from tilewright.base.target import Target
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.declaration import OpDecl

pytestmark = needs_x86
ROWS = [row for row in catalogue.all_ops() if row.cases and row.body is not None]
by_op = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
by_target = pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)


def check(
    row: OpDecl,
    found: list[KernelCase],
    target: Target,
    *,
    special: bool = False,
    load: CodeLoader = load_machine_code,
) -> None:
    library = NativeLibrary([item.kernel for item in found], target, load=load)
    for index, item in enumerate(found):
        expected = row.schema.evaluate(item.case.operands, item.case.attributes)
        types = [(a.shape, a.dtype) for a in expected]
        for at_end in (True, False):
            results = library.run(index, item.operands, types, item.dims, at_end=at_end)
            for actual, wanted in zip(results, expected, strict=True):
                agree(actual, wanted, f"{item.case} {'end' if at_end else 'start'}")
        if special and special_values.has_floats(item):
            check_special(row, item, library, index)


def check_special(
    row: OpDecl, item: KernelCase, library: NativeLibrary, index: int
) -> None:
    for turn in range(special_values.ROUNDS):
        operands = special_values.strewn(row, item, turn)
        with np.errstate(all="ignore"):
            expected = row.schema.evaluate(operands, item.case.attributes)
        types = [(a.shape, a.dtype) for a in expected]
        present = [a for a in operands if a is not None]
        for actual, wanted in zip(
            library.run(index, present, types), expected, strict=True
        ):
            special_values.assert_agree(row, actual, wanted, f"{item.case} special {turn}")


@pytest.mark.sampled(7)
@pytest.mark.thinned(37)
@by_op
def test_scheduled_code_agrees_with_the_oracle(row: OpDecl) -> None:
    """On ordinary numbers, and on NaN, infinities, zeros, denormals."""
    found = kernel_cases(row, dynamic=False, every_type=False)
    check(row, found, Target.host(), special=True)


@pytest.mark.sampled(11)
@by_op
def test_scheduled_code_with_symbolic_sizes_agrees_with_the_oracle(row: OpDecl) -> None:
    found = kernel_cases(row, dynamic=True, every_type=False)
    # Code for symbolic sizes is long: one case of four will do here.
    check(row, found[::4], Target.host())


@pytest.mark.sampled(19)
@by_op
def test_other_scheduled_code_with_symbolic_sizes_agrees_too(row: OpDecl) -> None:
    found = kernel_cases(row, dynamic=True, every_type=False)
    check(row, found[2::4], Target.host())


@pytest.mark.sampled(35)
@pytest.mark.parametrize("target", targets_apart(), ids=lambda t: t.cpu)
@by_op
def test_every_type_agrees_on_every_level(row: OpDecl, target: Target) -> None:
    found = kernel_cases(row, dynamic=False, every_type=True)
    check(row, found, target)


@pytest.mark.nightly
@by_target
@by_op
def test_symbolic_sizes_agree_on_every_level(row: OpDecl, target: Target) -> None:
    check(row, kernel_cases(row, dynamic=True, every_type=True), target)
