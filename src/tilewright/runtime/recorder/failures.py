"""What becomes of the exceptions of a replay: errors in a device's words.

Called by whoever runs a command list for a user.
"""

from __future__ import annotations

from typing import NoReturn

from tilewright.base.status import StatusCode, failure
from tilewright.runtime.native import KernelError


def raise_failure(error: RuntimeError | ValueError) -> NoReturn:
    """Raise what a replay raised as a device says it.

    Raises: DeviceError for a kernel that failed or got no memory (with the kernel's name), for a pool that was
    closed or a run that a fork cut (ABORTED), and for buffers that do not fit (INVALID_ARGUMENT).  A
    RecursionError is the caller's, and stays.
    """
    if isinstance(error, KernelError):
        raise error.for_user from error
    if isinstance(error, RecursionError):
        raise error
    is_value = isinstance(error, ValueError)
    code = StatusCode.INVALID_ARGUMENT if is_value else StatusCode.ABORTED
    raise failure(code, str(error)) from error
