"""Calls of packed functions as C makes them: tensors are `DLTensor*`, which are good for the call only."""

from __future__ import annotations

import ctypes
from typing import Any

import tvm_ffi

_INT, _TENSOR, _TEXT = 1, 7, 8
_HEADER_BYTES = 24


class _Any(ctypes.Structure):
    """A value of tvm-ffi."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("zero", ctypes.c_uint32),
        ("value", ctypes.c_void_p),
    )


def call_with_borrowed(function: tvm_ffi.Function, *given: Any) -> None:
    """Call as C does that passes `DLTensor*`, which is good for the call only."""
    texts = [one.encode() if isinstance(one, str) else None for one in given]
    rows = (_Any * len(given))()
    for row, one, text in zip(rows, given, texts, strict=True):
        if text is not None:
            row.kind, row.value = (
                _TEXT,
                ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value,
            )
        elif isinstance(one, int):
            row.kind, row.value = _INT, one
        else:
            row.kind, row.value = _TENSOR, one.__chandle__() + _HEADER_BYTES
    result = _Any()
    call = tvm_ffi.LIB.TVMFFIFunctionCall
    call.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    assert call(function.__chandle__(), rows, len(given), ctypes.byref(result)) == 0
