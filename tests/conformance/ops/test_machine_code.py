"""Declared cases of every op as machine code, with lanes wherever they may be, against its oracle.

The kernels that schedules make are tested in `conformance/native`.
"""

from __future__ import annotations

import numpy as np
import pytest

from conformance.ops.test_cases import agree, node_of
from fakes.native_kernel import NativeKernel, guarded, needs_x86
from tilewright.base import dtypes, symbolic
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.ir import Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.independence import is_independent
from tilewright.compiler.kernel.ir import For, Kernel, LoopKind, Statement, walk
from tilewright.compiler.kernel.rewrite import map_body, with_body
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build
from tilewright.compiler.lowering.promote_scratch import promote_scratch
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.builder import make_node
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


@pytest.mark.sampled(3)
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


@pytest.mark.slow
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


N = symbol("N", 0)
ROWS, ONE_EACH, PAIR, TWO = (N, 3), (1, 3), (2, 1), (2, 3)
# Operands and attributes of ops that pick places on an axis of size N.
PICKS = {
    "gather": ([ROWS, (2,)], {}),
    "gather_elements": ([ROWS, ONE_EACH], {}),
    "gather_nd": ([ROWS, PAIR], {}),
    "scatter_elements": ([ROWS, ONE_EACH, ONE_EACH], {}),
    "scatter_nd": ([ROWS, PAIR, TWO], {}),
    "pool_samples": ([(N, 2, 2, 3), (1,), (1, 2, 1), (1, 2, 1)], {}),
    "top_k": ([ROWS], {"k": (2,), "axis": 0}),
    "max_unpool": ([(1, 3), (1, 3)], {"shape": (N, 3)}),
}
INDEX = {"gather": 1, "gather_elements": 1, "gather_nd": 1, "scatter_elements": 1,
         "scatter_nd": 1, "pool_samples": 1, "max_unpool": 1}  # fmt: skip


def placed(shape: tuple[int, ...], dtype: np.dtype, value: int) -> np.ndarray:
    """An array in the middle of one that is filled with sevens."""
    around = np.full(512 + int(np.prod(shape)), 7, dtype)
    inner = around[256 : around.size - 256]
    inner[:] = value
    return inner.reshape(shape) if inner.size else around[256:]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", PICKS)
def test_an_axis_without_elements_gives_and_takes_nothing(name: str):
    shapes, attributes = PICKS[name]
    types = [
        TensorType(dtypes.i64 if INDEX.get(name) == i else dtypes.f32, shape)
        for i, shape in enumerate(shapes)
    ]
    node = make_node(name, [Value(t, "") for t in types], attributes)
    kernel = promote_scratch(build_kernel(node, name))
    arrays: list[np.ndarray] = []
    for parameter in kernel.parameters:
        shape = tuple(symbolic.evaluate(d, {"N": 0}) for d in parameter.buffer.shape)
        dtype, is_input = parameter.buffer.dtype, len(arrays) < len(types)
        arrays.append(placed(shape, dtype.numpy, int(is_input and dtype is dtypes.f32)))
    NativeKernel(kernel)(arrays, {"N": 0})
    for value, array in zip(node.results, arrays[len(types) :], strict=False):
        if N in value.type.shape:
            assert (array.base == 7).all(), "written outside"
        else:
            assert not array.any(), "read outside"
