"""Binding a plan: what a call's dimensions decide is checked before anything runs."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from fakes.plans import dynamic_plan, static_plan
from tilewright.base import dtypes
from tilewright.base.errors import ArchiveError, InputError
from tilewright.base.symbolic import Dim, evaluate, floordiv, symbol
from tilewright.formats.plan import Dimension, Entry, HostCall, Plan, Step, Storage
from tilewright.runtime.loaders.executable_library import LoadedExecutable
from tilewright.runtime.plan_executor.binding import bind_plan
from tilewright.runtime.plan_executor.record_steps import Resources

N = symbol("N", 1)


def nothing(*_: object) -> list[np.ndarray]:
    raise AssertionError("binding runs nothing")


def bind(plan: Plan, *dims: int) -> object:
    return bind_plan(Resources(plan, None, (), None, nothing), dims)


def chain(sizes: list[Dim]) -> Plan:
    """x -> t0 -> t1 … -> y, all host steps, with transients of these sizes."""
    storages = [Storage("input", 4 * N)]
    storages += [
        Storage("transient", 4 * s, i, i + 1, name=f"t{i}") for i, s in enumerate(sizes)
    ]
    storages.append(Storage("output", 4 * N))
    entries = [Entry(0, dtypes.f32, (N,))]
    entries += [Entry(i + 1, dtypes.f32, (s,)) for i, s in enumerate(sizes)]
    entries.append(Entry(len(sizes) + 1, dtypes.f32, (N,)))
    steps = tuple(
        Step("host", f"s{i}", "op", (i, i + 1), 1, host=HostCall(1, (0,)))
        for i in range(len(sizes) + 1)
    )
    return Plan(
        "chain",
        (("x", 0),),
        (("y", len(entries) - 1),),
        (Dimension("N", 0, 0),),
        tuple(storages),
        tuple(entries),
        steps,
    )


def test_transients_share_an_arena_once_their_sizes_are_known() -> None:
    bound = bind(chain([N, 2 * N, N]), 100)
    assert bound.arena_bytes == 448 + 832  # 100 and 200 floats, rounded up to 64 bytes
    assert bind(chain([]), 100).arena_bytes == 0
    assert bound.output_types == ((dtypes.f32, (100,)),)
    assert bound.command_steps == (0, 1, 2, 3)


def test_a_call_that_makes_a_size_negative_is_refused() -> None:
    with pytest.raises(InputError, match=r"\(N - 5\) is -2 for N = 3"):
        bind(chain([N - 5]), 3)
    bind(chain([N - 5]), 5)  # a size of 0 is one


def test_a_size_that_divides_by_zero_is_an_error_of_the_call() -> None:
    with pytest.raises(InputError, match=r"divides by zero: .* for N = 3"):
        bind(chain([floordiv(100, N - 3)]), 3)


def test_sizes_beyond_any_memory_are_refused() -> None:
    huge: Dim = N
    for _ in range(12):
        huge = huge * N
    told = "^sizes are too large for this model: for N = 1048576$"
    with pytest.raises(InputError, match=told):
        bind(chain([huge]), 1 << 20)


def test_an_entry_that_grows_out_of_its_storage_is_refused() -> None:
    plan = chain([N])
    entries = list(plan.entries)
    entries[1] = Entry(1, dtypes.f32, (N,), 4 * (N - 2))
    with pytest.raises(ArchiveError, match="a tensor lies outside its storage"):
        bind(replace(plan, entries=tuple(entries)), 3)
    bind(replace(plan, entries=tuple(entries)), 2)


def test_a_plan_needs_the_kernels_it_names() -> None:
    with pytest.raises(ArchiveError, match="executable has no kernel 'add'"):
        bind_plan(Resources(static_plan(), None, (bytes(16),), None, None), ())


def dispatching(
    *constants: Dim, dims: tuple[Dimension, ...], grid: tuple[Dim, Dim, Dim] = (1, 1, 1)
) -> Resources:
    """x -> y by a kernel with these push constants and workgroups."""
    size = 4 * N if dims else 16
    shape = (N,) if dims else (4,)
    plan = Plan(
        "p",
        (("x", 0),),
        (("y", 1),),
        dims,
        (Storage("input", size), Storage("output", size)),
        (Entry(0, dtypes.f32, shape), Entry(1, dtypes.f32, shape)),
        (Step("dispatch", "d", "kernel", (0, 1), 1, grid=grid, dims=constants),),
    )
    export = SimpleNamespace(binding_count=2, constant_count=len(constants))
    executable = cast("LoadedExecutable", SimpleNamespace(exports={"kernel": export}))
    return Resources(plan, executable, (), None, None)


def test_a_size_that_no_kernel_can_be_told_is_refused() -> None:
    dynamic = dispatching(N, N * (1 << 24), dims=(Dimension("N", 0, 0),))
    with pytest.raises(InputError) as caught:
        bind_plan(dynamic, (256,))
    assert str(caught.value) == (
        "sizes are too large for this model: 4294967296 in kernel 'kernel' for N = 256, "
        "expected less than 4294967296"
    )
    with pytest.raises(ArchiveError, match=r"dimensions \(4, 4294967296\) do not fit 32"):
        bind_plan(dispatching(4, 1 << 32, dims=()), ())
    with pytest.raises(ArchiveError, match=r"dimensions \(-1,\) do not fit 32 bits"):
        bind_plan(dispatching(-1, dims=()), ())


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ((1, 2, 256 * N), "1 x 2 x 65536 workgroups"),
        ((N * (1 << 24), 1, 1), "4294967296 x 1 x 1 workgroups"),
        ((1, 255 - N, 1), "1 x -1 x 1 workgroups"),
        ((N * (1 << 23), N, 1), "2147483648 x 256 x 1 workgroups"),
    ],
)
def test_more_workgroups_than_kernels_count_are_refused(
    grid: tuple[Dim, Dim, Dim], told: str
) -> None:
    named = f"{told} in kernel 'kernel'"
    dynamic = dispatching(dims=(Dimension("N", 0, 0),), grid=grid)
    with pytest.raises(
        InputError, match=f"^sizes are too large.* {named} for N = 256, exp"
    ):
        bind_plan(dynamic, (256,))
    known = tuple(d if isinstance(d, int) else evaluate(d, {"N": 256}) for d in grid)
    with pytest.raises(ArchiveError, match=f"^plan: {named}, expected at most"):
        bind_plan(dispatching(dims=(), grid=cast("tuple[int, int, int]", known)), ())


def test_a_plan_with_host_steps_needs_their_functions() -> None:
    plan = dynamic_plan()
    only_host = replace(plan, steps=(replace(plan.steps[1], arguments=(0, 3, 2)),))
    with pytest.raises(ArchiveError) as caught:
        bind_plan(Resources(only_host, None, (), None, None), (2,))
    assert str(caught.value) == (
        "plan: step 'resize' needs the reference implementation of 'resize'\n"
        "hint: load the artifact with tilewright.load, which brings them"
    )
