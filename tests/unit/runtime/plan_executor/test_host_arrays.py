"""What users pass is seen as arrays of numpy, without a copy, or refused in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.small_models import mlp
from tilewright.base.errors import InputError


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
