"""Host steps: operands at their places, dimensions as numbers, results checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
import pytest

from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.base.symbolic import symbol
from tilewright.formats.plan import HostCall, Step
from tilewright.runtime.plan_executor.host_call import BoundHostCall

n = symbol("n")
TYPES = [(dtypes.f32, (2, 2)), (dtypes.bf16, (3,)), (dtypes.i64, ())]
SEEN: list[tuple[str, Mapping[str, object], Sequence[np.ndarray | None]]] = []


def bound(results: Sequence[np.ndarray]) -> BoundHostCall:
    def function(
        op: str, attributes: Mapping[str, object], operands: Sequence[np.ndarray | None]
    ) -> Sequence[np.ndarray]:
        SEEN.append((op, attributes, operands))
        return results

    call = HostCall(4, (1, 3), {"sizes": (n, 2 * n), "axis": 0})
    step = Step("host", "step", "op", (0, 1, 2), 1, host=call)
    return BoundHostCall(step, call, function, TYPES, {"n": 5})


def views() -> list[memoryview]:
    x = np.arange(4, dtype=np.float32)
    h = np.array([1, 2, 3], ml_dtypes.bfloat16)
    return [memoryview(bytearray(a.tobytes())) for a in (x, h, np.zeros(1, np.int64))]


def test_operands_stand_where_the_op_expects_them() -> None:
    memory = views()
    bound([np.array(42)])(*memory)
    op, attributes, operands = SEEN[-1]
    assert op == "op"
    assert attributes == {"sizes": (5, 10), "axis": 0}
    assert operands[0] is None
    assert operands[2] is None
    np.testing.assert_array_equal(operands[1], [[0, 1], [2, 3]])
    assert operands[3] is not None
    assert operands[3].dtype == ml_dtypes.bfloat16
    assert np.frombuffer(memory[2], np.int64)[0] == 42


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ([], "step 'step': got 0 results, expected 1"),
        ([np.array(1), np.array(2)], "step 'step': got 2 results, expected 1"),
        ([np.zeros(1, np.int64)], "step 'step': got i64[1], expected i64[]"),
        ([np.array(1.5)], "step 'step': got f64[], expected i64[]"),
    ],
)
def test_results_of_other_types_or_shapes_are_refused(
    results: list[np.ndarray], text: str
) -> None:
    with pytest.raises(InputError) as caught:
        bound(results)(*views())
    assert str(caught.value).splitlines()[0] == text
