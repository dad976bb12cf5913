"""The figures table judges as the bars say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from figures.bars import (
    MEAN_SUBSETS,
    MODEL_ROWS,
    OURS,
    PEER,
    ROUNDED,
    ROUNDED_BAR,
    ModelRow,
    TwinRow,
)
from figures.measure import Measurement, Series
from figures.rows import Figures, Outcome, failed, rounded_outcome

OUTCOME = Outcome(
    subset="ops",
    name="x",
    ratio=1.0,
    at_least=False,
    bar=1.0,
    unit="",
    detail="",
    error=1e-7,
)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "PASS"),
        ({"ratio": 1.001}, "MISS"),
        ({"at_least": True, "ratio": 0.999}, "MISS"),
        ({"at_least": True, "ratio": 1.001}, "PASS"),
        ({"bar": None}, "-"),
        ({"ratio": None}, "MISS"),
        ({"ratio": None, "bar": None}, "-"),
        ({"error": 2e-5}, "WRONG"),
        ({"error": float("inf"), "bar": None}, "WRONG"),
        ({"error": float("nan")}, "WRONG"),
    ],
)
def test_the_verdict_follows_ratio_bar_and_error(
    changes: dict[str, object], verdict: str
) -> None:
    assert replace(OUTCOME, **changes).verdict == verdict


def measurement(**seconds: float) -> Measurement:
    series = {
        name: Series(medians=[value], times=[value], foreign=[0.0], error=1e-7)
        for name, value in seconds.items()
    }
    return Measurement(
        series=series, fma_flops=[90e9, 100e9, 80e9], tile_flops=[85e9], read_bytes=[20e9]
    )


@pytest.fixture
def figures(tmp_path: Path) -> Figures:
    (tmp_path / "m.json").write_text('{"flops": 1e9, "streamed_bytes": 1e8}')
    return Figures(
        models=tmp_path, threads=1, rounds=1, seconds=0.1, contenders=(OURS, PEER)
    )


@pytest.mark.parametrize(
    ("measure", "ratio", "at_least"),
    [
        ("peak", 1e9 / 0.02 / 90e9, True),
        ("stream", 1e8 / 0.02 / 20e9, True),
        ("peer", 0.5, False),
    ],
)
def test_each_measure_has_its_own_ratio(
    figures: Figures, measure: str, ratio: float, at_least: bool
) -> None:
    row = ModelRow("ops", "m", "M", measure, 0.7)
    outcome = figures.judge(row, measurement(tilewright=0.02, onnxruntime=0.04))
    assert outcome.ratio == pytest.approx(ratio)
    assert outcome.at_least is at_least


def test_a_failed_contender_is_a_miss_with_its_reason(figures: Figures) -> None:
    row = ModelRow("ops", "m", "M", "peer", 1.0)
    result = measurement(onnxruntime=0.04)
    result.failures[OURS] = "tilewright: no such op"
    outcome = figures.judge(row, result)
    assert (outcome.verdict, outcome.detail) == ("MISS", "tilewright: no such op")


def test_the_peer_alone_is_not_judged(figures: Figures) -> None:
    row = ModelRow("ops", "m", "M", "peak", 0.9)
    assert figures.judge(row, measurement(onnxruntime=0.04)).verdict == "-"


def test_a_model_that_was_not_exported_is_a_miss() -> None:
    row = MODEL_ROWS[0]
    assert failed(row, "model is not exported").verdict == "MISS"


def test_every_row_measures_a_model_once() -> None:
    names = [row.model for row in MODEL_ROWS]
    assert len(set(names)) == len(names)
    assert {row.measure for row in MODEL_ROWS} == {"peak", "stream", "peer"}


def test_a_ratio_is_taken_over_the_faster_peer_that_is_right(figures: Figures) -> None:
    row = ModelRow("models", "m", "M", "peer", 0.7)
    result = measurement(tilewright=0.02, onnxruntime=0.05, openvino=0.04)
    outcome = figures.judge(row, result)
    assert (outcome.ratio, outcome.unit) == (pytest.approx(0.5), "× openvino")
    result.series["openvino"].error = 6e-3  # what bf16 in the place of f32 gives
    outcome = figures.judge(row, result)
    assert (outcome.ratio, outcome.unit) == (pytest.approx(0.4), "× onnxruntime")


def test_a_peer_that_fails_is_told_and_the_other_one_counts(figures: Figures) -> None:
    result = measurement(tilewright=0.02, onnxruntime=0.04)
    result.failures["openvino"] = "openvino: no such op"
    outcome = figures.judge(ModelRow("models", "m", "M", "peer", 0.7), result)
    assert outcome.verdict == "PASS"
    assert "openvino: no such op" in outcome.detail


def test_the_mean_has_a_bar_only_over_all_models(figures: Figures) -> None:
    chosen = [row for row in MODEL_ROWS if row.subset in MEAN_SUBSETS]
    assert list(figures.mean_of(chosen[1:])) == []
    for row, ours in zip(chosen, (0.01, 0.04), strict=False):
        figures.measured[row.model, 1] = measurement(tilewright=ours, openvino=0.02)
    (mean,) = figures.mean_of(chosen)
    assert (mean.ratio, mean.bar) == (pytest.approx(1.0), None)
    for row in chosen:
        figures.measured[row.model, 1] = measurement(tilewright=0.01, openvino=0.02)
    (mean,) = figures.mean_of(chosen)
    assert (mean.ratio, mean.verdict) == (pytest.approx(0.5), "PASS")


def test_results_of_bytes_are_held_to_what_rounding_costs(figures: Figures) -> None:
    (figures.models / "m.json").write_text('{"flops": 1e9, "rounding_error": 0.02}')
    row = ModelRow("int8", "m", "M", "peer", 0.9)
    result = measurement(tilewright=0.02, onnxruntime=0.04)
    result.series["onnxruntime"].error = 0.015
    result.series[OURS].error = 0.01
    assert figures.judge(row, result).verdict == "PASS"
    result.series[OURS].error = 0.03
    assert figures.judge(row, result).verdict == "WRONG"


def test_bytes_are_held_against_our_own_f32(figures: Figures) -> None:
    row = TwinRow("m", "f", "M", 0.45)
    for name, seconds in (("m", 0.02), ("f", 0.05)):
        (figures.models / f"{name}.onnx").touch()
        figures.measured[name, 1] = measurement(tilewright=seconds)
    (outcome,) = figures.run_twins([row])
    assert (outcome.ratio, outcome.verdict) == (pytest.approx(0.4), "PASS")
    figures.measured["f", 1] = Measurement(
        series={},
        failures={OURS: "no such op"},
        fma_flops=[1.0],
        tile_flops=[1.0],
        read_bytes=[1.0],
    )
    (outcome,) = figures.run_twins([row])
    assert (outcome.verdict, outcome.detail) == ("MISS", "no such op")
    (outcome,) = figures.run_twins([replace(row, twin="g")])
    assert (outcome.verdict, outcome.detail) == ("MISS", "g is not exported")


def test_rounded_operands_are_held_against_f32() -> None:
    result = measurement(tilewright=0.05, **{ROUNDED: 0.02})
    result.series[ROUNDED].error = 1e-2
    outcome = rounded_outcome("m", result)
    assert (outcome.ratio, outcome.verdict) == (
        pytest.approx(0.4), "-" if ROUNDED_BAR is None else "PASS",
    )  # fmt: skip
    result.series[ROUNDED].error = 0.1
    assert rounded_outcome("m", result).verdict == "WRONG"
