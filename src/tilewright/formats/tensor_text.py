"""Tensors on the command line: IREE's grammar for `--input`, `--output` and `--expected-output`.

    2x3xf32=1 2 3 4 5 6     values, brackets and commas allowed; one value = splat; none = zeros
    f32=1.5   3.5           rank 0, and a bare scalar (i32 or f32 by its look)
    2x3xf32=@file.bin       raw bytes; `+file.bin` goes on where the last read ended
    @file.npy               its first array; `+file.npy` the next one, `*file.npy` all that remain

Outputs: `-` prints, `@file.npy` writes, `+file.npy` appends, `@file.bin` raw, empty ignores.  Not
a place that knows models; called by the CLI's verbs.

Source: `iree-run-module --help` (release 3.13).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import Final, cast, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.errors import InputError, UserError
from tilewright.base.output_file import check_output, is_regular_output, open_output
from tilewright.formats.numpy_files import Array, NumpyFileError, read_npy

_TYPE: Final = re.compile(r"^((?:[0-9]{1,99}x)*)([a-z][a-z0-9]*)$")
_PLACE: Final = re.compile(r"(?:^|=)[@+*](.+)", re.DOTALL)
_ALIASES: Final = {
    "si8": "i8", "si16": "i16", "si32": "i32", "si64": "i64",
    "ui8": "u8", "ui16": "u16", "ui32": "u32", "ui64": "u64", "i1": "bool",
}  # fmt: skip
_NUMBER_LIMIT: Final = 1024
_GRAMMAR: Final = "write 2x3xf32=1 2 3 4 5 6, f32=1.5, @file.npy or 2x3xf32=@file.bin"
_FILE_LIMIT_BYTES: Final = 1 << 40


@final
class TensorReader:
    """Reads a list of `--input` values; keeps files open between `@` and `+`."""

    def __init__(self) -> None:
        self._files: dict[Path, BufferedReader] = {}

    def read(self, values: Sequence[str]) -> list[Array]:
        """The arrays that `values` describe, in order (`*file` may give several).

        Raises: InputError naming the value and what is wrong with it.
        """
        try:
            return [array for value in values for array in self._read_one(value)]
        finally:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _read_one(self, value: str) -> list[Array]:
        if value[:1] in ("@", "+", "*"):
            return self._read_npy(value)
        if value[:1] == "&" or value == "(null)":
            raise InputError(
                "storage arguments and null references are not supported",
                location=f"'{value}'",
                hint="results are returned; pass inputs only",
            )
        head, equals, tail = value.partition("=")
        match = _TYPE.match(head.strip())
        if match is None:
            return [_scalar(value)]
        dtype = _parse_type(match[2], value)
        shape = tuple(int(d) for d in match[1].split("x") if d)
        if tail[:1] in ("@", "+"):
            return [self._read_raw(value, tail, dtype, shape)]
        return [_literal(value, tail if equals else "", dtype, shape)]

    def _open(self, value: str, mark: str, name: str) -> BufferedReader:
        path = Path(name)
        try:
            if mark == "@" or path not in self._files:
                if path in self._files:
                    self._files[path].close()
                self._files[path] = path.open("rb")
        except OSError as error:
            raise _unreadable(value, name, error) from error
        return self._files[path]

    def _read_npy(self, value: str) -> list[Array]:
        file = self._open(value, value[0], value[1:])
        arrays: list[Array] = []
        try:
            while not arrays or (value[0] == "*" and _has_more(file)):
                arrays.append(read_npy(file))
        except (NumpyFileError, OSError) as error:
            hint = "numpy.save writes one" if value.lower().endswith(".npz") else None
            raise InputError(
                f"not a .npy file: {error}", location=f"'{value}'", hint=hint
            ) from error
        return arrays

    def _read_raw(
        self, value: str, tail: str, dtype: DType, shape: tuple[int, ...]
    ) -> Array:
        file = self._open(value, tail[0], tail[1:])
        wanted = math.prod(shape) * dtype.numpy.itemsize
        try:
            data = file.read(min(wanted, _FILE_LIMIT_BYTES))
        except OSError as error:
            raise _unreadable(value, tail[1:], error) from error
        if len(data) != wanted:
            raise InputError(
                f"file has {len(data)} bytes left, expected {wanted}", location=f"'{value}'"
            )
        return np.frombuffer(data, dtype.numpy).reshape(shape)


def is_type(text: str) -> bool:
    """Whether it is a type, with or without a shape: `f32`, `2x3xf32`."""
    match = _TYPE.match(text)
    if match is None:
        return False
    try:
        dtypes.parse(_ALIASES.get(match[2], match[2]))
    except UserError:
        return False
    return True


def is_tensor(text: str) -> bool:
    """Whether it begins as a tensor does that is more than a bare number: a file, or a type."""
    return text[:1] in ("@", "+", "*") or is_type(text.partition("=")[0])


def files_of(values: Sequence[str]) -> list[str]:
    """The files that `--input` and `--expected-output` values name."""
    return [found[1] for value in values if (found := _PLACE.search(value))]


def _has_more(file: BufferedReader) -> bool:
    return bool(file.peek(1))


def _parse_type(name: str, value: str) -> DType:
    try:
        return dtypes.parse(_ALIASES.get(name, name))
    except UserError as error:
        is_name = not any(character.isdigit() for character in name)
        hint = _GRAMMAR if is_name else error.hint or _GRAMMAR
        raise InputError(error.message, location=f"'{value}'", hint=hint) from error


def _scalar(value: str) -> Array:
    is_integer = re.fullmatch(r"\s*[+-]?\d+\s*", value) is not None
    try:
        with np.errstate(over="ignore"):
            return (
                np.array(int(value), np.int32)
                if is_integer
                else np.array(_float(value), np.float32)
            )
    except (ValueError, OverflowError) as error:
        raise InputError("not a tensor", location=f"'{value}'", hint=_GRAMMAR) from error


def _literal(value: str, text: str, dtype: DType, shape: tuple[int, ...]) -> Array:
    words = [word for word in re.split(r"[\s,\[\]]+", text) if word]
    count = math.prod(shape)
    if len(words) not in (0, 1, count):
        raise InputError(
            f"got {len(words)} values, expected {count} (or 1 for all)",
            location=f"'{value}'",
        )
    try:
        numbers = [_number(w, dtype) for w in words]
        with np.errstate(over="ignore"):  # too large for the type is infinity
            array = np.array(numbers, dtype.numpy)
        if len(words) == count and words:
            return array.reshape(shape)
        return np.full(shape, array[0] if words else 0, dtype.numpy)
    except (ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"bad value: {error}", location=f"'{value}'") from error


def _number(word: str, dtype: DType) -> float:
    if word in ("true", "false"):
        return word == "true"
    return _float(word) if dtype.is_float else int(word, 0)


def _float(word: str) -> float:
    return float.fromhex(word) if "0x" in word.lower() else float(word)


def check_outputs(outputs: Sequence[str], inputs: Sequence[str]) -> None:
    """Say before the work which `--output` cannot be written.

    Args:
        outputs: as for `write_outputs`.
        inputs: the files that are read.

    Raises: UserError for a file that is an input, that another output overwrites, or that cannot
        be written.
    """
    begun: set[str] = set()
    for output in outputs:
        if output[:1] not in ("@", "+"):
            continue
        check_output(output[1:], inputs=inputs)
        place = str(Path(output[1:]).resolve())
        if place in begun and output[0] == "@" and is_regular_output(place):
            raise UserError(
                "two results go to this file, the second would overwrite the first",
                location=output[1:],
                hint=f"--output=+{output[1:]} appends",
            )
        begun.add(place)


def write_outputs(
    arrays: Sequence[Array], outputs: Sequence[str], *, limit: int = _NUMBER_LIMIT
) -> list[str]:
    """Do with each array what its `--output` says; without any, print all.

    Returns: the lines to print.  Raises: UserError when a file cannot be written.
    """
    wanted = list(outputs) or ["-"] * len(arrays)
    if len(wanted) != len(arrays):
        raise UserError(f"got {len(wanted)} --output for {len(arrays)} results")
    lines: list[str] = []
    for index, (array, output) in enumerate(zip(arrays, wanted, strict=True)):
        if output == "-":
            lines.append(f"result[{index}]: hal.buffer_view")
            lines.append(format_tensor(array, limit=limit))
        elif output:
            _write_file(array, output)
    return lines


def _write_file(array: Array, output: str) -> None:
    if output[0] not in "@+":
        raise UserError(f"--output '{output}': expected -, @file or +file")
    with open_output(output[1:], append=output[0] == "+") as file:
        if Path(output[1:]).suffix.lower() == ".npy":
            np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
        else:
            file.write(np.ascontiguousarray(array).tobytes())


def format_tensor(array: Array, *, limit: int = _NUMBER_LIMIT) -> str:
    """`2x2xf32=[1 2][3 4]`, with at most `limit` numbers."""
    dtype = dtypes.from_numpy(array.dtype)
    name = "i1" if dtype.is_bool else dtype.name
    head = "".join(f"{d}x" for d in array.shape) + name
    budget = [limit]
    body = _format_nested(array, budget) if array.ndim else _format_number(array[()])
    return f"{head}={body}"


def _format_nested(array: Array, budget: list[int]) -> str:
    if array.ndim == 1:
        shown = array[: max(budget[0], 0)]
        budget[0] -= len(array)
        return " ".join(map(_format_number, shown)) + (
            "..." if len(shown) < len(array) else ""
        )
    parts: list[str] = []
    for row in array:
        if budget[0] <= 0:
            parts.append("...")
            break
        parts.append(f"[{_format_nested(row, budget)}]")
    return "".join(parts)


def _format_number(value: object) -> str:
    if isinstance(value, np.bool_ | bool):
        return str(int(value))
    if isinstance(value, np.integer):
        return str(int(value))
    return f"{float(cast('np.floating', value)):.6G}"


def _unreadable(value: str, name: str, error: OSError) -> InputError:
    return InputError(
        f"cannot read '{name}': {error.strerror or error}", location=f"'{value}'"
    )


def compare(
    index: int, actual: Array, expected: Array, *, rtol: float, atol: float
) -> str | None:
    """What differs, in one line, or None when `actual` matches."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return (
            f"result[{index}]: got {actual.dtype}{list(actual.shape)}, "
            f"expected {expected.dtype}{list(expected.shape)}"
        )
    wide = (np.asarray(a).astype(np.float64) for a in (actual, expected))
    a, b = wide
    bad = ~np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True)
    if not bad.any():
        return None
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"result[{index}]: {int(bad.sum())} of {bad.size} elements differ, first at "
        f"{list(place)}: got {a[place]:.6G}, expected {b[place]:.6G}"
    )
