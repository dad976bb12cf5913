"""Inputs and outputs of `run` by name, and archives of numpy (`.npz`), beside IREE's grammar.

    --input=VALUE  --input=NAME=VALUE  --input=@all.npz      (VALUE as in `formats.tensor_text`)
    --output=WHERE --output=NAME=WHERE --output=@all.npz     (WHERE: -, @y.npy, +y.npy, @y.bin)

Names are those of the session; an input is given once.  Called by the verbs that call a model.
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from tilewright.base.errors import InputError, UserError
from tilewright.base.output_file import open_output
from tilewright.base.text import did_you_mean
from tilewright.formats.numpy_files import NumpyFileError, read_npz
from tilewright.formats.tensor_spec import TensorSpec
from tilewright.formats.tensor_text import (
    Array,
    TensorReader,
    is_tensor,
    is_type,
    write_outputs,
)

_ARCHIVE: Final = ".npz"
_PLAIN_KEYS: Final = "arr_"  # what numpy calls arrays that were saved without names


def read_inputs(
    values: Sequence[str], names: Sequence[str], specs: Sequence[TensorSpec] = ()
) -> tuple[list[Array], dict[str, Array]]:
    """The arrays that `--input` gives by position and by name.

    Args:
        values: what was given, in order.
        names: of the inputs.
        specs: types of inputs, where they are known: an archive with an array of another element type or rank, or of
            another size where there is a number, is refused before it is unpacked.

    Raises: InputError naming the value and what is wrong with it.
    """
    plain: list[str] = []
    named: dict[str, Array] = {}
    shapes = {spec.name: spec for spec in specs}
    for value in values:
        if _is_archive(value):
            found = _read_archive(value, names, shapes)
        else:
            name = _name_of(value, names)
            if name is None:
                plain.append(value)
                continue
            found = {name: _read_one(value[len(name) + 1 :], name, shapes)}
        twice = sorted(named.keys() & found.keys())
        if twice:
            raise InputError(f"input '{twice[0]}' is given twice", location=f"'{value}'")
        named |= found
    try:
        return TensorReader().read(plain), named
    except InputError:
        for value in plain:
            head, equals, tail = value.partition("=")
            hint = did_you_mean(head, names)
            if is_tensor(tail) and not (is_type(head) or head[:1].isdigit()):
                hint = hint or f"inputs: {', '.join(names)}"
            if equals and hint:
                raise InputError(f"there is no input '{head}'", hint=hint) from None
        raise


def _is_archive(value: str) -> bool:
    return value.startswith("@") and value.endswith(_ARCHIVE)


def _name_of(value: str, names: Sequence[str]) -> str | None:
    """The longest name that `value` begins with, before an equals sign."""
    fitting = [name for name in names if value.startswith(f"{name}=")]
    return max(fitting, key=len, default=None)


def _read_one(value: str, name: str, specs: Mapping[str, TensorSpec]) -> Array:
    if _is_archive(value):

        def only(keys: Sequence[str]) -> Sequence[str]:
            if name not in keys:
                raise _missing(name, keys, value)
            return [name]

        return _load(value, only, lambda _: specs.get(name))[name]
    arrays = TensorReader().read([value])
    if len(arrays) != 1:
        raise InputError(f"has {len(arrays)} arrays, expected one", location=f"'{value}'")
    return arrays[0]


def _read_archive(
    value: str, names: Sequence[str], specs: Mapping[str, TensorSpec]
) -> dict[str, Array]:
    given: list[str] = []

    def choose(keys: Sequence[str]) -> Sequence[str]:
        given.extend(_checked_keys(keys, names, value))
        return given

    def spec_of(key: str) -> TensorSpec | None:
        return specs.get(names[given.index(key)] if _are_plain(given, names) else key)

    arrays = _load(value, choose, spec_of)
    if _are_plain(given, names):
        return dict(zip(names, arrays.values(), strict=False))
    return arrays


def _are_plain(keys: Sequence[str], names: Sequence[str]) -> bool:
    """Whether the arrays have the names that numpy gives to those without."""
    return all(key.startswith(_PLAIN_KEYS) and key not in names for key in keys)


def _checked_keys(keys: Sequence[str], names: Sequence[str], value: str) -> Sequence[str]:
    """All of them, if they fit.  Raises: InputError, before anything is unpacked."""
    if _are_plain(keys, names):
        if len(keys) > len(names):
            raise InputError(
                f"has {len(keys)} arrays, expected at most {len(names)}",
                location=f"'{value}'",
            )
        return keys
    unknown = [key for key in keys if key not in names]
    if unknown:
        raise InputError(
            f"there is no input '{unknown[0]}'",
            location=f"'{value}'",
            hint=did_you_mean(unknown[0], names) or f"inputs: {', '.join(names)}",
        )
    return keys


def _load(
    value: str,
    choose: Callable[[Sequence[str]], Iterable[str]],
    spec_of: Callable[[str], TensorSpec | None],
) -> dict[str, Array]:
    path = value[1:]

    def check(key: str, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
        spec = spec_of(key)
        if spec is None or (spec.fits(shape) and dtype == spec.dtype.numpy):
            return
        sizes = ", ".join(map(str, shape))
        order = "" if dtype.isnative else " of the other byte order"
        raise InputError(
            f"'{key}' is {dtype.name}[{sizes}]{order}, expected {spec}",
            location=f"'{value}'",
            hint=_conversion(dtype, spec) if spec.fits(shape) else None,
        )

    try:
        return read_npz(path, choose, check)
    except OSError as error:
        raise InputError(
            f"cannot read '{path}': {error.strerror or error}", location=f"'{value}'"
        ) from error
    except NumpyFileError as error:
        raise InputError(f"not a .npz file: {error}", location=f"'{value}'") from error


def _conversion(dtype: np.dtype[Any], spec: TensorSpec) -> str | None:
    """How numbers of another type come to be of the one that is wanted."""
    is_number = dtype.kind in "biuf" and dtype.isnative
    return f"convert it with .astype('{spec.dtype.numpy}')" if is_number else None


def _missing(name: str, keys: Sequence[str], value: str) -> InputError:
    known = f"arrays: {', '.join(keys)}"
    return InputError(
        f"has no array '{name}'",
        location=f"'{value}'",
        hint=did_you_mean(name, keys) or known,
    )


def check_output_names(outputs: Sequence[str], names: Sequence[str]) -> None:
    """Say before the work which `--output` names nothing, and whether there are enough.  Raises: UserError."""
    for output in outputs:
        head, equals, _ = output.partition("=")
        is_place = output[:1] in ("@", "+", "-", "")
        if equals and not is_place and _name_of(output, names) is None:
            hint = did_you_mean(head, names) or f"outputs: {', '.join(names)}"
            raise UserError(f"there is no output '{head}'", hint=hint)
    plain, rest = _unnamed(outputs, names)
    if plain and len(plain) != len(rest):
        raise UserError(
            f"got {len(plain)} --output for {len(rest)} results",
            hint=f"one for each of {', '.join(rest)}, or by name: --output={rest[0]}=@file.npy"
            if rest
            else "every result has one by name",
        )


def _unnamed(outputs: Sequence[str], names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Every `--output` that goes by its place, and the results that none names."""
    by_name = {_name_of(output, names) for output in outputs}
    plain = [o for o in outputs if _name_of(o, names) is None and not _is_archive(o)]
    return plain, [name for name in names if name not in by_name]


