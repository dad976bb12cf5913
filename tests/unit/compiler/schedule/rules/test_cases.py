"""What the rules make of every op computes what the naive kernel computes."""

from __future__ import annotations

import numpy as np
import pytest

from fakes.loop_nests import body_text
from tilewright.base import dtypes
from tilewright.base.errors import ModelError
from tilewright.base.target import Target
from tilewright.compiler.graph.ir import Node, Value
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.evaluator import evaluate
from tilewright.compiler.kernel.verifier import verify
from tilewright.compiler.lowering.build_kernel import build_kernel, can_build
from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.builder import make_node
from tilewright.compiler.ops.declaration import OpDecl, type_of
from tilewright.compiler.schedule.machine_model import MachineModel
from tilewright.compiler.schedule.rules import schedule

ROWS = [r for r in catalogue.all_ops() if r.cases]
V3, V4 = (MachineModel.of(Target.level(name)) for name in ("v3", "v4"))


def node_of(case: cases.Case, *, dynamic: bool = False) -> Node:
    operands = [
        None
        if a is None
        else Value(
            TensorType(type_of(a).dtype, cases.symbolic_shape(a.shape))
            if dynamic
            else type_of(a),
            "",
        )
        for a in case.operands
    ]
    return make_node(case.op, operands, case.attributes)


def assert_schedule_agrees(
    case: cases.Case, machine: MachineModel, *, dynamic: bool
) -> None:
    try:
        node = node_of(case, dynamic=dynamic)
    except ModelError:
        assert dynamic, case  # the op needs a number where the case has a symbol
        return
    if not can_build(node):
        return
    naive = build_kernel(node, case.op)
    scheduled = schedule(naive, machine, threads=2)
    verify(scheduled)
    arrays = [a for a in case.operands if a is not None]
    dims = {f"D{n}": n for a in arrays for n in a.shape if n > 1} if dynamic else {}
    expected = catalogue.lookup(case.op).schema.evaluate(case.operands, case.attributes)
    wanted, got = ([np.zeros(a.shape, a.dtype) for a in expected] for _ in range(2))
    evaluate(naive, [*arrays, *wanted], dims)
    evaluate(scheduled, [*arrays, *got], dims)
    for a, b in zip(got, wanted, strict=True):
        context = f"{case} for {machine}\n{body_text(scheduled)}"
        if not dtypes.from_numpy(a.dtype).is_float:
            np.testing.assert_array_equal(a, b, err_msg=context)
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        floor = float(np.abs(y[np.isfinite(y)]).max(initial=0))
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6 * floor, err_msg=context)


def of_floats(row: OpDecl) -> list[cases.Case]:
    """One case per text: with f32 where the op takes it."""
    found: dict[str, cases.Case] = {}
    for case in cases.instances(row):
        if case.text not in found or case.dtype.startswith("f32"):
            found[case.text] = case
    return [c for c in found.values() if not c.dtype.startswith(("f16", "bf16"))]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_every_op_computes_the_same_after_scheduling(row: OpDecl) -> None:
    for case in of_floats(row)[:3]:
        assert_schedule_agrees(case, V4, dynamic=False)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("machine", [V3, V4], ids=["v3", "v4"])
@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_every_case_computes_the_same_after_scheduling(
    row: OpDecl, machine: MachineModel
) -> None:
    for case in of_floats(row):
        assert_schedule_agrees(case, machine, dynamic=False)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "row", [r for r in ROWS if r.schema.operands], ids=lambda r: r.name
)
def test_every_op_computes_the_same_with_dynamic_dimensions(row: OpDecl) -> None:
    for case in of_floats(row)[:1]:
        assert_schedule_agrees(case, V4, dynamic=True)
