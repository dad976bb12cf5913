"""Functions of JAX, compiled: called as the function is, with arrays of JAX or numpy in its own structure.

JAX exports the function as a portable artifact of StableHLO, which `compile` reads; only here is JAX imported,
and only when `from_jax` is called.  Called by users.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast, final

import numpy as np

from tilewright.api.model import Model
from tilewright.api.model import compile as compile_model
from tilewright.base.errors import InputError, ModelError, UserError
from tilewright.base.foreign_tensors import unmasked
from tilewright.compiler.frontends.stablehlo.exported import Exported
from tilewright.compiler.frontends.stablehlo.lapack import CALLS as LAPACK
from tilewright.compiler.frontends.stablehlo.sparse import CALLS as SPARSE
from tilewright.runtime.plan_executor import Array

_HINT: Final = "python -m pip install jax"
_CALLBACKS: Final = (
    "leave out jax.debug.print, jax.pure_callback and jax.experimental.io_callback"
)
_CALLED: Final = re.compile(r"custom_call @(\w+)")
_GENERATORS: Final = {
    "key<fry>": "threefry2x32", "key<rbg>": "rbg", "key<urbg>": "unsafe_rbg",
}  # fmt: skip
"""What generators of random numbers are called, by the types of their keys."""
_LENT_BYTES: Final = 128 << 10
"""Copying less takes JAX less time than to take over memory does."""


def from_jax(
    function: Callable[..., Any],
    *args: Any,
    options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> JaxFunction:
    """Compile a function of JAX for arguments of these shapes and types.

    Args:
        function: what `jax.jit` takes, or what it gave.
        args: arguments, or `jax.ShapeDtypeStruct` in their place; so are `kwargs`.
        options: for `tilewright.compile`: `{"threads": 2}`.
        kwargs: arguments by name.

    Returns: a function of the same arguments.  It gives arrays of JAX.
    Raises: UserError if JAX is not installed; ModelError listing everything that is not supported.
    """
    jax = _jax("jax")
    jitted: Any = function if hasattr(function, "trace") else jax.jit(_hashable(function))
    export = _jax("jax.export")
    # What the function itself raises stays what it is.
    jitted.trace(*args, **kwargs)
    # JAX does not promise that later versions know these calls; what is compiled at once needs no promise.
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in (*LAPACK, *SPARSE)]
    exporting = export.export(jitted, platforms=("cpu",), disabled_checks=checks)
    try:
        exported: Exported = exporting(*args, **kwargs)
    except (NotImplementedError, ValueError) as error:
        raise _refusal(error) from error
    return JaxFunction(exported, compile_model(cast("Any", exported), **(options or {})))


def _has_hash(function: object) -> bool:
    try:
        hash(function)
    except TypeError:
        return False
    return True


def _hashable(function: Callable[..., Any]) -> Callable[..., Any]:
    """What JAX looks up by its hash: modules of Equinox have arrays as fields, which have none."""
    if _has_hash(function):
        return function

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    called.__name__ = type(function).__name__
    return called


def _refusal(error: Exception) -> ModelError:
    """What JAX cannot export, in our words where they are known."""
    text = str(error)
    called = _CALLED.search(text)
    if called:
        return ModelError(f"custom call '{called[1]}' is not supported")
    if "host_callbacks" in text:
        return ModelError("calls of Python are not supported", hint=_CALLBACKS)
    return ModelError(f"jax cannot export the function: {text}")


def _jax(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{name} cannot be imported: {error}", hint=_HINT) from error


@final
class JaxFunction:
    """A compiled function of JAX.

    Attributes:
        model: the compiled model, whose inputs are the leaves of the arguments.
        exported: what JAX exported.

    Thread-safety: calls from several threads are independent.
    """

    def __init__(self, exported: Exported, model: Model) -> None:
        self.exported: Exported = exported
        self.model: Model = model
        self._structure: Any = exported.in_tree
        types: Sequence[Any] = cast("Any", exported).in_avals
        # Which leaves the module takes, and of what types; those of keys are their words.
        self._kept: tuple[tuple[int, Any], ...] = tuple(
            (index, _type_of_words(types[index].dtype))
            for index in exported.module_kept_var_idx
        )
        self._flatten: Callable[..., Any] = _jax("jax").tree_util.tree_flatten
        self._of_dlpack: Callable[..., Any] = _jax("jax.dlpack").from_dlpack
        self._copied: Callable[..., Any] = _jax("jax.numpy").asarray
        self._own: type = type(self._copied(0))
        # One call of JAX copies all arrays of a small result into their structure.
        self._finish: Callable[..., Any] = _jax("jax").jit(self._finished)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function gives, in its own structure.  Raises: InputError for other arguments."""
        leaves, structure = self._flatten((args, kwargs))
        if structure != self._structure:
            raise InputError(
                f"arguments have the structure {structure}, expected {self._structure}",
                location=self.exported.fun_name,
            )
        results = self.model(*self._given(leaves))
        listed = results if isinstance(results, tuple) else (results,)
        if max((array.nbytes for array in listed), default=0) < _LENT_BYTES:
            return self._finish(*listed)
        return self._finished(*map(self._lent, listed))

    def _given(self, leaves: Sequence[Any]) -> list[Array]:
        """What the model takes of the arguments: complex numbers are two arrays."""
        given: list[Array] = []
        for index, dtype in self._kept:
            leaf = leaves[index]
            kind = type(leaf)
            is_plain = kind is np.ndarray or kind is self._own
            array: Any = np.asarray(leaf) if is_plain else _array(leaf)
            if array.dtype is not dtype and array.dtype != dtype:
                array = _as_jax_takes(array, leaf, dtype)
            if array.dtype.kind == "c":
                # Not `ascontiguousarray`, which gives a number an axis.
                given += (np.array(array.real, order="C"), np.array(array.imag, order="C"))
            else:
                given.append(array)
        return given

    def _lent(self, array: Array) -> Any:
        """An array of JAX in the same memory where both sides agree, else a copy."""
        try:
            return self._of_dlpack(array)
        except (BufferError, TypeError, ValueError, RuntimeError):
            return self._copied(array)

    def _finished(self, *results: Any) -> Any:
        """What the model gave, in the structure of the function; traced by JAX where the results are small."""
        outputs = _joined(results, self.exported.out_avals)
        return self.exported.out_tree.unflatten(outputs)

    def __repr__(self) -> str:
        return f"<function of JAX '{self.exported.fun_name}': {self.model!r}>"


