"""Devices as arguments of packed functions: tvm-ffi's, which are DLPack's.

Not here: the devices that run something (`tilewright.runtime.hal`).
"""

from __future__ import annotations

from typing import TypeAlias

from tilewright.base.errors import InputError
from tilewright.runtime.packed.ffi import tvm_ffi

Device: TypeAlias = "tvm_ffi.Device"


def device(name: str, index: int | None = None) -> Device:
    """The device called `name` (`cpu`, `cuda`, `opencl`, `cuda:1`, ...) with an index, 0 by default.

    Whether this machine has it is found out by whoever uses it.

    Raises: InputError for a name that DLPack does not have.
    """
    try:
        return tvm_ffi.device(name, index)
    except (ValueError, TypeError) as error:
        raise InputError(f"no device '{name}': {error}") from error


def cpu(index: int = 0) -> Device:
    """The host."""
    return device("cpu", index)
