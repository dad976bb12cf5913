"""What callers pass as options, checked where they come in: a mistake is said in the option's terms.

Every check returns the value in the form that the rooms below expect, or raises a `UserError` of
one form: `threads is 'two', expected a number of 1 or more`.  Not for the contents of models and
archives (their errors have locations).  Called by the functions that users call.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from os import PathLike, fspath
from typing import Any, TypeVar, cast

import numpy as np

from tilewright.base.errors import UserError
from tilewright.base.text import did_you_mean

Value = TypeVar("Value")
_SHOWN = 80


def wrong(name: str, value: object, expected: str, hint: str | None = None) -> UserError:
    """The error for an option that makes no sense."""
    text = repr(value)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return UserError(f"{name} is {shown}, expected {expected}", hint=hint)


def count_option(name: str, value: object, *, least: int = 1) -> int:
    """A whole number.  Raises: UserError for another type, a bool, or a smaller one."""
    expected = f"a number of {least} or more"
    if isinstance(value, bool):
        raise wrong(name, value, expected)
    try:
        number = operator.index(cast("Any", value))
    except TypeError as error:
        raise wrong(name, value, expected) from error
    if number < least:
        raise wrong(name, value, expected)
    return number


def flag_option(name: str, value: object) -> bool:
    """True or False, numpy's included.  Raises: UserError, for a text that says `no`, too."""
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise wrong(name, value, "True or False")


def choice_option(name: str, value: object, choices: Collection[str]) -> str:
    """One of some words.  Raises: UserError."""
    if isinstance(value, str) and value in choices:
        return value
    hint = did_you_mean(value, choices) if isinstance(value, str) else None
    raise wrong(name, value, " or ".join(map(repr, choices)), hint)


def text_option(name: str, value: object, what: str) -> str:
    """A text.  Raises: UserError."""
    if isinstance(value, str):
        return value
    raise wrong(name, value, what)


def path_option(name: str, value: object) -> str:
    """The name of a file.  Raises: UserError for what is none."""
    if isinstance(value, (str, PathLike)):
        path = fspath(cast("str | PathLike[str]", value))
        if isinstance(path, str):
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


def values_option(name: str, value: object) -> Mapping[str, object]:
    """Values by input.  Raises: UserError naming the one that is no array."""
    given = mapping_option(name, value, "{'shape': [1, 128]}")
    for key, item in given.items():
        is_array = hasattr(item, "__array__") or hasattr(item, "__dlpack__")
        if not is_array and (
            isinstance(item, str) or np.asarray(item).dtype.kind not in "biufc"
        ):
            raise wrong(f"{name}['{key}']", item, "an array of numbers")
    return given


def shapes_option(name: str, value: object) -> Mapping[str, tuple[int | str, ...]]:
    """Shapes by input: sizes and names.  Raises: UserError naming the input and the axis."""
    example = "{'x': (1, 'sequence')}"
    return {
        key: _shape(f"{name}['{key}']", shape)
        for key, shape in mapping_option(name, value, example).items()
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
            dims.append(count_option(name, dim, least=0))
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
