"""Errors of calls of Relax functions: ours, and of the kinds that TVM raises in the same place.

Who catches `ValueError` around TVM's virtual machine catches the same here.
"""

from __future__ import annotations

from typing import final

from tilewright.base.errors import InputError
from tilewright.runtime.packed.ffi import tvm_ffi


@final
class ArgumentTypeError(InputError, TypeError):
    """Something else than a tensor, a shape, a tuple, a number, a function; or too many arguments."""


@final
class ArgumentValueError(InputError, ValueError):
    """A tensor, shape or tuple of another type or rank."""


@final
class ArgumentMatchError(InputError, RuntimeError):
    """A size that differs from what the function was compiled for, or from another size of the call."""


# They arrive as what they were behind a call that compiled code passed on.
for _error in (ArgumentTypeError, ArgumentValueError, ArgumentMatchError):
    tvm_ffi.register_error(_error.__name__, _error)
