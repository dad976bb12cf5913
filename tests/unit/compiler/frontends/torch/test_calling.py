"""What programs of torch are called with beside its tensors: arrays, of which all elements are there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import InputError

pytestmark = pytest.mark.needs_torch


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_elements_below_a_mask_are_no_argument(dtype: type) -> None:
    torch: Any = pytest.importorskip("torch")

    class Sum(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            return x + y

    x = (np.arange(6) - 2.5).reshape(2, 3).astype(dtype)
    example = (torch.from_numpy(x), torch.from_numpy(x))
    model = tw.compile(torch.export.export(Sum(), example), jobs=1)
    masked = np.ma.masked_equal(x, x[0, 1])
    for arguments in ((x, masked), (masked, x)):
        with pytest.raises(InputError, match="got MaskedArray with elements below"):
            model(*arguments)
    np.testing.assert_array_equal(model(x, np.ma.masked_array(x)), x + x)
    np.testing.assert_array_equal(model(x, masked.filled(4)), x + masked.filled(4))
