"""Marks of tensors of other libraries are taken off where their memory is shared; masks are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.base.errors import InputError
from tilewright.base.foreign_tensors import refuse_mask, unmasked, without_marks


class Marked:
    """As torch has them: detached, then resolved."""

    def __init__(self, *, negated: bool) -> None:
        self.negated = negated

    def detach(self) -> Marked:
        return Marked(negated=self.negated)

    def is_neg(self) -> bool:
        return self.negated

    def resolve_neg(self) -> str:
        return "resolved"


def test_values_without_marks_stay_themselves() -> None:
    x = np.zeros(3)
    assert without_marks(x) is x
    assert isinstance(without_marks(Marked(negated=False)), Marked)
    assert without_marks(Marked(negated=True)) == "resolved"


MASKED = np.ma.array([1.0, 2.0], mask=[0, 1])


class MakesMasked:
    """What numpy asks for an array, and is given one with a mask."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        return MASKED


@pytest.mark.parametrize(
    "value",
    [np.ma.masked, MASKED, [MASKED, MASKED], ([0.0, 1.0], MASKED), [[1.0, np.ma.masked]]],
)
def test_elements_below_a_mask_are_refused(value: object) -> None:
    with pytest.raises(InputError, match=r"elements below its mask.*\n.*\.filled\(value\)"):
        refuse_mask(value)


@pytest.mark.parametrize(
    "value", [MASKED, [MASKED], [[1.0], [np.ma.masked]], MakesMasked()]
)
def test_no_array_is_made_of_elements_below_a_mask(value: object) -> None:
    with pytest.raises(InputError, match=r"Masked\w+ with elements below its mask"):
        unmasked(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.ma.array([1.0, 2.0]), [1, 2]),
        ([[1, 2], np.ma.array([3, 4])], [[1, 2], [3, 4]]),
        ([], []),
        (3, 3),
    ],
)
def test_of_all_else_numpy_makes_its_own_arrays(value: object, expected: object) -> None:
    found = unmasked(value)
    assert type(found) is np.ndarray
    assert found.tolist() == expected


@pytest.mark.parametrize("value", [np.ma.array([1.0, 2.0]), np.zeros(2), [1.0], None])
def test_what_has_nothing_below_a_mask_is_taken(value: object) -> None:
    refuse_mask(value)  # raises nothing
    assert not np.ma.is_masked(value)


@pytest.mark.needs_torch
def test_tensors_of_torch_have_the_same_elements_without() -> None:
    torch: Any = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    plain: Any = without_marks(z.conj().imag)
    assert not plain.is_neg()
    assert np.from_dlpack(plain).tolist() == [-2.0, 4.0]
