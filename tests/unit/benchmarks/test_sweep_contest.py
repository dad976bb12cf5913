"""A contest times both contenders, compares their results and keeps refusals as rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sweep.case import Case, single
from sweep.network import ints, scalar, x

pytest.importorskip("onnxruntime", reason="extra 'peers' is not installed")

from sweep.contest import (
    PROCESSOR,
    WITH_SYMBOLS,
    Stopwatch,
    difference,
    disagreement,
    hold,
    openings,
    race,
    time_round,
)

PLAIN = single("a/plain", "Add", x(3, 5), x(5))


def test_both_are_timed_and_agree() -> None:
    row = hold(PLAIN)
    assert row["wrong"] == ""
    assert row["runs_as"] == "pointwise"
    for runtime in ("tilewright", "onnxruntime"):
        assert 0 < row[runtime]["min_s"] <= row[runtime]["median_s"]


def test_what_both_refuse_is_a_row() -> None:
    row = hold(single("a/none", "NoSuchOperator", x(3), domain="com.microsoft"))
    assert set(row["refused"]) == {"tilewright", "onnxruntime"}
    assert "NoSuchOperator" in row["refused"]["tilewright"]


def test_what_the_peer_refuses_is_timed_alone() -> None:
    row = hold(single("a/bf16", "Atan", x(7, t="bf16")))
    assert set(row["refused"]) == {"onnxruntime"}
    assert "tilewright" in row


def test_a_model_for_symbols_runs_beside_one_for_known_sizes() -> None:
    row = hold(PLAIN, WITH_SYMBOLS)
    assert row["wrong"] == ""
    for contender in ("tilewright", "onnxruntime", "known sizes"):
        assert 0 < row[contender]["min_s"] <= row[contender]["median_s"]


def test_where_not_all_sizes_may_be_open_first_axes_are() -> None:
    fixed = single("a/fixed", "Reshape", x(6, 4, 5), ints(0, 2, 10))
    assert "refused" not in hold(fixed, WITH_SYMBOLS)
    every, first = openings({"x": np.zeros((6, 1, 5))})
    assert every == {"x": ["s6", 1, "s5"]}
    assert first == {"x": ["s6", 1, 5]}


def test_results_beyond_the_tolerance_are_wrong() -> None:
    ours, theirs = np.ones(4, np.float32), np.ones(4, np.float32)
    ours[2] = 1.001
    assert "error" in disagreement(PLAIN, [ours], [theirs])
    loose = Case(name="a/loose", build=PLAIN.build, tolerance=1e-2)
    assert disagreement(loose, [ours], [theirs]) == ""


@pytest.mark.parametrize(
    ("other", "part"),
    [
        (np.ones((2, 2), np.float32), "shape"),
        (np.ones(4, np.int32), "type"),
        (np.full(4, np.nan, np.float32), "error inf"),
    ],
)
def test_other_shapes_types_and_nans_are_wrong(other: np.ndarray, part: str) -> None:
    assert part in disagreement(PLAIN, [np.ones(4, np.float32)], [other])


def test_whole_numbers_must_be_equal() -> None:
    ours, theirs = np.array([1000000]), np.array([1000001])
    assert "error" in disagreement(PLAIN, [ours], [theirs])


def test_a_missing_result_is_wrong() -> None:
    assert "2 results" in disagreement(PLAIN, [np.ones(1)] * 2, [np.ones(1)])


def test_equal_infinities_and_nans_are_no_difference() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 1.0])
    assert difference(values, values.copy()) == 0


def test_a_long_call_is_measured_in_one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.contest.LONG_CALL_S", 0.0)
    calls = [0]

    def call() -> None:
        calls[0] += 1
        sum(range(200_000))  # some milliseconds: a round is a few calls

    race([call])
    assert calls[0] < 30


def test_a_constant_operand_is_held_by_the_model() -> None:
    row = hold(single("a/scaled", "Mul", x(3), scalar(2.5)))
    assert row["wrong"] == ""


def test_calls_of_a_turn_are_timed_one_by_one_or_all_of_them() -> None:
    readings, now = [0], [0.0]

    def clock() -> float:
        readings[0] += 1
        return now[0]

    def call() -> None:
        now[0] += 3.0

    one = Stopwatch(clock=clock, rounds=1, round_s=1.0, most_calls=4, singly=True)
    assert time_round(call, 4, one) == [3.0] * 4
    assert readings == [8]
    assert time_round(call, 4, replace(one, singly=False)) == [3.0]
    assert readings == [10]


def test_processor_time_is_taken_of_both() -> None:
    row = hold(PLAIN, watch=PROCESSOR)
    assert row["wrong"] == ""
    for runtime in ("tilewright", "onnxruntime"):
        assert 0 < row[runtime]["min_s"] <= row[runtime]["median_s"]
