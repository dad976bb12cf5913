from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.dtypes import f32, from_numpy, i8, i64, u8
from tilewright.base.symbolic import symbol
from tilewright.compiler.graph.schema import UNKNOWN, Asked, Range, TensorType
from tilewright.compiler.ops import cases, catalogue, ranges
from tilewright.compiler.ops.declaration import type_of

N = symbol("N", 1)
RULED = [row for row in catalogue.all_ops() if row.schema.ranges is not None]


def range_of(array: np.ndarray | None) -> Range:
    if array is None or not array.size:
        return UNKNOWN
    return Range(int(array.min()), int(array.max()))


def contains(found: Range, array: np.ndarray) -> bool:
    """Whether all elements are in the range, or it leaves the type: then they may have wrapped."""
    low, high = range_of(array)
    held = ranges.limits(from_numpy(array.dtype))
    if any(bound is not None and not held[0] <= bound <= held[1] for bound in found):
        return True
    return (found.low is None or low is None or found.low <= low) and (
        found.high is None or high is None or high <= found.high
    )


@pytest.mark.thinned(3)
@pytest.mark.parametrize("row", RULED, ids=lambda row: row.name)
def test_results_lie_in_the_range_that_the_rule_gives(row):
    ran = 0
    for case in cases.instances(row):
        whole = [a for a in case.operands if a is not None]
        if any(a.dtype.kind not in "bui" for a in whole):
            continue
        (result,) = row.schema.evaluate(case.operands, case.attributes)
        if result.dtype.kind not in "ui":
            continue

        def operand_range(
            position: int, column: int | None, operands=case.operands
        ) -> Range:
            array = operands[position]
            return range_of(
                array if array is None or column is None else array[..., column]
            )

        types = [None if a is None else type_of(a) for a in case.operands]
        full = row.complete(case.attributes)
        columns = range(result.shape[-1]) if result.ndim and result.size else ()
        for column in (None, *columns):
            asked = Asked(types, full, type_of(result), column, operand_range)
            picked = result if column is None else result[..., column]
            found = row.schema.ranges(asked)
            assert contains(found, picked), (str(case), column, found)
        ran += 1
    assert ran or all(t.is_float for t in row.schema.operands[0].dtypes), row.name


def ask(rule, result: TensorType, *operands: tuple[TensorType, Range]) -> Range:
    types = [t for t, _ in operands]
    return rule(Asked(types, {}, result, None, lambda i, _: operands[i][1]))


def test_a_sum_that_may_wrap_is_unknown():
    whole = TensorType(i64, (3,))
    given = (whole, Range(0, None)), (whole, Range(1, 5))
    assert ask(ranges.total, whole, *given) == UNKNOWN
    assert ask(ranges.total, TensorType(f32, (3,)), *given) == Range(1, None)
    assert ask(ranges.total, whole, (whole, Range(0, N)), given[1]) == Range(1, N + 5)


def test_a_cast_to_a_type_that_holds_more_keeps_half_a_range():
    byte, wide = TensorType(u8, (3,)), TensorType(i64, (3,))
    assert ask(ranges.converted, wide, (byte, Range(3, None))) == Range(3, None)
    assert ask(ranges.converted, TensorType(i8, (3,)), (wide, Range(3, None))) == UNKNOWN


def test_a_column_is_followed_through_a_reshape():
    row = catalogue.lookup("reshape").schema
    columns = []

    def operand_range(_: int, column: int | None) -> Range:
        columns.append(column)
        return Range(0, 1)

    for column in (None, 2):
        asked = Asked(
            [TensorType(i64, (N, 2, 4))], {"shape": (2 * N, 4)}, TensorType(i64, (2 * N, 4)),
            column, operand_range,
        )  # fmt: skip
        assert row.ranges(asked) == Range(0, 1)
    assert columns == [None, 2]


def test_a_remainder_is_less_than_a_divisor_that_is_positive():
    whole = TensorType(i64, (3,))
    signed, positive = (whole, Range(-5, 5)), (whole, Range(1, N))

    def found(dtype, dividend, divisor, *, fmod: bool) -> Range:
        ranges_of = (dividend[1], divisor[1])
        types = [dividend[0], divisor[0]]
        result = TensorType(dtype, (3,))
        asked = Asked(types, {"fmod": fmod}, result, None, lambda i, _: ranges_of[i])
        return ranges.remainder(asked)

    assert found(i64, signed, positive, fmod=False) == Range(0, N - 1)
    assert found(i64, signed, positive, fmod=True) == UNKNOWN
    assert found(i64, (whole, Range(0, 9)), positive, fmod=True) == Range(0, N - 1)
    assert found(i64, signed, (whole, Range(0, N)), fmod=False) == UNKNOWN
    assert found(f32, signed, positive, fmod=False) == UNKNOWN
