"""What a `Slice` takes of axes of known and of open size."""

from __future__ import annotations

import itertools

import pytest

from tilewright.base import symbolic
from tilewright.base.errors import ModelError
from tilewright.compiler.frontends.onnx.slices import cut_axes, cuts, slice_range

N = symbolic.symbol("N", 1)
POSITIONS = (-7, -5, -2, -1, 0, 1, 2, 4, 5, 9, 2**31 - 1, -(2**31), -(2**63), 2**63 - 1)


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("step", [1, 2, 3, -1, -2])
def test_slices_take_what_numpy_takes(step: int, size: int) -> None:
    for start, end in itertools.product(POSITIONS, repeat=2):
        first, count = slice_range(start, end, step, size)
        # ONNX moves a start before the axis to its first element, numpy to before it.
        begin = max(start, -size) if step < 0 and size else start
        expected = list(range(size))[slice(begin, end, step)]
        assert [first + step * i for i in range(count)] == expected, (start, end)


def test_slices_of_a_dynamic_axis_stay_symbolic() -> None:
    assert slice_range(0, 2**63 - 1, 1, N) == (0, N)
    assert slice_range(1, N, 1, N) == (1, N - 1)
    assert slice_range(0, -1, 1, N) == (0, N - 1)
    assert slice_range(-1, -(2**63), -1, N) == (N - 1, N)
    first, count = slice_range(-3, 2**63 - 1, 1, N)
    assert (str(first), str(count)) == ("max((N - 3), 0)", "(N - max((N - 3), 0))")


@pytest.mark.parametrize(
    ("start", "end", "step", "found"),
    [
        (-100, -200, -1, [0]),
        (-100, -(2**63), -1, [0]),
        (2**63 - 1, -(2**63), -1, [2, 1, 0]),
        (-(2**63), 2**63 - 1, 1, [0, 1, 2]),
        (-(2**63), 2**63 - 1, 2**62, [0]),
        (100, 200, 1, []),
    ],
)
def test_positions_outside_are_clamped(
    start: int, end: int, step: int, found: list[int]
) -> None:
    """Backwards, a start before the first element is the first, which numpy leaves out."""
    (cut,) = cuts((3,), [start], [end], [-1], [step])
    assert [cut.first + cut.step * i for i in range(cut.count)] == found


def test_what_is_no_slice_is_refused() -> None:
    with pytest.raises(ModelError, match="a step is 0"):
        cuts((3, 3), [0, 0], [1, 1], None, [1, 0])
    with pytest.raises(ModelError, match="differ in length"):
        cuts((3, 3), [0, 0], [1], None, None)
    with pytest.raises(ModelError, match="differ in length"):
        cuts((3, 3), [0], [1], [0, 1], None)
    with pytest.raises(ModelError, match="name one axis twice"):
        cuts((3, 3), [0, 0], [1, 1], [1, -1], None)
    for axis, rank in ((2, 2), (-3, 2), (0, 0)):
        with pytest.raises(
            ModelError, match=f"axis {axis} is out of range for rank {rank}"
        ):
            cut_axes([axis], rank)
