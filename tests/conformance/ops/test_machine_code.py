"""Declared cases of every op as machine code, with lanes wherever they may be, against its oracle.

The kernels that schedules make are tested in `conformance/native`.
"""

from __future__ import annotations

import numpy as np
import pytest

from conformance.ops.test_cases import agree, node_of
from fakes.native_kernel import NativeKernel, guarded, needs_x86
from tilewright.base import dtypes
from tilewright.compiler.kernel.independence import is_independent
from tilewright.compiler.kernel.ir import For, Kernel, LoopKind, Statement, walk
from tilewright.compiler.kernel.rewrite import map_body, with_body
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build
from tilewright.compiler.lowering.promote_scratch import promote_scratch
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.declaration import OpDecl

pytestmark = needs_x86

MAX_LANES = 64


def with_lanes(kernel: Kernel) -> Kernel:
    """Every innermost loop that may become lanes, made to."""

    def visit(statement: Statement) -> Statement:
        if not isinstance(statement, For) or not isinstance(statement.extent, int):
            return statement
        innermost = not any(isinstance(s, For) for s in walk(statement.body))
        parallel = statement.reduction or is_independent(statement)
        if not (innermost and parallel and statement.extent <= MAX_LANES):
            return statement
        return For(
            statement.var, statement.extent, statement.body, LoopKind.VECTOR,
            statement.reduction,
        )  # fmt: skip

    return with_body(kernel, map_body(kernel.body, statement=visit))


def chosen(row: OpDecl):
    """One instance per case text: in f32 where there is one."""
    found: dict[str, cases.Case] = {}
    for case in cases.instances(row):
        old = found.get(case.text)
        is_f32 = any(a is not None and a.dtype == np.float32 for a in case.operands)
        if old is None or is_f32:
            found[case.text] = case
    return found.values()


@pytest.mark.parametrize(
    "row", [r for r in catalogue.all_ops() if r.body is not None], ids=lambda r: r.name
)
def test_the_machine_code_of_a_case_agrees_with_the_oracle(row: OpDecl):
    run = 0
    for case in chosen(row):
        node = node_of(case)
        if not can_build(node):
            continue
        run += 1
        kernel = promote_scratch(with_lanes(build_kernel(node, row.name)))
        expected = row.schema.evaluate(case.operands, case.attributes)
        inputs = [a for a in case.operands if a is not None]
        scratch = kernel.parameters[len(inputs) + len(expected) :]
        arrays = [guarded(a) for a in inputs]
        arrays += [guarded(np.zeros_like(a)) for a in expected]
        arrays += [guarded(np.zeros(p.buffer.shape, p.buffer.dtype.numpy)) for p in scratch]
        NativeKernel(kernel)(arrays)
        for actual, wanted in zip(arrays[len(inputs) :], expected, strict=False):
            agree(actual, wanted, str(case))
    assert run, f"no case of '{row.name}' has a kernel"


def test_every_type_of_a_cast_and_a_sum_agrees_as_machine_code():
    for name in ("cast", "add"):
        row = catalogue.lookup(name)
        seen: set[tuple[object, ...]] = set()
        for case in cases.instances(row):
            node = node_of(case)
            key = (node.operands[0].type.dtype, node.results[0].type.dtype)
            if key in seen or not can_build(node):
                continue
            seen.add(key)
            kernel = with_lanes(build_kernel(node, name))
            (expected,) = row.schema.evaluate(case.operands, case.attributes)
            arrays = [guarded(a) for a in (*case.operands, np.zeros_like(expected))]
            NativeKernel(kernel)(arrays)
            agree(arrays[-1], expected, str(case))
        assert len(seen) >= len(dtypes.NUMERIC)
