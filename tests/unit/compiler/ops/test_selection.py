"""Order of elements of all types."""

import numpy as np
import pytest

from tilewright.base.dtypes import DType, bf16, f16, f32
from tilewright.compiler.ops import catalogue


@pytest.mark.parametrize("dtype", [bf16, f16, f32])
def test_what_is_no_number_counts_as_the_largest(dtype: DType) -> None:
    x = np.array([2.0, np.nan, -1.0, 1.0, np.nan]).astype(dtype.numpy)
    top_k = catalogue.lookup("top_k")
    attributes = top_k.complete({"k": (5,), "axis": 0, "largest": False})
    values, places = top_k.schema.evaluate([x], attributes)
    assert places.tolist() == [2, 3, 0, 1, 4]
    assert np.isnan(values[3:].astype(np.float32)).all()
