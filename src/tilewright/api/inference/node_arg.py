"""What onnxruntime tells about a model: its inputs and outputs, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import UserError
from tilewright.base.record import field, record
from tilewright.formats.tensor_spec import TensorSpec

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

_ROWS: Final[tuple[tuple[DType, str, int], ...]] = (
    (dtypes.f32, "float", 1),
    (dtypes.u8, "uint8", 2),
    (dtypes.i8, "int8", 3),
    (dtypes.u16, "uint16", 4),
    (dtypes.i16, "int16", 5),
    (dtypes.i32, "int32", 6),
    (dtypes.i64, "int64", 7),
    (dtypes.bool_, "bool", 9),
    (dtypes.f16, "float16", 10),
    (dtypes.f64, "double", 11),
    (dtypes.u32, "uint32", 12),
    (dtypes.u64, "uint64", 13),
    (dtypes.bf16, "bfloat16", 16),
    (dtypes.f8e4m3fn, "float8e4m3fn", 17),
    (dtypes.f8e5m2, "float8e5m2", 19),
    (dtypes.f8e4m3fnuz, "float8e4m3fnuz", 18),
    (dtypes.f8e5m2fnuz, "float8e5m2fnuz", 20),
    (dtypes.u4, "uint4", 21),
    (dtypes.i4, "int4", 22),
    (dtypes.f4e2m1fn, "float4e2m1", 23),
    (dtypes.f8e8m0fnu, "float8e8m0", 24),
    (dtypes.u2, "uint2", 25),
    (dtypes.i2, "int2", 26),
    (dtypes.f6e2m3fn, "float6e2m3", 27),
    (dtypes.f6e3m2fn, "float6e3m2", 28),
)
"""Our type, its word in `tensor(…)`, and its number in ONNX's TensorProto.DataType."""

_WORDS: Final = {dtype: word for dtype, word, _ in _ROWS}
_CODES: Final = {dtype: code for dtype, _, code in _ROWS}
_BY_CODE: Final = {code: dtype for dtype, _, code in _ROWS}


def type_text(dtype: DType) -> str:
    """`tensor(float)`."""
    return f"tensor({_WORDS[dtype]})"


def element_code(dtype: DType) -> int:
    """The type's number in ONNX."""
    return _CODES[dtype]


def element_dtype(element_type: object) -> DType:
    """The type behind a number of ONNX's, or behind what numpy takes as a type.

    Raises: UserError if there is none.
    """
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        found = _BY_CODE.get(element_type)
        if found is None:
            raise UserError(f"there is no element type {element_type}")
        return found
    try:
        if element_type is None:  # float64 for numpy
            raise TypeError
        given = np.dtype(cast("DTypeLike", element_type))
    except TypeError as error:
        raise UserError(f"there is no element type {element_type!r}") from error
    return dtypes.from_numpy(given)


@final
@record
class NodeArg:
    """An input or output.

    Attributes:
        name: its name.
        type: `tensor(float)` and the like.
        shape: sizes; dynamic dimensions are the names that the compiler gives them.
    """

    name: str
    type: str
    shape: list[int | str]

    @staticmethod
    def of(spec: TensorSpec) -> NodeArg:
        """The argument behind an input or output of a session."""
        shape = [dim if isinstance(dim, int) else str(dim) for dim in spec.shape]
        return NodeArg(spec.name, type_text(spec.dtype), shape)


@final
@record(kw_only=True)
class ModelMetadata:
    """What a model says about itself: its fields in ONNX; empty for an artifact, which keeps none of it."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict[str, str])
