"""Packed functions: calls with any number of arguments of any kind, whoever made either side.

They are tvm-ffi's, and so is the registry of global ones: what is registered here is found by every
library and package in the process that uses tvm-ffi, and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, overload

from tilewright.base.errors import InputError
from tilewright.base.options import text_option
from tilewright.base.text import did_you_mean
from tilewright.runtime.native.raised_error import failing_address, has_raised
from tilewright.runtime.packed.ffi import tvm_ffi

PackedFunction: TypeAlias = "tvm_ffi.Function"


def packed_function(call: Callable[..., Any]) -> PackedFunction:
    """The packed function of a Python callable; one that is packed already is given back.

    Tensors arrive in it as `tvm_ffi.Tensor` (`numpy.from_dlpack` and `torch.from_dlpack` take them
    without a copy), arrays and maps as tvm-ffi's, everything else as Python's own.

    Raises: InputError for something that cannot be called.
    """
    if isinstance(call, tvm_ffi.Function):
        return call
    if not callable(call):
        raise InputError(f"no function: '{type(call).__name__}', expected a callable")
    return tvm_ffi.convert_func(call)


def function_at(address: int, *, keep_alive: object | None = None) -> PackedFunction:
    """The packed function at an address of compiled code.

    Args:
        address: of `int f(void*, const TVMFFIAny* args, int32_t count, TVMFFIAny* result)`, which does
            not look at its first argument.  Nobody can check that: a wrong address ends the process.
        keep_alive: lives as long as the function; what has loaded the code.
    """
    if address <= 0:
        raise InputError(f"no function at address {address}")
    return tvm_ffi.Function.__from_extern_c__(address, keep_alive_object=keep_alive)


_FAILS = function_at(failing_address())


def take_raised() -> BaseException | None:
    """What a packed function raised in this thread, behind a call of C that only gave a status; None: nothing."""
    if not has_raised(tvm_ffi.LIB):
        return None
    try:
        _FAILS()
    except BaseException as error:
        return error
    return None


@overload
def get_global_func(name: str, allow_missing: Literal[False] = False) -> PackedFunction: ...


@overload
def get_global_func(name: str, allow_missing: bool) -> PackedFunction | None: ...


def get_global_func(name: str, allow_missing: bool = False) -> PackedFunction | None:
    """The function that is registered under `name`.

    Args:
        name: as it was registered, from Python or from a library.
        allow_missing: give None for a name that nobody registered.

    Raises: InputError for such a name otherwise, with the closest known ones.
    """
    name = text_option("name", name, "the name of a function")
    found = tvm_ffi.get_global_func(name, allow_missing=True)
    if found is None and not allow_missing:
        known = tvm_ffi.registry.list_global_func_names()
        hint = did_you_mean(name, known) or (
            "register it first: tilewright.register_global_func(name, function)"
        )
        raise InputError(f"no global function '{name}'", hint=hint)
    return found


@overload
def register_global_func(
    name: str, function: Callable[..., Any], override: bool = False
) -> PackedFunction: ...


@overload
def register_global_func(
    name: str, function: None = None, override: bool = False
) -> Callable[[Callable[..., Any]], PackedFunction]: ...


def register_global_func(
    name: str, function: Callable[..., Any] | None = None, override: bool = False
) -> PackedFunction | Callable[[Callable[..., Any]], PackedFunction]:
    """Register a function for everybody in this process; without `function` a decorator.

    Args:
        name: what others ask for; dots separate whose it is (`my_package.add`).
        function: a Python callable or a packed function.
        override: replace the one that has the name.

    Returns: the packed function.
    Raises: InputError for a name that is taken.
    """
    name = text_option("name", name, "the name of a function")
    if function is None:
        return lambda given: register_global_func(name, given, override)
    if not override and tvm_ffi.get_global_func(name, allow_missing=True) is not None:
        raise InputError(
            f"the global function '{name}' is there already",
            hint="replace it: override=True, or remove_global_func(name) first",
        )
    registered: PackedFunction = tvm_ffi.register_global_func(
        name, packed_function(function), override
    )
    return registered


def remove_global_func(name: str) -> None:
    """Forget a global function; those who hold it may still call it.

    Raises: InputError for a name that nobody registered.
    """
    get_global_func(name)
    tvm_ffi.remove_global_func(name)


def list_global_func_names() -> list[str]:
    """The names of all global functions."""
    return sorted(tvm_ffi.registry.list_global_func_names())
