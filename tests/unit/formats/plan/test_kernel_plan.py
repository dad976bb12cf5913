"""Plans of one kernel, made of the plan of a model."""

from __future__ import annotations

from tilewright.base import dtypes
from tilewright.base.symbolic import Dim, symbol
from tilewright.formats.plan import Dimension, Entry, Plan, Step, Storage
from tilewright.formats.plan.kernel_plan import kernel_plans

N, M = symbol("n"), symbol("m")


def plan_of(
    shapes: list[tuple[Dim, ...]], *, grid: Dim = 1, constants: tuple[Dim, ...] = ()
):
    """A plan whose one kernel reads all tensors but the last, which it writes."""
    entries = tuple(Entry(i, dtypes.f32, shape) for i, shape in enumerate(shapes))
    last = len(entries) - 1
    kinds = ["input", *["constant"] * (last - 1), "output"]
    return Plan(
        name="net",
        inputs=(("x", 0),),
        outputs=(("y", last),),
        dims=(Dimension("n", 0, 0, minimum=2, maximum=9),),
        storages=tuple(
            Storage(kind, entry.size_bytes, name=f"s{i}")
            for i, (kind, entry) in enumerate(zip(kinds, entries, strict=True))
        ),
        entries=entries,
        steps=(
            Step(
                "dispatch", "node", "k", tuple(range(len(entries))), 1, (grid, 1, 1), constants
            ),
        ),
    )  # fmt: skip


def test_its_tensors_are_operands_then_results_named_by_place_and_by_the_model() -> None:
    alone = kernel_plans(plan_of([(3,), (4,), (5,)]))["k"]
    assert [name for name, _ in alone.inputs] == ["0: x", "1: s1"]
    assert [name for name, _ in alone.outputs] == ["2: y"]
    assert [s.kind for s in alone.storages] == ["input", "input", "output"]
    assert [e.shape for e in alone.entries] == [(3,), (4,), (5,)]
    assert alone.steps[0].target == alone.name == "k"


def test_sizes_are_told_by_the_first_tensor_that_has_them_alone_with_the_limits_of_the_model() -> (
    None
):
    alone = kernel_plans(plan_of([(N * 2, 3), (4, N), (N, M)], grid=N + M, constants=(N,)))
    assert alone["k"].dims == (
        Dimension("n", 1, 1, minimum=2, maximum=9),
        Dimension("m", 2, 1),
    )


def test_a_kernel_whose_tensors_do_not_tell_a_size_is_left_out() -> None:
    assert not kernel_plans(plan_of([(N * 2,), (3,)]))
    assert not kernel_plans(plan_of([(3,), (3,)], grid=N))
    assert not kernel_plans(plan_of([(3,), (3,)], constants=(N,)))


def test_the_first_step_of_a_kernel_says_how_it_runs() -> None:
    plan = plan_of([(3,), (3,)])
    again = Step("dispatch", "other", "k", (0, 1), 1, (7, 1, 1))
    both = Plan(
        plan.name, plan.inputs, plan.outputs, (), plan.storages, plan.entries, (*plan.steps, again)
    )  # fmt: skip
    assert kernel_plans(both)["k"].steps[0].grid == (1, 1, 1)
