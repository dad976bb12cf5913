"""OrtValue: a tensor under onnxruntime's name.  A numpy array with its type; always on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.api.inference.node_arg import element_code, element_dtype, type_text
from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import UserError
from tilewright.base.options import count_option, wrong
from tilewright.runtime.plan_executor import Array, as_array

_CPU_NAMES: Final = ("cpu",)
_LARGEST_BYTES: Final = 1 << 47  # that a process can address


@final
class OrtValue:
    """A tensor; made by its static methods.

    Ownership: shares the memory of the array it was made from.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array: Array = array

    @staticmethod
    def ortvalue_from_numpy(
        numpy_obj: object, device_type: str = "cpu", device_id: int = 0
    ) -> OrtValue:
        """A value over an array's memory.  Raises: UserError for a device that is not the CPU."""
        check_device(device_type, device_id)
        return OrtValue(as_array(numpy_obj))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int],
        element_type: object,
        device_type: str = "cpu",
        device_id: int = 0,
    ) -> OrtValue:
        """A value whose elements are not set.

        Raises: UserError for an unknown type or a device that is not the CPU.
        """
        check_device(device_type, device_id)
        dtype = element_dtype(element_type)
        return OrtValue(np.empty(checked_shape(shape, dtype), dtype.numpy))

    @staticmethod
    def from_dlpack(data: object, is_bool_tensor: bool = False) -> OrtValue:
        """A value over the memory of any tensor on the CPU.

        Args:
            data: the tensor.
            is_bool_tensor: take its u8 as bool, which DLPack did not always have.

        Raises: InputError for what is no tensor; UserError for a bool tensor of another type.
        """
        array = as_array(data)
        if not is_bool_tensor or array.dtype == np.bool_:
            return OrtValue(array)
        if array.dtype != np.uint8:
            raise UserError(f"the bool tensor is {array.dtype}, expected uint8")
        return OrtValue(array.view(np.bool_))

    def __dlpack__(self, **options: Any) -> object:
        return cast("Any", self._array).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def __repr__(self) -> str:
        return f"<OrtValue {self.data_type()} {self.shape()}>"

    def numpy(self) -> Array:
        """The tensor as an array, without a copy."""
        return self._array

    def shape(self) -> list[int]:
        """The sizes."""
        return list(self._array.shape)

    def element_type(self) -> int:
        """The type's number in ONNX."""
        return element_code(self._dtype)

    def data_type(self) -> str:
        """`tensor(float)` and the like."""
        return type_text(self._dtype)

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def device_name(self) -> str:
        """Where it is."""
        return "cpu"

    def tensor_size_in_bytes(self) -> int:
        """The size of all elements."""
        return int(self._array.nbytes)

    def has_value(self) -> bool:
        """True: values without content are never made."""
        return True

    def is_tensor(self) -> bool:
        """True: there are no other kinds."""
        return True

    def is_tensor_sequence(self) -> bool:
        """False: there are no other kinds."""
        return False

    def is_sparse_tensor(self) -> bool:
        """False: there are no other kinds."""
        return False

    def update_inplace(self, np_arr: object) -> None:
        """Overwrite the elements.  Raises: UserError if type or shape differ."""
        array = as_array(np_arr)
        check_place(self._array, array, "the value")
        np.copyto(self._array, array)

    @property
    def _dtype(self) -> DType:
        return dtypes.from_numpy(self._array.dtype)


def check_device(device_type: str, device_id: int) -> None:
    """Raises: UserError for a device that is not the CPU."""
    if device_type not in _CPU_NAMES or device_id != 0:
        raise UserError(
            f"device '{device_type}:{device_id}' is not there, expected 'cpu:0'"
        )


def checked_value(name: str, value: object) -> OrtValue:
    """A value that a user passed.  Raises: UserError for anything else."""
    if isinstance(value, OrtValue):
        return value
    hint = "make one with OrtValue.ortvalue_from_numpy"
    raise UserError(
        f"'{name}' is a {type(value).__name__}, expected an OrtValue", hint=hint
    )


def checked_shape(shape: object, dtype: DType) -> tuple[int, ...]:
    """Sizes that memory can have.  Raises: UserError."""
    is_number = isinstance(shape, np.ndarray) and not shape.ndim
    if isinstance(shape, str | bytes) or is_number or not isinstance(shape, Iterable):
        raise wrong("shape", shape, "a sequence of sizes")
    sizes = tuple(
        count_option("a size of shape", size, least=0)
        for size in cast("Iterable[object]", shape)
    )
    size_bytes = math.prod(sizes) * dtype.itemsize
    if size_bytes > _LARGEST_BYTES:
        raise wrong("shape", shape, f"a tensor of at most {_LARGEST_BYTES} bytes")
    return sizes


def check_place(place: Array, array: Array, name: str) -> None:
    """Raises: UserError if an array does not fit where the user wants it, or that may not be written."""
    if not place.flags.writeable:
        raise UserError(f"{name} goes to memory that is read-only")
    if place.dtype != array.dtype or place.shape != array.shape:
        raise UserError(
            f"{name} is {place.dtype}{list(place.shape)}, "
            f"what is written to it {array.dtype}{list(array.shape)}"
        )
