"""Marks of tensors of other libraries are taken off where their memory is shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.base.foreign_tensors import without_marks


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


@pytest.mark.needs_torch
def test_tensors_of_torch_have_the_same_elements_without() -> None:
    torch: Any = pytest.importorskip("torch")
    z = torch.tensor([1 + 2j, 3 - 4j], requires_grad=True)
    plain: Any = without_marks(z.conj().imag)
    assert not plain.is_neg()
    assert np.from_dlpack(plain).tolist() == [-2.0, 4.0]
