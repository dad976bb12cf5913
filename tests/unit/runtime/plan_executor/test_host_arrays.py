"""What users pass is seen as arrays of numpy, without a copy, or refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.base import dtypes
from tilewright.base.errors import InputError
from tilewright.runtime.plan_executor.host_arrays import as_array


@pytest.mark.parametrize("engine", ["plan", "vm"])
def test_elements_below_a_mask_are_no_input(tmp_path: Path, engine: str) -> None:
    tw.compile(mlp(), jobs=1).save(tmp_path / "mlp.vmfb")
    session = tw.load(tmp_path / "mlp.vmfb", engine=engine)
    x = np.ones(
        [d if isinstance(d, int) else 3 for d in session.inputs[0].shape], np.float32
    )
    masked = np.ma.masked_array(x, mask=np.arange(x.size).reshape(x.shape) == 1)
    for call in (
        lambda: session(masked),
        lambda: session(list(masked)),
        lambda: session({session.inputs[0].name: masked}),
    ):
        with pytest.raises(
            InputError, match=r"input '\w+': got Masked.*\n.*\.filled\(value\)"
        ):
            call()
    expected = session(x)
    assert np.array_equal(session(np.ma.masked_array(x)), expected)
    assert np.array_equal(session(masked.filled(1)), expected)


class ArrayOfJax:
    """An array of a type that numpy's DLPack lacks, which numpy reads all the same."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.dtype = values.dtype

    def __dlpack__(self, **_: object) -> object:
        raise BufferError("no such type")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        del dtype, copy
        return self.values


def test_types_that_dlpack_lacks_need_not_be_tensors_of_torch() -> None:
    values = np.arange(4, dtype=np.float32).astype(dtypes.bf16.numpy)
    found = as_array(ArrayOfJax(values))
    assert found.dtype == values.dtype
    assert np.shares_memory(found, values)