def _array(leaf: Any) -> Any:
    """An argument that is none of numpy's or JAX's own arrays: keys are their words."""
    if _is_key(getattr(leaf, "dtype", None)):
        leaf = _jax("jax.random").key_data(leaf)
    return unmasked(leaf)


def _as_jax_takes(array: Any, leaf: Any, dtype: Any) -> Any:
    """An array of 64 bits as the one of 32 that JAX makes of it, where that is asked for; else as it is.

    Numbers of Python that have no such form stay as they are, which the model refuses.
    """
    taken = _jax("jax.dtypes").canonicalize_dtype(array.dtype)
    if taken != dtype:
        return array
    narrow = array.astype(taken)
    return array if type(leaf) is int and narrow != leaf else narrow


def _type_of_words(dtype: Any) -> Any:
    """The type of numpy that an argument of the module has."""
    return np.dtype(np.uint32) if _is_key(dtype) else dtype


def _is_key(dtype: Any) -> bool:
    """Whether a type is that of keys of random numbers, which numpy has not."""
    return not isinstance(dtype, np.dtype) and str(dtype).startswith("key<")


def _joined(results: Sequence[Any], types: Sequence[Any]) -> list[Any]:
    """The results of the model as arrays of the types of the function."""
    rest, found = list(results), list[Any]()
    for type_ in types:
        is_key = _is_key(type_.dtype)
        is_complex = not is_key and np.dtype(type_.dtype).kind == "c"
        if len(rest) < 1 + is_complex:
            raise ModelError(f"gives fewer results than the {len(types)} of the function")
        result: Any = rest.pop(0)
        if is_complex:
            result = _jax("jax.lax").complex(result, rest.pop(0))
        elif not is_key and result.dtype != type_.dtype:
            result = result.astype(type_.dtype)  # of a kind that we hold in a wider one
        found.append(_keys(result, str(type_.dtype)) if is_key else result)
    return found


def _keys(words: Any, type_: str) -> Any:
    if type_ not in _GENERATORS:
        raise ModelError(f"keys of type {type_} are not supported")
    return _jax("jax.random").wrap_key_data(words, impl=_GENERATORS[type_])
