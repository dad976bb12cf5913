"""The rules by which outputs are compared, special values and all."""

import ml_dtypes
import numpy as np
import pytest

from tilewright.formats.output_checks import (
    Check,
    failed,
    from_rows,
    to_rows,
    ulp_distance,
)

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("rule", "tolerance", "actual", "expected", "passes"),
    [
        ("eq", 0, np.int32([1, 2]), np.int32([1, 2]), True),
        ("eq", 0, np.int32([1, 2]), np.int32([1, 3]), False),
        ("eq", 0, np.float32([0.0]), np.float32([-0.0]), True),
        ("eq", 0, np.float32([NAN]), np.float32([NAN]), False),
        ("eq", 0, np.zeros((0, 2), np.int8), np.zeros((0, 2), np.int8), True),
        ("almost_eq", 1e-4, np.float64([5.0]), np.float64([5.00009]), True),
        ("almost_eq", 1e-4, np.float64([5.0]), np.float64([5.0002]), False),
        ("almost_eq", 1e-4, np.float32([NAN, INF]), np.float32([NAN, INF]), True),
        ("almost_eq", 1e-4, np.float32([NAN]), np.float32([1.0]), False),
        ("almost_eq", 1e-4, np.float32([INF]), np.float32([-INF]), False),
        ("almost_eq", 1e-4, np.int8([1]), np.int8([2]), False),
        ("close", 3, np.float16([5.0]), np.float16([5.0117]), True),
        ("close", 3, np.float16([5.0]), np.float16([5.02]), False),
        ("close", 3, np.float32([NAN, INF]), np.float32([NAN, INF]), True),
        ("close", 3, np.float32([INF]), np.float32([np.finfo(np.float32).max]), False),
        ("close", 3, np.float32([1e-45]), np.float32([-1e-45]), True),
        ("close", 0, np.zeros((), ml_dtypes.bfloat16), np.ones((), ml_dtypes.bfloat16), False),
    ],
)  # fmt: skip
def test_rules_compare_as_the_reference_interpreter(
    rule: str, tolerance: float, actual: np.ndarray, expected: np.ndarray, passes: bool
) -> None:
    check = Check(rule, "case.mlir:1:1", 0, 1, tolerance)
    assert (failed([check], [actual, expected]) == ()) == passes


def test_a_failure_names_place_element_and_how_many() -> None:
    check = Check("close", "case.mlir:7:5", 1, 0, 3)
    (text,) = failed([check], [np.float32([[1, 2]]), np.float32([[1, 3]])])
    assert text == (
        "case.mlir:7:5: check failed: element [0, 1] is 3.0, expected 2.0 within 3 ulp "
        "(1 of 2 differ)"
    )


def test_outputs_of_two_types_differ() -> None:
    check = Check("eq", "case.mlir:7:5", 0, 1)
    (text,) = failed([check], [np.float32([1]), np.int32([1, 2])])
    assert text == "case.mlir:7:5: check failed: got float32[1], expected int32[2]"


def test_distances_count_the_floats_between() -> None:
    one = np.float32(1)
    up = np.nextafter(one, np.float32(2))
    assert ulp_distance(np.asarray(one), np.asarray(np.nextafter(up, np.float32(2)))) == 2
    assert ulp_distance(np.float64([-0.0]), np.float64([0.0])) == 0


def test_checks_survive_as_json() -> None:
    checks = (Check("eq", "a.mlir:1:2", 0, 1), Check("close", "a.mlir:3:4", 2, 3, 3.0))
    again = from_rows(to_rows(checks))
    assert [to_rows([c]) for c in again] == [to_rows([c]) for c in checks]


@pytest.mark.parametrize(
    "row",
    [
        ["no_rule", "x", 0, 1, 0.0], ["eq", "x\n", 0, 1, 0.0], ["eq", "x", -1, 1, 0.0],
        ["eq", "x", 0, True, 0.0], ["close", "x", 0, 1, 1e300], ["eq", "x", 0, 1, "1"], ["eq"], 3,
    ],
)  # fmt: skip
def test_what_is_no_check_is_refused(row: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        from_rows([row])


def test_a_check_of_an_output_that_there_is_not_fails() -> None:
    assert "only 1 outputs" in Check("eq", "a.mlir:1:1", 0, 5).problem([np.zeros(1)])
