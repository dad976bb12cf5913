"""Programs as plans: nothing changes but identities, which become indices."""

from __future__ import annotations

import numpy as np

from fakes.programs import planned
from tilewright.base import dtypes
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.program.emit_plan import emit_plan
from tilewright.formats.plan import Dimension, Entry, HostCall, verify_plan


def test_a_plan_lists_what_the_program_holds() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (2, 3)))
    y = b.transpose(b.relu(x), perm=(1, 0))
    b.output(
        "y", b.add(b.reshape(y, shape=(6,)), b.constant(np.arange(6, dtype=np.float32)))
    )
    plan = emit_plan(planned(b.graph))
    verify_plan(plan)
    assert plan.inputs == (("x", 0),)
    assert [s.kind for s in plan.storages] == [
        "input",
        "output",
        "transient",
        "transient",
        "constant",
    ]
    assert [s.target for s in plan.steps] == ["relu", "transpose", "add"]
    assert plan.entries[0] == Entry(0, dtypes.f32, (2, 3))
    assert plan.outputs[0][0] == "y"
    assert plan.is_static
    assert plan.arena_bytes == 128
    lifetimes = [(s.first, s.last) for s in plan.storages if s.kind == "transient"]
    assert lifetimes == [(0, 1), (1, 2)]


def test_equal_views_are_one_entry() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (2, 3)))
    for name in ("a", "b"):
        b.output(name, b.neg(b.reshape(x, shape=(6,))))
    plan = emit_plan(planned(b.graph))
    assert len(plan.entries) == 4
    assert plan.steps[0].arguments[0] == plan.steps[1].arguments[0]


def test_host_calls_carry_their_attributes_and_absent_operands() -> None:
    n = symbol("n", 1)
    b = GraphBuilder()
    x = b.input("x", TensorType(dtypes.f32, (n, 3, 1)))
    parts = b.op("dft", [x], {"axis": 1})
    b.output("v", b.neg(parts))
    plan = emit_plan(planned(b.graph))
    verify_plan(plan)
    step, _ = plan.steps
    assert (step.kind, step.target, step.result_count) == ("host", "dft", 1)
    assert isinstance(step.host, HostCall)
    assert step.host.present == (0,)
    assert step.host.operand_count == 1
    assert step.host.attributes["axis"] == 1
    assert plan.dims == (Dimension("n", 0, 0, 1),)
    assert plan.arena_bytes == -1
