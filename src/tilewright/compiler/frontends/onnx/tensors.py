"""ONNX tensors as numpy arrays, without copying where the bytes are already at hand.

Reads inline, typed, sparse and external data, checks every size against the declared shape, and
keeps external files inside the model's folder.  Not about graph values; called by the importer
for initializers, constants and attribute tensors.

Source: onnx.proto3 (TensorProto, SparseTensorProto), ONNX ExternalData.md.
"""

from __future__ import annotations

import math
import mmap
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final, final

import numpy as np
from numpy.typing import NDArray
from onnx import SparseTensorProto, TensorProto

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.input_file import why_no_file
from tilewright.base.record import field, record
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.graph.schema import Array

_T: Final = TensorProto
DTYPES: Final[dict[int, DType]] = {
    _T.FLOAT: dtypes.f32,
    _T.UINT8: dtypes.u8,
    _T.INT8: dtypes.i8,
    _T.UINT16: dtypes.u16,
    _T.INT16: dtypes.i16,
    _T.INT32: dtypes.i32,
    _T.INT64: dtypes.i64,
    _T.BOOL: dtypes.bool_,
    _T.FLOAT16: dtypes.f16,
    _T.DOUBLE: dtypes.f64,
    _T.UINT32: dtypes.u32,
    _T.UINT64: dtypes.u64,
    _T.BFLOAT16: dtypes.bf16,
    _T.FLOAT8E4M3FN: dtypes.f8e4m3fn,
    _T.FLOAT8E5M2: dtypes.f8e5m2,
    _T.UINT4: dtypes.u4,
    _T.INT4: dtypes.i4,
    _T.FLOAT8E4M3FNUZ: dtypes.f8e4m3fnuz,
    _T.FLOAT8E5M2FNUZ: dtypes.f8e5m2fnuz,
    # By number: older releases of onnx have no name for them.
    23: dtypes.f4e2m1fn,
    24: dtypes.f8e8m0fnu,
    25: dtypes.u2,
    26: dtypes.i2,
    27: dtypes.f6e2m3fn,
    28: dtypes.f6e3m2fn,
}
CODES: Final = {dtype: code for code, dtype in DTYPES.items()}
MAX_BYTES: Final = 1 << 40
_SHOWN: Final = 200
"""Letters of a path of the model's that a message repeats."""
_LONGEST: Final = 4096
"""Letters of a path: systems open no longer one, but to follow one takes time by the square of it."""

# Which repeated field holds the elements when there is no raw data; the rest is in int32_data.
_TYPED_FIELDS: Final = {
    dtypes.f32: "float_data",
    dtypes.f64: "double_data",
    dtypes.i64: "int64_data",
    dtypes.u32: "uint64_data",
    dtypes.u64: "uint64_data",
}
# Stored in int32_data as bit patterns, not as values.
_PATTERNS: Final[dict[DType, type[np.generic]]] = {
    dtypes.f16: np.uint16,
    dtypes.bf16: np.uint16,
    **dict.fromkeys(dtypes.SMALL_FLOATS, np.uint8),
}
# Types whose elements share bytes; the others take whole bytes each, as 6-bit floats do.
_SHARED: Final = (*dtypes.SMALL_INTEGERS, dtypes.f4e2m1fn)


_AS_PARTS: Final = (
    "give real and imaginary parts along a last axis of size 2, as ONNX's DFT does"
)


def dtype_name(code: int) -> str:
    """What ONNX calls element type `code`."""
    try:
        return str(_T.DataType.Name(code)).lower()
    except ValueError:
        return f"element type {code}"


def dtype_of(code: int) -> DType:
    """The row of ONNX element type `code`.

    Raises: UnsupportedError for strings, complex numbers and other types without a row.
    """
    found = DTYPES.get(code)
    if found is None:
        is_complex = code in (_T.COMPLEX64, _T.COMPLEX128)
        hint = _AS_PARTS if is_complex else None
        raise UnsupportedError(f"type {dtype_name(code)} is not supported", hint=hint)
    return found


