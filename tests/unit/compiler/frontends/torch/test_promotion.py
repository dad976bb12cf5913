"""The types that operands are brought to, against what torch's documentation says."""

import pytest

from tilewright.base import dtypes
from tilewright.base.dtypes import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.torch.promotion import promote, result_type
from tilewright.compiler.graph.schema import TensorType


def tensor(dtype: DType, rank: int) -> Tensor:
    return Tensor(TensorType(dtype, (2,) * rank))


@pytest.mark.parametrize(
    ("left", "right", "common"),
    [
        (f16, bf16, f32),
        (f16, f64, f64),
        (u8, i8, dtypes.i16),
        (u8, i32, i32),
        (bool_, i8, i8),
        (i64, f16, f16),
        (f32, f32, f32),
    ],
)
def test_two_types_have_one_that_holds_both(
    left: DType, right: DType, common: DType
) -> None:
    assert promote(left, right) == promote(right, left) == common


def test_types_without_a_common_one_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="no common type"):
        promote(dtypes.u64, i64)


def test_tensors_with_axes_decide_unless_a_scalar_is_of_a_higher_kind() -> None:
    assert result_type([tensor(f32, 1), tensor(f64, 0)]) == f32
    assert result_type([tensor(i32, 1), tensor(f64, 0)]) == f64
    assert result_type([tensor(i8, 1), tensor(i64, 0)]) == i8
    assert result_type([tensor(bool_, 1)], [i64]) == i64
    assert result_type([tensor(i32, 1)], [f32]) == f32
    assert result_type([tensor(f16, 1)], [f32]) == f16
