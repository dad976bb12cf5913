"""The words and numbers of types are ONNX's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tilewright.api.inference.node_arg import element_code, element_dtype, type_text
from tilewright.base import dtypes
from tilewright.base.errors import UserError
from tilewright.compiler.frontends.onnx.tensors import DTYPES


@pytest.mark.parametrize("code", DTYPES)
def test_a_type_has_the_word_and_number_of_onnx(code: int) -> None:
    word = TensorProto.DataType.Name(code).lower()
    dtype = DTYPES[code]
    assert type_text(dtype) == f"tensor({word})"
    assert element_code(dtype) == code
    assert element_dtype(code) is dtype


def test_types_come_as_numpy_has_them() -> None:
    assert element_dtype(np.float32) is dtypes.f32
    assert element_dtype(np.dtype("int64")) is dtypes.i64
    for wrong in (8, object, "no such type"):
        with pytest.raises(UserError):
            element_dtype(wrong)