@final
@record(frozen=False)
class BytesOutside:
    """Where tensor bytes outside the proto live.

    `data` and `token` belong to tensors that `wire.detach` took out of the model; `folder` is
    where the model lies, or None when it has no place on disk.
    """

    folder: Path | None = None
    data: memoryview | None = None
    token: str = ""
    _files: dict[Path, memoryview] = field(default_factory=dict[Path, memoryview])

    def read(self, tensor: TensorProto) -> memoryview:
        """The bytes that an external tensor refers to, mapped, bounds-checked.

        Raises: ModelError for a bad reference or a path outside the model's folder.
        """
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        data = self.data
        if data is None or location != self.token:
            data = self._map(self._path(location))
        offset = _number(entries.get("offset", "0"), "offset")
        rest = str(max(len(data) - offset, 0))
        length = _number(entries.get("length", rest), "length")
        if offset + length > len(data):
            raise ModelError(
                f"external data '{location[:_SHOWN]}' is cut: it has {len(data)} of at least "
                f"{offset + length} bytes",
                hint="get the file again, whole",
            )
        return data[offset : offset + length]

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of weights that were read so far."""
        return tuple(self._files)

    def _path(self, location: str) -> Path:
        """The file called `location`, proven to lie inside the model's folder."""
        if self.folder is None:
            raise ModelError(
                f"weights are in the external file '{location[:_SHOWN]}', but the model has no folder",
                hint="pass the path of the model instead of its bytes",
            )
        if len(location) > _LONGEST:
            raise ModelError(
                f"external data path '{location[:_SHOWN]}' has {len(location)} letters, expected at most {_LONGEST}"
            )
        pure = PurePosixPath(location)
        absolute = pure.is_absolute() or PureWindowsPath(location).anchor
        if not location or absolute or "\0" in location:
            raise ModelError(
                f"external data path '{location[:_SHOWN]}' is not a relative path"
            )
        if ".." in pure.parts or ".." in PureWindowsPath(location).parts:
            raise ModelError(
                f"external data path '{location[:_SHOWN]}' leaves the model's folder"
            )
        root = self.folder.resolve()
        try:
            path = (root / pure).resolve()
            problem = why_no_file(path)
        except (OSError, RuntimeError) as error:  # too long, links in a circle
            raise ModelError(
                f"external data path '{location[:_SHOWN]}' leads nowhere"
            ) from error
        if not path.is_relative_to(root):
            raise ModelError(
                f"external data path '{location[:_SHOWN]}' leads outside the model's folder"
            )
        if problem is not None:
            raise ModelError(
                f"external data '{location[:_SHOWN]}': {problem}",
                hint=f"expected it in {root}",
            )
        return path

    def _map(self, path: Path) -> memoryview:
        found = self._files.get(path)
        if found is None:
            try:
                found = self._files[path] = map_file(path)
            except OSError as error:
                raise ModelError(
                    f"external data '{path.name}' cannot be read: {error.strerror or error}"
                ) from error
        return found


def map_file(path: Path) -> memoryview:
    """The contents of a file, mapped read-only."""
    with path.open("rb") as stream:
        if path.stat().st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))


