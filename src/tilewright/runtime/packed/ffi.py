"""The one place that imports tvm-ffi: late, and without dragging in torch.

tvm-ffi imports torch when it finds it, which takes seconds and a gigabyte of memory for something that
works as well without: torch's tensors say themselves how they are exchanged.  So torch is hidden from
that import, in the thread that does it, unless the process has it already.

Every other file of ours takes `tvm_ffi` from here.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Final, final

import numpy as np

from tilewright.base import errors

__all__ = ["opaque", "tvm_ffi"]

_HIDDEN: Final = "torch"


@final
class _Hidden:
    """Finds no torch for the thread that made it."""

    def __init__(self) -> None:
        self._thread: int = threading.get_ident()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        del path, target
        if name == _HIDDEN and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("hidden while tvm_ffi is imported", name=name)


def _import_tvm_ffi() -> ModuleType:
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        return importlib.import_module("tvm_ffi")
    finally:
        sys.meta_path.remove(hidden)


if TYPE_CHECKING:
    import tvm_ffi
else:
    tvm_ffi = _import_tvm_ffi()


def opaque(value: object) -> tvm_ffi.Object:
    """An object of Python for passing on, which comes out as the same object.

    tvm-ffi does so by itself with objects that it does not know, unless they can be called.
    """
    made: tvm_ffi.Object = vars(tvm_ffi.core)["_convert_to_opaque_object"](value)
    return made


# Exceptions that are to arrive as what they were; any other arrives as a RuntimeError with its message.
_EXCEPTIONS: Final[tuple[type[BaseException], ...]] = (
    ArithmeticError,
    BufferError,
    EOFError,
    FileNotFoundError,
    FloatingPointError,
    ImportError,
    KeyboardInterrupt,
    LookupError,
    NotImplementedError,
    OSError,
    OverflowError,
    PermissionError,
    RecursionError,
    TimeoutError,
    ZeroDivisionError,
    errors.TilewrightError,
    errors.UserError,
    errors.ModelError,
    errors.TargetError,
    errors.ArchiveError,
    errors.ScheduleError,
    errors.InputError,
    errors.DeviceError,
    errors.LimitError,
)


def _memory_error_of_numpy() -> type[MemoryError]:
    """What numpy raises where memory ends; it has no public name."""
    try:
        np.empty(sys.maxsize, np.uint8)
    except MemoryError as error:
        return type(error)
    return MemoryError


def _register_errors() -> None:
    from_name = tvm_ffi.core.ERROR_NAME_TO_TYPE
    for cls in _EXCEPTIONS:
        if cls.__name__ not in from_name:
            tvm_ffi.register_error(cls.__name__, cls)
    # The class of numpy's own arrives as what it is one of: it cannot be made of a message.
    tvm_ffi.core.ERROR_TYPE_TO_NAME[_memory_error_of_numpy()] = MemoryError.__name__
    # An `InternalError` alone is tvm-ffi's or TVM's, and no bug of ours.
    tvm_ffi.register_error("tilewright.InternalError", errors.InternalError)


_register_errors()
