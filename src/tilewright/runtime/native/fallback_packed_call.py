"""`PackedCall` over ctypes: packed functions of tvm-ffi on buffers of known types.

Source: tvm/ffi/c_api.h (TVMFFIAny, TVMFFIFunctionCell) of tvm-ffi 0.1, DLPack 1.1.
Called by `fallback`.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from tilewright.runtime.native.fallback_memory import buffer_address

_FIRST_OBJECT: Final = 64
_TENSOR: Final = 70
_CPU: Final = 1
_CELL_OFFSET: Final = 24  # of the address of the code in a function's object

TensorRow = tuple[int, int, int, tuple[int, ...]]


class _Any(ctypes.Structure):
    _fields_ = (
        ("type_index", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("pointer", ctypes.c_void_p),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("type_code", ctypes.c_uint8),
        ("type_bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint32 * 2),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


_SafeCall: Final = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.POINTER(_Any),
    ctypes.c_int32,
    ctypes.POINTER(_Any),
)
_LAST: Final = threading.local()


def _fail_again(*_: object) -> int:
    return getattr(_LAST, "status", -1)


_FAIL_AGAIN: Final = _SafeCall(_fail_again)
# What the tensors that were handed out keep, by the address of their description.
_HELD: Final[dict[int, object]] = {}


def _let_go(address: int) -> None:
    _HELD.pop(address, None)


_DELETER: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_let_go)


def _prepared(row: TensorRow, extents: Any) -> _Tensor:
    """The tensor of a row, its shape and strides in `extents`; without data."""
    code, bits, _, shape = row
    tensor = _Tensor(device_type=_CPU, rank=len(shape), type_code=code, type_bits=bits)
    tensor.lanes = 1
    stride = 1
    for axis in reversed(range(len(shape))):
        extents[axis], extents[len(shape) + axis] = shape[axis], stride
        stride *= max(shape[axis], 1)
    tensor.shape = ctypes.cast(extents, ctypes.POINTER(ctypes.c_int64))
    start = ctypes.addressof(extents) + 8 * len(shape)
    tensor.strides = ctypes.cast(start, ctypes.POINTER(ctypes.c_int64))
    return tensor


class PackedCall:
    """A packed function whose arguments are tensors of types that are known before."""

    def __init__(
        self,
        function: int,
        tensors: Sequence[TensorRow],
        owner: object,
        fail: Callable[[], object],
    ) -> None:
        if not function:
            raise ValueError("function: no address")
        if any(extent < 0 for *_, shape in tensors for extent in shape):
            raise ValueError("tensors: a type, a rank or a size is out of range")
        self._function: int = function
        self._owner: object = owner
        self._fail: Callable[[], object] = fail
        self._sizes: list[int] = [size * math.prod(shape) for _, _, size, shape in tensors]
        self._extents: list[Any] = [
            (ctypes.c_int64 * max(2 * len(shape), 1))() for *_, shape in tensors
        ]
        self._tensors: list[_Tensor] = [
            _prepared(row, extents)
            for row, extents in zip(tensors, self._extents, strict=True)
        ]

    @staticmethod
    def fail_again() -> int:
        """The address of a packed function that fails as the thread's last call did."""
        return ctypes.cast(_FAIL_AGAIN, ctypes.c_void_p).value or 0

    def __call__(self, *buffers: object) -> None:
        """Call the function on one buffer per tensor."""
        count = len(self._tensors)
        if len(buffers) != count:
            raise TypeError(f"got {len(buffers)} buffers, expected {count}")
        views = [self._view(i, buffer) for i, buffer in enumerate(buffers)]
        arguments = (_Any * max(count, 1))()
        library = ctypes.CDLL(None)  # where tvm-ffi's is loaded for all to see
        for i, view in enumerate(views):
            arguments[i].type_index = _TENSOR
            arguments[i].pointer = self._hold(i, view, library)
        try:
            self._run(arguments, count, library)
        finally:
            for argument in arguments[:count]:
                library.TVMFFIObjectDecRef(ctypes.c_void_p(argument.pointer))

    def _hold(self, index: int, view: memoryview, library: Any) -> int:
        """The address of a new tensor that keeps `view`."""
        managed = _Managed(tensor=self._tensors[index])
        managed.version[0] = 1
        managed.deleter = ctypes.cast(_DELETER, ctypes.c_void_p)
        managed.tensor.data = buffer_address(view)
        _HELD[ctypes.addressof(managed)] = (managed, view, self)
        made = ctypes.c_void_p()
        code = library.TVMFFITensorFromDLPackVersioned(
            ctypes.byref(managed), 0, 0, ctypes.byref(made)
        )
        if code != 0:
            _let_go(ctypes.addressof(managed))
            raise RuntimeError("tvm-ffi does not take the tensor")
        return made.value or 0

    def _view(self, index: int, buffer: object) -> memoryview:
        view = memoryview(cast("bytes", buffer))
        if view.nbytes != self._sizes[index]:
            raise ValueError(
                f"tensor {index}: buffer of {view.nbytes} bytes, "
                f"expected {self._sizes[index]}"
            )
        return view

    def _run(self, arguments: Any, count: int, library: Any) -> None:
        cell = ctypes.c_void_p.from_address(self._function + _CELL_OFFSET)
        result = _Any()
        function = _SafeCall(cell.value or 0)
        _LAST.status = function(self._function, arguments, count, ctypes.byref(result))
        if _LAST.status != 0:
            self._fail()
            raise RuntimeError("a packed function failed and left no error")
        if result.type_index >= _FIRST_OBJECT:
            library.TVMFFIObjectDecRef(ctypes.c_void_p(result.pointer))
