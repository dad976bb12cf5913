"""Schedules of users: applied step by step, kept as traces, refused with kernel and primitive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.dtypes import f32, f64
from tilewright.base.errors import ScheduleError, UserError
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.schema import TensorType
from tilewright.compiler.kernel.ir import Kernel
from tilewright.compiler.ops.builder import GraphBuilder
from tilewright.compiler.schedule.trace import PRIMITIVES, Primitive

X = np.random.default_rng(0).random((20, 40), np.float32)


def graph() -> Graph:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (20, 40)))
    b.output("y", b.add(b.mul(x, x), x))
    b.output("s", b.reduce_sum(x, axes=(1,)))
    return b.graph


def lanes(kernel: Any) -> None:
    kernel.inline("mul")
    kernel.split(kernel.loops[-1], 8, into=["o", "lane"])
    kernel.vectorize("lane")


def compiled(schedules: Any) -> tw.Model:
    return tw.compile(graph(), schedules=schedules, cache=False, threads=1, jobs=1)


def outcomes(model: tw.Model) -> dict[str, str]:
    return {kernel.name: str(kernel.outcome) for kernel in model.kernels}


def test_a_function_schedules_the_kernels_that_it_is_for() -> None:
    model = compiled({"mul_*": lanes})
    assert outcomes(model)["mul_add_0"] == "user schedule"
    assert list(outcomes(model).values()).count("user schedule") == 1
    (kernel,) = (k for k in model.kernels if k.outcome == "user schedule")
    assert "# vector" in kernel.kernel_ir
    assert kernel.notes[-1].startswith("outcome: user schedule, about ")
    y, s = model(X)
    np.testing.assert_allclose(y, X * X + X, rtol=1e-6)
    np.testing.assert_allclose(s, X.sum(1, keepdims=True), rtol=1e-5)


def test_the_first_pattern_that_fits_counts() -> None:
    model = compiled({"mul_add_?": [], "*": lambda kernel: None, "mul_*": lanes})
    assert set(outcomes(model).values()) == {"user schedule"}
    (kernel,) = (k for k in model.kernels if k.name == "mul_add_0")
    assert "# vector" not in kernel.kernel_ir
    np.testing.assert_allclose(model(X)[0], X * X + X, rtol=1e-6)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("[" * 100_000, "kernel 'mul_add_0': a trace is not JSON"),
        ([("split", {"loop": object()})], "kernel 'mul_add_0': a trace cannot be JSON"),
        (
            lambda k: k.split("i0", 2.5),
            "kernel 'mul_add_0': primitive 'split': 'factor' of",
        ),
        (lambda k: k.split("z", 2), "kernel 'mul_add_0': primitive 'split': no loop 'z'"),
        (lambda k: k.split(), "primitive 'split': missing a required argument"),
        (lambda k: k.fly(), "kernel 'mul_add_0': there is no primitive 'fly'"),
        ([("split", {"loop": "z", "factor": 2})], "kernel 'mul_add_0': step 0, 'split'"),
        (["split"], "a step of a trace is"),
        ("nonsense", "a trace is not JSON"),
        (lambda k: k.unroll_everything, "there is no primitive 'unroll_everything'"),
    ],
)
def test_an_error_names_kernel_and_primitive(spec: Any, text: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        compiled({"mul_*": spec})
    assert text in str(caught.value)


def test_a_schedule_may_not_ask_for_what_no_code_generator_can_do() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (100_000,)))
    b.output("y", b.neg(x))
    for step in ("vectorize", "unroll"):
        with pytest.raises(ScheduleError, match=r"loop 'i0' of 100000 is marked .*at most"):
            tw.compile(b.graph, schedules={"*": [(step, {"loop": "i0"})]}, cache=False)


def test_loops_inside_each_other_make_no_more_copies_than_one_may() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (64, 80)))
    b.output("y", b.neg(x))
    steps = [("unroll", {"loop": "i0"}), ("unroll", {"loop": "i1"})]
    with pytest.raises(ScheduleError, match="5120 copies of what is in them, expected at"):
        tw.compile(b.graph, schedules={"*": steps}, cache=False)


@pytest.mark.parametrize("scope", ["register", "workgroup"])
def test_temporaries_of_open_sizes_stay_in_device_memory(scope: str) -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (symbol("n", 0), 4)))
    b.output("y", b.neg(b.mul(x, x)))
    steps = [("set_scope", {"buffer": "mul", "scope": scope})]
    with pytest.raises(
        ScheduleError,
        match=rf"'mul' has the shape .*n.*constant sizes in the scope '{scope}'",
    ):
        tw.compile(b.graph, schedules={"*": steps}, cache=False)


def test_temporaries_in_registers_fit_the_stack() -> None:
    b = GraphBuilder()
    x = b.input("x", TensorType(f32, (91, 91)))
    b.output("y", b.neg(b.mul(x, x)))
    steps = [("set_scope", {"buffer": "mul", "scope": "register"})]
    with pytest.raises(
        ScheduleError, match="loops go through have 33124 bytes, expected at most"
    ):
        tw.compile(b.graph, schedules={"*": steps}, cache=False)


@pytest.mark.slow
def test_temporaries_that_become_registers_are_not_on_the_stack() -> None:
    def written_out(s: Any) -> None:
        rows, columns, *again = s.loops
        s.set_scope("mul", "register")
        for row, column in ((rows, columns), again):
            outer, lane = s.split(column, 16)
            s.vectorize(lane)
            s.unroll(outer)
            s.unroll(row)

    b = GraphBuilder()
    x = b.input("x", TensorType(f64, (65, 64)))
    b.output("y", b.neg(b.mul(x, x)))
    model = tw.compile(b.graph, schedules={"*": written_out}, cache=False)
    numbers = np.random.default_rng(0).random((65, 64))
    np.testing.assert_array_equal(model(numbers), -(numbers * numbers))


def test_a_primitive_that_breaks_a_kernel_is_found_before_code_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ruin(kernel: Kernel) -> Kernel:
        return replace(kernel, locals=())

    monkeypatch.setitem(PRIMITIVES, "ruin", Primitive(ruin))
    with pytest.raises(ScheduleError, match="user schedule of kernel 'mul_add_0'"):
        compiled({"mul_*": [("ruin", {})]})


def test_a_step_that_does_not_apply_leaves_the_kernel_as_it_was() -> None:
    def mine(kernel: Any) -> None:
        kernel.bind("i0", "x")
        with pytest.raises(
            ScheduleError, match=r"primitive 'partition': 'i0' is made of workgroups"
        ):
            kernel.partition("i0", 4)
        kernel.split("r0", 8)

    model = compiled({"reduce_sum": mine})
    assert outcomes(model)["reduce_sum"] == "user schedule"
    np.testing.assert_allclose(model(X)[1], X.sum(1, keepdims=True), rtol=1e-5)


def test_errors_of_the_function_itself_say_where_they_come_from() -> None:
    def broken(kernel: Any) -> None:
        raise ZeroDivisionError("oops")

    with pytest.raises(ZeroDivisionError) as caught:
        compiled({"mul_*": broken})
    assert caught.value.__notes__ == ["in the user schedule of kernel 'mul_add_0'"]


@pytest.mark.parametrize("schedules", [[], "x", {"a": 3}, {3: []}])
def test_what_is_no_table_of_schedules_is_refused(schedules: Any) -> None:
    with pytest.raises(UserError, match="schedules"):
        compiled(schedules)


def test_a_pattern_without_kernel_lists_the_kernels() -> None:
    with pytest.raises(UserError, match="no kernel is called 'conv_\\*'") as caught:
        compiled({"conv_*": lanes})
    assert "mul_add_0" in (caught.value.hint or "")


def test_a_schedule_is_part_of_the_key_of_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    assert CompilationCache.default() is not None

    def run(schedules: Any) -> list[bool]:
        model = tw.compile(graph(), schedules=schedules, threads=1, jobs=1)
        np.testing.assert_allclose(model(X)[0], X * X + X, rtol=1e-6)
        records = model.compiled.kernels[0]
        return [not r.compiled.seconds for r in records if r.name == "mul_add_0"]

    assert run({}) == [False]
    assert run({}) == [True]
    assert run({"mul_*": lanes}) == [False]
    assert run({"mul_*": lanes}) == [True]
    assert run({"mul_add_0": lanes}) == [True]  # the same steps under another pattern


def test_the_kernel_in_hand_can_be_looked_at() -> None:
    seen: list[Any] = []

    def look(kernel: Any) -> None:
        seen.extend((kernel.name, kernel.loops, kernel.buffers, "split" in dir(kernel)))
        kernel.inline("mul")
        seen.append(kernel.trace)
        assert "for i0" in str(kernel)
        assert str(kernel).startswith("kernel mul_add_0(")

    compiled({"mul_add_0": look})
    assert seen == [
        "mul_add_0",
        ("i0", "i1", "i0_2", "i1_2"),
        ("in0", "out0", "mul"),
        True,
        (("inline", {"buffer": "mul"}),),
    ]
