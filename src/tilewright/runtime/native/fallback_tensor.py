"""DLPack capsules over ctypes: the twin of `native/src/python/tensor_capsule.c`."""

from __future__ import annotations

import ctypes
from typing import Final

_RANK_LIMIT: Final = 64
_CPU: Final = 1
_NAME: Final = b"dltensor"  # capsules keep the pointer


class _Tensor(ctypes.Structure):
    """`DLManagedTensor` of DLPack 1.0."""


_DELETER: Final = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_Tensor))
_DESTRUCTOR: Final = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_Tensor._fields_ = [  # it points to itself
    ("data", ctypes.c_void_p),
    ("device_type", ctypes.c_int32),
    ("device_id", ctypes.c_int32),
    ("rank", ctypes.c_int32),
    ("code", ctypes.c_uint8),
    ("bits", ctypes.c_uint8),
    ("lanes", ctypes.c_uint16),
    ("shape", ctypes.POINTER(ctypes.c_int64)),
    ("strides", ctypes.POINTER(ctypes.c_int64)),
    ("byte_offset", ctypes.c_uint64),
    ("manager_context", ctypes.c_void_p),
    ("deleter", _DELETER),
]
_ALIVE: Final[dict[int, tuple[object, ...]]] = {}
_IS_VALID: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_IsValid", ctypes.pythonapi)
)
_POINTER: Final = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_NEW: Final = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR
)(("PyCapsule_New", ctypes.pythonapi))


@_DELETER
def _delete(tensor: ctypes._Pointer[_Tensor]) -> None:  # pyright: ignore[reportPrivateUsage]
    _ALIVE.pop(ctypes.addressof(tensor.contents), None)


@_DESTRUCTOR
def _destroy(capsule: int) -> None:
    if _IS_VALID(capsule, _NAME):
        _ALIVE.pop(_POINTER(capsule, _NAME), None)


def tensor_capsule(
    owner: object, address: int, shape: tuple[int, ...], code: int, bits: int, lanes: int, /
) -> object:
    """A DLPack capsule of dense memory at an address, which keeps `owner` alive."""
    if len(shape) > _RANK_LIMIT:
        raise ValueError(f"shape: rank {len(shape)}, at most {_RANK_LIMIT}")
    if any(size < 0 for size in shape):
        raise ValueError("shape: a size is below 0")
    strides = [1] * len(shape)
    for axis in range(len(shape) - 1, 0, -1):
        strides[axis - 1] = strides[axis] * shape[axis]
    row = ctypes.c_int64 * len(shape)
    sizes = row(*shape), row(*strides)
    tensor = _Tensor(
        data=address,
        device_type=_CPU,
        rank=len(shape),
        code=code,
        bits=bits,
        lanes=lanes,
        shape=ctypes.cast(sizes[0], ctypes.POINTER(ctypes.c_int64)),
        strides=ctypes.cast(sizes[1], ctypes.POINTER(ctypes.c_int64)),
        deleter=_delete,
    )
    _ALIVE[ctypes.addressof(tensor)] = (owner, tensor, sizes)
    return _NEW(ctypes.addressof(tensor), _NAME, _destroy)
