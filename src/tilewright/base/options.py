"""What callers pass as options, checked where they come in: a mistake is said in the option's terms.

Every check returns the value in the form that the rooms below expect, or raises a `UserError` of
one form: `threads is 'two', expected a number of 1 or more`.  Not for the contents of models and
archives (their errors have locations).  Called by the functions that users call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, TypeVar, cast

import numpy as np

from tilewright.base.errors import InputError, UserError
from tilewright.base.foreign_tensors import unmasked
from tilewright.base.text import beginning, did_you_mean

Value = TypeVar("Value")
_SHOWN = 80
_LARGEST_DIM = (1 << 63) - 1


def wrong(name: str, value: object, expected: str, hint: str | None = None) -> UserError:
    """The error for an option that makes no sense."""
    shown = beginning(repr(value), _SHOWN)
    return UserError(f"{name} is {shown}, expected {expected}", hint=hint)


def count_option(
    name: str, value: object, *, least: int = 1, most: int | None = None
) -> int:
    """A whole number.  Raises: UserError for another type, a bool, or one out of range."""
    expected = f"a number of {least} or more"
    if most is not None:
        expected = f"a number from {least} to {most}"
    if isinstance(value, bool):
        raise wrong(name, value, expected)
    try:
        number = operator.index(cast("Any", value))
    except TypeError as error:
        raise wrong(name, value, expected) from error
    if number < least or (most is not None and number > most):
        raise wrong(name, value, expected)
    return number


def real_option(name: str, value: object) -> float:
    """A number from 0 on, numpy's included.  Raises: UserError, for NaN and a bool, too."""
    expected = "a number of 0 or more"
    number = _float_of(name, value, expected)
    if not number >= 0:
        raise wrong(name, value, expected)
    return number


def finite_option(name: str, value: object) -> float:
    """A number of either sign, numpy's included.  Raises: UserError, for NaN, infinities and a bool, too."""
    expected = "a finite number"
    number = _float_of(name, value, expected)
    if not math.isfinite(number):
        raise wrong(name, value, expected)
    return number


def _float_of(name: str, value: object, expected: str) -> float:
    """A number, numpy's included.  Raises: UserError, for a bool and what no float can be, too."""
    if isinstance(value, bool) or not isinstance(
        value, (int, float, np.floating, np.integer)
    ):
        raise wrong(name, value, expected)
    try:
        return float(cast("float", value))
    except OverflowError as error:
        raise wrong(name, value, expected) from error


