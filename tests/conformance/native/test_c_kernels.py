"""Declared cases of every op as C that the system's compiler makes code of, against the op's own oracle.

Scheduled as for machine code, on guarded and poisoned memory.  The default run takes ops of every kind of loop;
`slow` takes all of them.
"""

from __future__ import annotations

import pytest

from conformance.native.declared_cases import kernel_cases
from conformance.native.test_scheduled_kernels import check
from fakes.c_kernel import load_c, needs_cc
from fakes.native_kernel import needs_x86, targets_apart
from tilewright.base.target import Target
from tilewright.compiler.ops import catalogue
from tilewright.compiler.ops.declaration import OpDecl

pytestmark = [needs_cc, needs_x86]
FEW = ("add", "matmul", "softmax", "transpose", "gather", "max_pool")
ROWS = [row for row in catalogue.all_ops() if row.cases and row.body is not None]


@pytest.mark.sampled(29)
@pytest.mark.thinned(7)
@pytest.mark.parametrize("target", targets_apart()[-1:], ids=lambda t: t.cpu)
@pytest.mark.parametrize(
    "row",
    [
        pytest.param(row, marks=[] if row.name in FEW else [pytest.mark.slow])
        for row in ROWS
    ],
    ids=lambda row: row.name,
)
def test_c_agrees_with_the_oracle(row: OpDecl, target: Target) -> None:
    check(row, kernel_cases(row, dynamic=False, every_type=False), target, load=load_c)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["add", "matmul", "conv", "softmax", "gather", "resize"])
def test_c_for_symbolic_sizes_agrees_with_the_oracle(name: str) -> None:
    row = next(row for row in ROWS if row.name == name)
    found = kernel_cases(row, dynamic=True, every_type=False)[::4]
    check(row, found, Target.level("v3"), load=load_c)
