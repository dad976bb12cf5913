"""Steps that call packed functions: found by symbol, given tensors, errors with the place in the model."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from fakes.plans import calling_plan
from tilewright.base.errors import ArchiveError, InputError
from tilewright.runtime.plan_executor import PlanExecutor

W = np.array([2, 3, 5], np.float32)


def scale(x: Any, w: Any, y: Any) -> None:
    np.from_dlpack(y)[...] = np.multiply(
        *(cast("Any", np.from_dlpack(one)) for one in (x, w))
    )


def executor_of(function: Any, plan: Any = None) -> PlanExecutor:
    def find(symbol: str) -> Any:
        return function if symbol == "ext.scale" else None

    return PlanExecutor(plan or calling_plan(), None, (W,), find_function=find)


@pytest.mark.parametrize("rows", [1, 4, 1000])
def test_a_function_gets_operands_and_writes_results(rows: int) -> None:
    x = np.random.default_rng(0).random((rows, 3), np.float32)
    (y,) = executor_of(scale)(x)
    np.testing.assert_array_equal(y, x * W)


def test_inputs_that_lie_in_another_order_arrive_in_order() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T
    (y,) = executor_of(scale)(x)
    np.testing.assert_array_equal(y, x * W)


def test_the_function_is_looked_up_once_per_set_of_sizes() -> None:
    found: list[str] = []
    plan = calling_plan()
    executor = PlanExecutor(
        plan, None, (W,), find_function=lambda name: found.append(name) or scale
    )
    for rows in (2, 2, 2, 3, 2):
        executor(np.zeros((rows, 3), np.float32))
    assert found == ["ext.scale"] * 2


def test_a_symbol_that_no_module_has_is_named() -> None:
    plan = calling_plan()
    other = replace(plan, steps=(replace(plan.steps[0], target="ext.other"),))
    for executor in (executor_of(scale, other), PlanExecutor(plan, None, (W,))):
        with pytest.raises(ArchiveError, match=r"needs the function 'ext\.(other|scale)'"):
            executor(np.zeros((1, 3), np.float32))


def test_errors_of_the_function_say_where() -> None:
    def fail(*_: Any) -> None:
        raise InputError("too hot")

    with pytest.raises(InputError) as caught:
        executor_of(fail)(np.zeros((1, 3), np.float32))
    assert str(caught.value) == "'scale_1': function 'ext.scale': too hot"

    def divide(*_: Any) -> None:
        raise ZeroDivisionError("by nothing")

    with pytest.raises(ZeroDivisionError, match="by nothing") as other:
        executor_of(divide)(np.zeros((1, 3), np.float32))
    assert other.value.__notes__ == ["in 'scale_1': function 'ext.scale'"]


def test_calls_from_several_threads_do_not_mix() -> None:
    executor = executor_of(scale)
    wrong: list[int] = []

    def work(seed: int) -> None:
        x = np.full((5, 3), seed, np.float32)
        for _ in range(100):
            (y,) = executor(x)
            if not np.array_equal(y, x * W):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_profile_has_the_time_of_a_call() -> None:
    rows = executor_of(scale).profile([np.zeros((5, 3), np.float32)])
    assert [step.kind for step, _ in rows] == ["call"]