def _number(text: str, subject: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise ModelError(f"external data has {subject} '{text[:40]}', expected a number")
    return int(text)


def shape_of(dims: object, limit_bytes: int = MAX_BYTES) -> tuple[int, ...]:
    """Dimensions of a stored tensor.  Raises: ModelError for negative or absurd ones."""
    shape = tuple(int(d) for d in dims)  # pyright: ignore[reportGeneralTypeIssues]
    if any(d < 0 for d in shape):
        raise ModelError(f"tensor has shape {list(shape)}, dimensions must not be negative")
    if math.prod(d for d in shape if d) > limit_bytes or len(shape) > 64:
        raise ModelError(f"tensor has shape {list(shape)[:8]}, which is too large")
    return shape


def to_array(tensor: TensorProto, storage: BytesOutside) -> Array:
    """The elements of `tensor`, a view of its bytes when those are stored as they are.

    Raises: ModelError for data that does not fit the shape; UnsupportedError for its type.
    """
    dtype = dtype_of(tensor.data_type)
    shape = shape_of(tensor.dims)
    if tensor.data_location == _T.EXTERNAL:
        return _from_bytes(storage.read(tensor), dtype, shape)
    if tensor.HasField("raw_data"):
        return _from_bytes(memoryview(tensor.raw_data), dtype, shape)
    return _from_fields(tensor, dtype, shape)


def _from_bytes(data: memoryview, dtype: DType, shape: tuple[int, ...]) -> Array:
    expected = _stored_bytes(dtype, shape)
    if len(data) != expected:
        raise ModelError(
            f"tensor {dtype}{list(shape)} has {len(data)} bytes of data, expected {expected}"
        )
    if dtype in _SHARED:
        return _unpack(np.frombuffer(data, np.uint8), dtype, shape)
    if dtype.is_bool:
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    return np.frombuffer(data, dtype.numpy).reshape(shape)


def _stored_bytes(dtype: DType, shape: tuple[int, ...]) -> int:
    bits = dtype.bits if dtype in _SHARED else 8 * dtype.itemsize
    return (math.prod(shape) * bits + 7) // 8


def _unpack(packed: NDArray[np.uint8], dtype: DType, shape: tuple[int, ...]) -> Array:
    """One element per byte from several per byte, the lowest bits first."""
    mask = (1 << dtype.bits) - 1
    parts = [(packed >> shift) & mask for shift in range(0, 8, dtype.bits)]
    values = np.stack(parts, axis=-1).reshape(-1)[: math.prod(shape)]
    if dtype.is_float:
        return values.view(dtype.numpy).reshape(shape)
    if dtype.is_signed:
        sign = 1 << (dtype.bits - 1)
        values = (values.astype(np.int8) ^ sign) - sign
    # Last: what numpy computes of an array without axes is none.
    return values.astype(dtype.numpy).reshape(shape)


def _from_fields(tensor: TensorProto, dtype: DType, shape: tuple[int, ...]) -> Array:
    name = _TYPED_FIELDS.get(dtype, "int32_data")
    stored = getattr(tensor, name)
    count = math.prod(shape)
    expected = _stored_bytes(dtype, shape) if dtype in _SHARED else count
    if len(stored) != expected:
        raise ModelError(
            f"tensor {dtype}{list(shape)} has {len(stored)} elements in {name}, "
            f"expected {expected}"
        )
    if name != "int32_data":
        return np.array(stored, dtype.numpy).reshape(shape)
    values = np.array(stored, np.int32)
    if dtype in _SHARED:
        return _unpack(values.astype(np.uint8), dtype, shape)
    pattern = _PATTERNS.get(dtype)
    if pattern is not None:
        return values.astype(pattern).view(dtype.numpy).reshape(shape)
    return values.astype(dtype.numpy).reshape(shape)


def to_text(tensor: TensorProto) -> Array:
    """The elements of a tensor of strings, as `str` objects.

    Raises: ModelError for data that does not fit the shape.
    """
    shape = shape_of(tensor.dims)
    stored = [v.decode("utf-8", "replace") for v in tensor.string_data]
    if len(stored) != math.prod(shape):
        raise ModelError(f"tensor of {list(shape)} strings has {len(stored)} elements")
    found = np.empty(len(stored), object)
    found[:] = stored
    return found.reshape(shape)


def initializer_array(
    tensor: TensorProto | SparseTensorProto, storage: BytesOutside
) -> Array:
    """The elements of an initializer of any form; strings as `str` objects.  Raises: as the functions of the forms."""
    if not isinstance(tensor, TensorProto):
        return sparse_to_array(tensor, storage)
    return to_text(tensor) if tensor.data_type == _T.STRING else to_array(tensor, storage)


def is_same(array: Array, other: Array) -> bool:
    """Whether two arrays agree in type, shape and every bit."""
    if (array.dtype, array.shape) != (other.dtype, other.shape):
        return False
    if array.dtype == object:
        return array.tolist() == other.tolist()
    return array.tobytes() == other.tobytes()


def sparse_to_array(sparse: SparseTensorProto, storage: BytesOutside) -> Array:
    """A sparse tensor written out in full.

    Raises: ModelError for indices outside the shape or of a wrong form.
    """
    shape = shape_of(sparse.dims, 1 << 32)
    values = to_array(sparse.values, storage).reshape(-1)
    stored = to_array(sparse.indices, storage)
    if stored.dtype != np.int64:
        raise ModelError("sparse tensor has indices that are not int64")
    indices = stored.astype(np.int64)
    flat: NDArray[np.int64]
    if indices.ndim == 2 and indices.shape == (len(values), len(shape)):
        upper = np.array(shape, np.int64)
        if np.any(indices < 0) or np.any(indices >= upper):
            raise ModelError(f"sparse tensor has indices outside {list(shape)}")
        flat = np.asarray(np.ravel_multi_index(tuple(indices.T), shape), np.int64)
    elif indices.shape == (len(values),):
        flat = indices
    else:
        raise ModelError(
            f"sparse tensor has indices of shape {list(indices.shape)} for "
            f"{len(values)} values of a tensor of rank {len(shape)}"
        )
    result = np.zeros(math.prod(shape), values.dtype)
    if np.any(flat < 0) or np.any(flat >= result.size):
        raise ModelError(f"sparse tensor has indices outside {list(shape)}")
    result[flat] = values
    return result.reshape(shape)
