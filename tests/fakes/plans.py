"""Plans made by hand: small, valid, and together using every field."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.base import dtypes
from tilewright.base.outcome import Outcome
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import (
    Dimension,
    Entry,
    HostCall,
    IndexCheck,
    Plan,
    SizeRange,
    Step,
    Storage,
)

N = symbol("N", 2)


def static_plan() -> Plan:
    """x f32[4], constant w f32[4] -> add into the arena, copy out; one tensor reused as a view."""
    return Plan(
        name="static",
        inputs=(("x", 0),),
        outputs=(("y", 3),),
        dims=(),
        storages=(
            Storage("input", 16, 0, 0, -1, "x"),
            Storage("constant", 16, 0, 0, 0, "w"),
            Storage("transient", 16, 0, 1, 0, "sum"),
            Storage("output", 16, 2, 2, -1, "y"),
            Storage("transient", 32, 1, 2, 64, "wide"),
        ),
        entries=(
            Entry(0, dtypes.f32, (4,)),
            Entry(1, dtypes.f32, (4,)),
            Entry(2, dtypes.f32, (4,)),
            Entry(3, dtypes.f32, (2, 2)),
            Entry(2, dtypes.f32, (2, 2)),
            Entry(4, dtypes.f32, (2, 4)),
            Entry(4, dtypes.f32, (2, 2), 16),
        ),
        steps=(
            Step(
                "dispatch",
                "add",
                "add",
                (0, 1, 2),
                1,
                (2, 1, 1),
                flops=4,
                outcome=Outcome.POINTWISE,
            ),
            Step(
                "dispatch",
                "widen",
                "widen",
                (4, 5),
                1,
                (1, 3, 1),
                barrier=False,
                outcome=Outcome.ROWS,
            ),
            Step("copy", "copy", "", (6, 3), 1),
        ),
        arena_bytes=128,
    )


def checking_plan() -> Plan:
    """The static plan, whose kernels look at one index, with the record of what they found."""
    plan = static_plan()
    return replace(
        plan,
        storages=(*plan.storages, Storage("transient", 64, 0, 2, 128, "checks")),
        arena_bytes=192,
        checks=(IndexCheck("model.onnx: node 'gather'", 0, 4, -4, 3),),
        check_storage=5,
    )


def calling_plan() -> Plan:
    """x f32[N, 3], constant w f32[3] -> function `ext.scale` of another module -> y f32[N, 3]."""
    return Plan(
        name="calling",
        inputs=(("x", 0),),
        outputs=(("y", 2),),
        dims=(Dimension("N", 0, 0, 1),),
        storages=(
            Storage("input", 12 * N, name="x"),
            Storage("constant", 12, 0, 0, 0, "w"),
            Storage("output", 12 * N, name="y"),
        ),
        entries=(
            Entry(0, dtypes.f32, (N, 3)),
            Entry(1, dtypes.f32, (3,)),
            Entry(2, dtypes.f32, (N, 3)),
        ),
        steps=(
            Step(
                "call", "scale", "ext.scale", (0, 1, 2), 1,
                outcome=Outcome.CALL, nodes=("scale_1",),
            ),
        ),
    )  # fmt: skip


def dynamic_plan() -> Plan:
    """x f32[N, 3] -> doubled into scratch by a kernel, then a host op with every attribute kind."""
    attributes: dict[str, object] = {
        "axis": -1,
        "keepdims": True,
        "limit": float("inf"),
        "mode": "edge",
        "missing": None,
        "shape": (N, 3, 2 * N + 1),
        "to": dtypes.bf16,
        "table": np.arange(6, dtype=np.int64).reshape(2, 3),
    }
    return Plan(
        name="dynamic",
        inputs=(("x", 0), ("scale", 3)),
        outputs=(("y", 2),),
        dims=(Dimension("N", 0, 0, 2),),
        storages=(
            Storage("input", 12 * N, name="x"),
            Storage("transient", 12 * N, 0, 1, -1, "doubled"),
            Storage("output", 6 * N, name="y"),
            Storage("input", 4, name="scale"),
        ),
        entries=(
            Entry(0, dtypes.f32, (N, 3)),
            Entry(1, dtypes.f32, (N, 3)),
            Entry(2, dtypes.bf16, (N, 3)),
            Entry(3, dtypes.f32, ()),
        ),
        steps=(
            Step(
                "dispatch", "double", "double", (0, 1), 1, ((N + 1) // 2, 1, 1), (N,),
                flops=3 * N,
            ),
            Step(
                "host", "resize", "resize", (1, 3, 2), 1,
                host=HostCall(4, (0, 2), attributes),
            ),
        ),
    )  # fmt: skip


def flow_plan() -> Plan:
    """y = x[i], or where the call says no, the first row: a row, two branches, and no kernel."""
    storages = (
        Storage("input", 24),
        Storage("input", 8),
        Storage("input", 1),
        Storage("output", 8),
        Storage("row", 8, name="picked"),
    )
    entries = (
        Entry(0, dtypes.f32, (3, 2)),
        Entry(1, dtypes.i64, ()),
        Entry(2, dtypes.bool_, ()),
        Entry(3, dtypes.f32, (2,)),
        Entry(4, dtypes.f32, (2,)),
        Entry(0, dtypes.f32, (2,)),
    )
    steps = (
        Step("row", "row", "", (1, 0, 4), 1),
        Step("branch", "branch", "", (2,), 0, goto=4),
        Step("copy", "copy", "", (4, 3), 1),
        Step("jump", "jump", "", (), 0, goto=6),
        Step("label", "else", "", (), 0),
        Step("copy", "copy", "", (5, 3), 1),
        Step("label", "end", "", (), 0),
    )
    inputs = (("x", 0), ("i", 1), ("b", 2))
    return Plan("flow", inputs, (("y", 3),), (), storages, entries, steps, arena_bytes=0)


K = symbol("K", 0)


def block_plan() -> Plan:
    """The first row of x where the call says so, else all three: a size, and memory, that each branch hands over."""
    storages = (
        Storage("input", 24),
        Storage("input", 1),
        Storage("output", 8 * K),
        Storage("block", 8, name="one"),
        Storage("block", 24, name="all"),
        Storage("block", 8 * K, name="rows"),
    )
    entries = (
        Entry(0, dtypes.f32, (3, 2)),
        Entry(1, dtypes.bool_, ()),
        Entry(2, dtypes.f32, (K, 2)),
        Entry(3, dtypes.f32, (1, 2)),
        Entry(4, dtypes.f32, (3, 2)),
        Entry(5, dtypes.f32, (K, 2)),
        Entry(0, dtypes.f32, (1, 2)),
    )
    size = (SizeRange("K", 0, 3),)
    steps = (
        Step("branch", "branch", "", (1,), 0, goto=5),
        Step("allocate", "allocate", "", (3,), 1),
        Step("copy", "copy", "", (6, 3), 1),
        Step("rebind", "rebind", "", (3, 5), 1, dims=(1,), sizes=size),
        Step("jump", "jump", "", (), 0, goto=9),
        Step("label", "else", "", (), 0),
        Step("allocate", "allocate", "", (4,), 1),
        Step("copy", "copy", "", (0, 4), 1),
        Step("rebind", "rebind", "", (4, 5), 1, dims=(3,), sizes=size),
        Step("label", "end", "", (), 0),
        Step("copy", "copy", "", (5, 2), 1),
    )
    inputs = (("x", 0), ("b", 1))
    return Plan("blocks", inputs, (("y", 2),), (), storages, entries, steps)
