from __future__ import annotations

import numpy as np
import pytest

from tilewright.compiler.ops import cases, catalogue
from tilewright.compiler.ops.declaration import type_of

ROWS = [row for row in catalogue.all_ops() if row.schema.layout is not None]


def lined_up(array: np.ndarray, rank: int) -> np.ndarray:
    """An operand with as many axes as what it is broadcast over."""
    return array.reshape((*([1] * (rank - array.ndim)), *array.shape))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_an_op_on_reversed_axes_gives_reversed_axes(row):
    layout = row.schema.layout
    for case in cases.instances(row):
        (expected,) = row.schema.evaluate(case.operands, case.attributes)
        rank = expected.ndim if layout.aligned else case.operands[0].ndim
        place = tuple(range(rank))[::-1]
        types = [None if a is None else type_of(a) for a in case.operands]
        full = row.complete(case.attributes)
        attributes = layout.moved(types, full, place)
        if attributes is None:
            continue
        operands = [
            a if a is None or (i and not layout.aligned) else lined_up(a, rank).T
            for i, a in enumerate(case.operands)
        ]
        (actual,) = row.schema.evaluate(operands, attributes)
        lost = layout.reduced(full, rank) if layout.reduced else frozenset()
        assert expected.ndim == rank - len(lost)
        np.testing.assert_allclose(
            actual.astype(np.float64),
            expected.T.astype(np.float64),
            rtol=1e-2,
            err_msg=str(case),
        )
