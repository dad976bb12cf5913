"""Declared cases of every op, scheduled and as machine code, against the op's own oracle.

Each kernel runs twice, on buffers that end before and that begin behind an inaccessible page;
results and scratch memory are poisoned.  The default run takes each case in f32 and one more
type on the host; `slow` takes every type for every x86-64 level this machine has.
"""

from __future__ import annotations

import pytest

from conformance.native.declared_cases import KernelCase, kernel_cases
from conformance.ops.test_cases import agree
from fakes.native_kernel import needs_x86, targets_here
from fakes.native_library import NativeLibrary
from tilewright.base.target import Target
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.declaration import OpDecl

pytestmark = needs_x86
ROWS = [row for row in catalogue.all_ops() if row.cases and row.body is not None]
by_op = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
by_target = pytest.mark.parametrize("target", targets_here(), ids=lambda t: t.cpu)


def check(row: OpDecl, found: list[KernelCase], target: Target) -> None:
    library = NativeLibrary([item.kernel for item in found], target)
    for index, item in enumerate(found):
        expected = row.schema.evaluate(item.case.operands, item.case.attributes)
        types = [(a.shape, a.dtype) for a in expected]
        for at_end in (True, False):
            results = library.run(index, item.operands, types, item.dims, at_end=at_end)
            for actual, wanted in zip(results, expected, strict=True):
                agree(actual, wanted, f"{item.case} {'end' if at_end else 'start'}")


@by_op
def test_scheduled_code_agrees_with_the_oracle(row: OpDecl) -> None:
    check(row, kernel_cases(row, dynamic=False, every_type=False), Target.host())


@by_op
def test_scheduled_code_with_symbolic_sizes_agrees_with_the_oracle(row: OpDecl) -> None:
    found = kernel_cases(row, dynamic=True, every_type=False)
    # Code for symbolic sizes is long: every other case will do.
    check(row, found[::2], Target.host())


@pytest.mark.slow
@by_target
@by_op
def test_every_type_agrees_on_every_level(row: OpDecl, target: Target) -> None:
    check(row, kernel_cases(row, dynamic=False, every_type=True), target)


@pytest.mark.slow
@by_target
@by_op
def test_symbolic_sizes_agree_on_every_level(row: OpDecl, target: Target) -> None:
    check(row, kernel_cases(row, dynamic=True, every_type=True), target)
