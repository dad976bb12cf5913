import time

import pytest

from tilewright.base.errors import UserError
from tilewright.runtime.packed.time_evaluator import BenchmarkResult, TimeEvaluator


class Counted:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def __call__(self, *arguments: object) -> None:
        self.calls.append(arguments)


def test_one_call_is_not_counted_and_then_each_repeat_has_its_calls() -> None:
    function = Counted()
    result = TimeEvaluator(function, number=3, repeat=4)("x", 2)
    assert function.calls == [("x", 2)] * (1 + 3 * 4)
    assert len(result.results) == 4


def test_a_result_is_the_mean_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [0]
    lengths_ns = iter(
        (70, 1000, 2000, 3000, 4000, 5000, 6000)
    )  # the first call is not counted

    def call() -> None:
        now_ns[0] += next(lengths_ns)

    monkeypatch.setattr(time, "perf_counter_ns", lambda: now_ns[0])
    result = TimeEvaluator(call, number=3, repeat=2)()
    assert result.results == pytest.approx((2e-6, 5e-6))


def test_a_repeat_lasts_as_long_as_was_asked_for() -> None:
    function = Counted()
    TimeEvaluator(function, number=1, min_repeat_ms=5)()
    assert len(function.calls) > 100


def test_a_clock_that_stands_still_ends_the_repeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(time, "perf_counter_ns", lambda: 7)
    function = Counted()
    evaluator = TimeEvaluator(
        function, number=1, min_repeat_ms=5, limit_zero_time_iterations=4
    )
    assert evaluator().results == (0.0,)
    assert len(function.calls) == 1 + 1 + 2 + 4 + 7


def test_something_is_called_before_each_repeat() -> None:
    before = Counted()
    TimeEvaluator(Counted(), number=2, repeat=3, preprocess=before, cache_flush_bytes=64)(5)
    assert before.calls == [(5,)] * 3


def test_it_rests_between_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    TimeEvaluator(Counted(), repeat=5, cooldown_interval_ms=20, repeats_to_cooldown=2)()
    assert slept == [0.02, 0.02]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("number", 0),
        ("repeat", -1),
        ("min_repeat_ms", float("nan")),
        ("cache_flush_bytes", "1"),
    ],
)
def test_options_that_make_no_sense_are_errors(option: str, value: object) -> None:
    with pytest.raises(UserError, match=option):
        TimeEvaluator(Counted(), **{option: value})


def test_the_table_has_the_five_columns_that_people_know() -> None:
    result = BenchmarkResult((0.001, 0.003))
    assert (result.mean, result.median, result.min, result.max) == (
        0.002,
        0.002,
        0.001,
        0.003,
    )
    assert result.std == pytest.approx(0.001)
    title, head, row = str(result).splitlines()
    assert title == "Execution time summary:"
    assert head.split()[::2] == ["mean", "median", "max", "min", "std"]
    assert row.split() == ["2.0000", "2.0000", "3.0000", "1.0000", "1.0000"]
