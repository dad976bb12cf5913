"""The elements of a tensor as they stand between `dense<` and `>`.

One expression goes over all of them: a literal of a million numbers is as long as a file gets.
Called by `attribute_parser`.

Source: MLIR Language Reference, "Dense Typed Elements Attribute".
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Final, final

import ml_dtypes
import numpy as np

from tilewright.compiler.frontends.stablehlo.cursor import MAX_DEPTH, MAX_DIGITS, Cursor
from tilewright.compiler.frontends.stablehlo.elements import bits_of, numpy_of
from tilewright.compiler.frontends.stablehlo.tree import (
    ComplexType,
    Element,
    Place,
    TensorType,
)
from tilewright.compiler.frontends.stablehlo.type_parser import MAX_SIZE
from tilewright.compiler.graph.schema import Array

BODY: Final = re.compile(r"[^<>\"]*")
_COMMENT: Final = re.compile(r"//[^\n]*")
_ITEM: Final = re.compile(r"\s*([\[\](),]|[^\s\[\](),]+)")
_INTEGER: Final = re.compile(r"-?(?:\d+|0x[0-9a-fA-F]+)\Z")
_FLOAT: Final = re.compile(r"-?(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)\Z")
_WORDS: Final = {"true": 1, "false": 0}


def array_of(literal: str, type_: TensorType, cursor: Cursor, place: Place) -> Array:
    """The elements that a literal lists, in the shape of its type; a single one is repeated.

    Raises: ModelError where they do not fit the type; it names the `place` of the literal.
    """
    try:
        return _array(literal, type_)
    except (ValueError, OverflowError) as error:
        raise cursor.error(f"literal of {type_}: {error}", place) from error


def bytes_of(digits: str, type_: TensorType, cursor: Cursor, place: Place) -> Array:
    """The elements that a text of hexadecimal digits holds, little-endian."""
    try:
        return _from_bytes(bytes.fromhex(digits.removeprefix("0x")), type_)
    except ValueError as error:
        raise cursor.error(f"literal of {type_}: {error}", place) from error


def _shape_of(type_: TensorType) -> tuple[int, ...]:
    sizes = type_.shape
    if sizes is None or any(size is None for size in sizes):
        raise ValueError("the sizes of its type are no numbers")
    return tuple(size for size in sizes if size is not None)


def _numpy_of(type_: TensorType) -> np.dtype[np.generic]:
    """What numpy calls the elements of a type of known sizes, as long as it can have them."""
    found = numpy_of(type_.element)
    if found is None:
        raise ValueError(f"elements of type {type_.element} cannot be written down")
    if math.prod(_shape_of(type_)) * found.itemsize > MAX_SIZE:
        raise ValueError("no memory holds it")
    return found


def _from_bytes(data: bytes, type_: TensorType) -> Array:
    shape, dtype = _shape_of(type_), _numpy_of(type_)
    count = math.prod(shape)
    if dtype == np.bool_:
        return _truths(data, shape)
    if len(data) == dtype.itemsize:
        return np.broadcast_to(np.frombuffer(data, dtype).reshape(()), shape)
    if len(data) != count * dtype.itemsize:
        raise ValueError(f"got {len(data)} bytes, expected {count * dtype.itemsize}")
    return np.frombuffer(data, dtype).reshape(shape)


_ALIKE: Final = (b"\x00", b"\xff")
"""The byte that stands for any number of truth values, all false or all true."""


def _truths(data: bytes, shape: tuple[int, ...]) -> Array:
    """Truth values: a byte each, one byte for all, or close together with the first one in the lowest bit."""
    count = math.prod(shape)
    if len(data) == count:
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    if data in _ALIKE:
        return np.broadcast_to(np.bool_(data != _ALIKE[0]), shape)
    if len(data) != (count + 7) // 8:
        raise ValueError(f"got {len(data)} bytes, expected {(count + 7) // 8}")
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little")
    return bits.astype(np.bool_).reshape(shape)


def _array(literal: str, type_: TensorType) -> Array:
    shape, dtype = _shape_of(type_), _numpy_of(type_)
    text = _COMMENT.sub("", literal) if "//" in literal else literal
    words = _ITEM.findall(text)
    if not words:
        if math.prod(shape):
            raise ValueError("it has no elements")
        return np.zeros(shape, dtype)
    is_complex = isinstance(type_.element, ComplexType)
    found, elements = _nested(words, is_complex=is_complex)
    numbers = _numbers(elements, type_.element, dtype)
    if found is None:
        return np.broadcast_to(numbers.reshape(()), shape)
    if found != shape and not (0 in found and 0 in shape):
        raise ValueError(f"the elements are nested as {list(found)}")
    return numbers.reshape(shape)


def _nested(
    words: Sequence[str], *, is_complex: bool
) -> tuple[tuple[int, ...] | None, list[str]]:
    """The shape that brackets spell, None for a bare element, and the elements in order."""
    brackets = _Brackets()
    elements: list[str] = []
    for word in words:
        if word == "[":
            brackets.open()
        elif word == "]":
            brackets.close()
        elif word not in ",()":
            elements.append(word)
            brackets.count()
    if words[0] != "[":
        if len(elements) != 1 + is_complex:
            raise ValueError(f"got {len(elements)} elements without brackets")
        return None, elements
    return brackets.shape(len(elements), parts=1 + is_complex), elements


@final
class _Brackets:
    """The sizes that nested brackets spell; those of one level must be equal."""

    def __init__(self) -> None:
        self.sizes: list[int | None] = []
        self.counts: list[int] = []

    def open(self) -> None:
        if len(self.counts) >= MAX_DEPTH:
            raise ValueError(f"brackets nest deeper than {MAX_DEPTH} levels")
        self.counts.append(0)
        if len(self.sizes) < len(self.counts):
            self.sizes.append(None)

    def count(self) -> None:
        if self.counts:
            self.counts[-1] += 1

    def close(self) -> None:
        if not self.counts:
            raise ValueError("a bracket is closed that was not opened")
        level, count = len(self.counts) - 1, self.counts.pop()
        if self.sizes[level] is None:
            self.sizes[level] = count
        if self.sizes[level] != count:
            raise ValueError(
                f"one bracket has {count} elements, another {self.sizes[level]}"
            )
        self.count()

    def shape(self, elements: int, *, parts: int) -> tuple[int, ...]:
        """The shape, for elements of so many parts each."""
        if self.counts:
            raise ValueError("a bracket is not closed")
        shape = [size or 0 for size in self.sizes]
        if math.prod(shape) != elements or shape[-1] % parts:
            raise ValueError("the elements do not fill their brackets")
        shape[-1] //= parts
        return tuple(shape)


def _numbers(words: Sequence[str], element: Element, dtype: np.dtype[np.generic]) -> Any:
    if isinstance(element, ComplexType):
        part = np.dtype(np.float32 if element.part.name == "f32" else np.float64)
        return _floats(words, part).view(dtype)
    if _is_float(dtype):
        return _floats(words, dtype)
    return _integers(words, element, dtype)


def _is_float(dtype: np.dtype[np.generic]) -> bool:
    try:
        ml_dtypes.finfo(dtype)
    except ValueError:
        return False
    return True


def _floats(words: Sequence[str], dtype: np.dtype[np.generic]) -> Any:
    """Decimal numbers are rounded through f64, as MLIR does; hexadecimal ones are the bits."""
    if not any(word.startswith("0x") for word in words):
        return _narrowed(np.array([_float(word) for word in words], np.float64), dtype)
    found = np.empty(len(words), dtype)
    bits: Any = found.view(f"u{dtype.itemsize}")
    for index, word in enumerate(words):
        if word.startswith("0x"):
            bits[index] = int(word, 16)
        else:
            found[index] = _narrowed(np.array(_float(word), np.float64), dtype)
    return found


def _narrowed(numbers: Array, dtype: np.dtype[np.generic]) -> Any:
    """Numbers rounded to a type; what is too large for it becomes what the type has for that."""
    with np.errstate(over="ignore"):
        return numbers.astype(dtype)


def _float(word: str) -> float:
    if _FLOAT.match(word) is None or len(word) > MAX_DIGITS:
        raise ValueError(f"'{word[:20]}' is no float")
    return float(word)


def _integers(words: Sequence[str], element: Element, dtype: np.dtype[np.generic]) -> Any:
    values = [_integer(word) for word in words]
    if not values:
        return np.empty(0, dtype)
    if dtype == np.bool_:
        low, high = -1, 1
    else:
        bits, unsigned = bits_of(element), str(element).startswith("u")
        low = 0 if unsigned else -(1 << (bits - 1))
        high = (1 << bits) - 1 if unsigned else (1 << (bits - 1)) - 1
    for value in (min(values), max(values)):
        if not low <= value <= high:
            raise ValueError(f"{value} is out of range")
    # The four-bit types of ml_dtypes take no lists of Python's numbers.
    wide = np.uint64 if high >= 1 << 63 else np.int64
    return np.array(values, wide).astype(dtype)


def _integer(word: str) -> int:
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.match(word) is None or len(word) > MAX_DIGITS:
        raise ValueError(f"'{word[:20]}' is no whole number")
    return int(word, 16 if "x" in word else 10)