def places_of(outputs: Sequence[str]) -> list[str]:
    """Where the outputs go, without their names."""
    return [
        o if o[:1] in ("@", "+", "-", "") else o.partition("=")[2] or o for o in outputs
    ]


def write_results(
    results: Sequence[Array], names: Sequence[str], outputs: Sequence[str], *, limit: int
) -> list[str]:
    """Do with the results what every `--output` says; without any, print all.

    Returns: the lines to print.  Raises: UserError when a file cannot be written.
    """
    by_name = dict(zip(names, results, strict=True))
    plain, rest = _unnamed(outputs, names)
    lines: list[str] = []
    for output in outputs:
        name = _name_of(output, names)
        if _is_archive(output):
            _write_archive(output[1:], by_name)
        elif name is not None and _is_archive(output[len(name) + 1 :]):
            _write_archive(output[len(name) + 2 :], {name: by_name[name]})
        elif name is not None:
            found = write_outputs([by_name[name]], [output[len(name) + 1 :]], limit=limit)
            lines += [f"{name}:", *found[1:]] if found else []
    if plain or not outputs:
        pairs = zip(results, names, strict=True)
        held = [result for result, name in pairs if name in rest]
        lines += write_outputs(held, plain, limit=limit)
    return lines


def _write_archive(path: str, arrays: Mapping[str, Array]) -> None:
    # Not numpy's savez: a result may be called as one of its parameters.
    with open_output(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, np.asarray(array), allow_pickle=False)