def flag_option(name: str, value: object) -> bool:
    """True or False, numpy's included.  Raises: UserError, for a text that says `no`, too."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise wrong(name, value, "True or False")


def choice_option(name: str, value: object, choices: Collection[str]) -> str:
    """One of some words.  Raises: UserError."""
    if isinstance(value, str) and value in choices:
        return value
    hint = did_you_mean(value, choices) if isinstance(value, str) else None
    raise wrong(name, value, " or ".join(map(repr, choices)), hint)


def names_option(name: str, value: object, subject: str) -> tuple[str, ...]:
    """Several texts.  Raises: UserError, for a single one, too."""
    expected = f"a sequence of {subject}"
    if isinstance(value, (str, bytes)):
        raise wrong(name, value, expected, f"{name}=[{value!r}]")
    if not isinstance(value, Iterable):
        raise wrong(name, value, expected)
    items = tuple(cast("Iterable[object]", value))
    for item in items:
        if not isinstance(item, str):
            raise wrong(f"one of {name}", item, "a text")
    return cast("tuple[str, ...]", items)


def text_option(name: str, value: object, subject: str) -> str:
    """A text.  Raises: UserError."""
    if isinstance(value, str):
        return value
    raise wrong(name, value, subject)


def path_option(name: str, value: object) -> str:
    """The name of a file.  Raises: UserError for what is none."""
    if isinstance(value, (str, PathLike)):
        path = fspath(cast("str | PathLike[str]", value))
        if isinstance(path, str) and path and "\0" not in path:
            return path
    raise wrong(name, value, "the path of a file")


def paths_option(name: str, value: object) -> tuple[str, ...]:
    """Names of files.  Raises: UserError, for a single one, too."""
    if isinstance(value, (str, bytes, PathLike)):
        text = repr(value if isinstance(value, bytes) else str(cast("Any", value)))
        raise wrong(name, value, "a sequence of paths", f"{name}=[{text}]")
    if not isinstance(value, Sequence):
        raise wrong(name, value, "a sequence of paths")
    items = cast("Sequence[object]", value)
    return tuple(path_option(f"{name}[{i}]", item) for i, item in enumerate(items))


def mapping_option(name: str, value: object, example: str) -> Mapping[str, object]:
    """A mapping from names.  Raises: UserError."""
    if not isinstance(value, Mapping):
        raise wrong(name, value, "a mapping by input names", f"{name}={example}")
    members = cast("Mapping[object, object]", value)
    for key in members:
        if not isinstance(key, str):
            raise wrong(
                f"a key of {name}", key, "the name of an input", f"{name}={example}"
            )
    return cast("Mapping[str, object]", members)


def values_option(name: str, value: object) -> Mapping[str, np.ndarray]:
    """Arrays by input; numbers and lists of them become arrays.  Raises: UserError naming what becomes none."""
    given = mapping_option(name, value, "{'shape': [1, 128]}")
    return {key: _array(f"{name}['{key}']", item) for key, item in given.items()}


def _array(name: str, value: object) -> np.ndarray:
    """Raises: UserError for elements below a mask, and what holds other than numbers (text, objects, dates, records)."""
    is_foreign = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        array = np.from_dlpack(cast("Any", value)) if is_foreign else unmasked(value)
    except InputError as error:
        raise InputError(error.message, location=name, hint=error.hint) from error
    except (
        Exception
    ) as error:  # of rows of different lengths, and whatever an array of others raises
        raise wrong(name, value, "an array of numbers") from error
    # Types of ml_dtypes are `V`, as records are, which have names.
    if array.dtype.kind not in "biufcV" or array.dtype.names is not None:
        raise wrong(name, value, "an array of numbers")
    return array


def shapes_option(name: str, value: object) -> Mapping[str, tuple[int | str, ...]]:
    """Shapes by input: sizes and names.  Raises: UserError naming the input and the axis."""
    example = "{'x': (1, 'sequence')}"
    return {
        key: _shape(f"{name}['{key}']", shape)
        for key, shape in mapping_option(name, value, example).items()
    }


def sizes_option(name: str, value: object) -> Mapping[str, int]:
    """Sizes by dimension.  Raises: UserError."""
    if not isinstance(value, Mapping):
        raise wrong(
            name, value, "a mapping by names of dimensions", f"{name}={{'batch': 4}}"
        )
    members = cast("Mapping[object, object]", value)
    return {
        text_option(f"a key of {name}", key, "the name of a dimension"): count_option(
            f"{name}['{key}']", size, least=0, most=_LARGEST_DIM
        )
        for key, size in members.items()
    }


def _shape(name: str, value: object) -> tuple[int | str, ...]:
    hint = "a name makes a dimension dynamic: (1, 'sequence')"
    if isinstance(value, (str, bytes)) or not hasattr(value, "__iter__"):
        raise wrong(name, value, "a sequence of sizes and names", hint)
    dims: list[int | str] = []
    for axis, dim in enumerate(cast("Sequence[object]", value)):
        if isinstance(dim, str):
            dims.append(dim)
            continue
        try:
            dims.append(count_option(name, dim, least=0, most=_LARGEST_DIM))
        except UserError as error:
            raise wrong(f"axis {axis} of {name}", dim, "a size or a name", hint) from error
    return tuple(dims)


def methods_option(
    name: str, value: Value, methods: Sequence[str], otherwise: str = ""
) -> Value:
    """An object with some methods.  Raises: UserError naming them, after what else goes."""
    if all(callable(getattr(value, method, None)) for method in methods):
        return value
    names = " and ".join(f"{method}()" for method in methods)
    raise wrong(name, value, f"{otherwise}an object with {names}")


def progress_option(value: Value) -> Value:
    """Who watches, or whether anybody does.  Raises: UserError."""
    if value is None or isinstance(value, bool):
        return value
    return methods_option("progress", value, ("phase", "advance"), "True, or ")
