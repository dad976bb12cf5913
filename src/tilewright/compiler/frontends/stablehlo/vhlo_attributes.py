"""Attributes and types of VHLO and of MLIR's own dialect, as the tree has them.

Each is read once, when it is first asked for.  An attribute that nothing needs (places, layouts) may be
of a kind that is not known here.  Called by the reader of artifacts.

Source: StableHLO, VHLO's bytecode encoding (codes of attributes and types); MLIR's builtin dialect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, final

import numpy as np

from tilewright.compiler.frontends.stablehlo.bytecode_cursor import ByteCursor
from tilewright.compiler.frontends.stablehlo.bytecode_file import BytecodeFile, Entry
from tilewright.compiler.frontends.stablehlo.cursor import MAX_DEPTH
from tilewright.compiler.frontends.stablehlo.elements import bits_of, numpy_of, whole_range
from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    ComplexType,
    Dense,
    DialectType,
    Element,
    Fields,
    FunctionType,
    Keyword,
    Number,
    QuantizedType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    TypeAttribute,
    why_no_bounds,
)
from tilewright.compiler.frontends.stablehlo.type_parser import (
    MAX_PARTS,
    MAX_RANK,
    MAX_SIZE,
)
from tilewright.compiler.graph.schema import Array

_SCALARS: Final = {
    0: "i1", 2: "bf16", 3: "f16", 4: "f32", 5: "f64", 6: "f8E4M3FN", 7: "f8E5M2", 9: "index",
    10: "i4", 11: "i8", 12: "i16", 13: "i32", 14: "i64", 15: "ui4", 16: "ui8", 17: "ui16",
    18: "ui32", 19: "ui64", 27: "f8E4M3FNUZ", 28: "f8E5M2FNUZ", 29: "f8E4M3B11FNUZ", 31: "i2",
    32: "ui2", 33: "none", 34: "tf32", 35: "f8E4M3", 36: "f8E3M4", 37: "f4E2M1FN",
    38: "f6E2M3FN", 39: "f6E3M2FN", 40: "f8E8M0FNU",
}  # fmt: skip
_BUILTIN_SCALARS: Final = {
    1: "index", 3: "bf16", 4: "f16", 5: "f32", 6: "f64", 22: "f8E5M2", 23: "f8E4M3", 24: "f8E4M3FN",
    25: "f8E5M2FNUZ", 26: "f8E4M3FNUZ", 27: "f8E4M3B11FNUZ", 28: "f8E3M4", 29: "f4E2M1FN",
    32: "f8E8M0FNU",
}  # fmt: skip
_UNSIGNED: Final = 2
_WORDS: Final = {
    3: ("EQ", "NE", "GE", "GT", "LE", "LT"),
    4: ("NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
    5: ("API_VERSION_UNSPECIFIED", "API_VERSION_ORIGINAL", "API_VERSION_STATUS_RETURNING",
        "API_VERSION_STATUS_RETURNING_UNIFIED", "API_VERSION_TYPED_FFI"),
    7: ("FFT", "IFFT", "RFFT", "IRFFT"),
    11: ("DEFAULT", "HIGH", "HIGHEST"),
    12: ("DEFAULT", "THREE_FRY", "PHILOX"),
    13: ("", "UNIFORM", "NORMAL"),
    16: ("TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
    19: ("DEFAULT", "HIGHEST", "TOLERANCE"),
}  # fmt: skip
_MINUS_ONE: Final = -(1 << 63)
_BITS: Final = 8
_MAX_WIDTH: Final = 1024
"""Of an integer, in bits: none that anything here computes with has more than 64."""


Found = TypeVar("Found")


@final
@dataclass(slots=True)
class _Nesting:
    """How many constants are being read, one inside of the other."""

    depth: int = 0


@final
class _Table(Generic[Found]):
    """Constants of one kind, each read when it is first asked for."""

    def __init__(
        self,
        kind: str,
        entries: list[Entry],
        read: Callable[[Entry, ByteCursor], Found],
        nesting: _Nesting,
    ) -> None:
        self.kind: str = kind
        self.entries: list[Entry] = entries
        self.read: Callable[[Entry, ByteCursor], Found] = read
        self.nesting: _Nesting = nesting
        self._known: dict[int, Found] = {}

    def at(self, index: int, cursor: ByteCursor) -> Found:
        """A constant by its number.  Raises: ModelError for one that is not there, or not known."""
        if index in self._known:
            return self._known[index]
        if index >= len(self.entries):
            count = len(self.entries)
            raise cursor.error(f"{self.kind} {index} is asked for, there are {count}")
        inner = self.entries[index].open()
        if self.nesting.depth >= MAX_DEPTH:
            raise inner.error(f"nests deeper than {MAX_DEPTH} levels")
        self.nesting.depth += 1
        self._known[index] = self.read(self.entries[index], inner)
        self.nesting.depth -= 1
        return self._known[index]


@final
class Constants:
    """The attributes and types of a file, by number."""

    def __init__(self, file: BytecodeFile) -> None:
        self.file: BytecodeFile = file
        nesting = _Nesting()
        self._attributes: _Table[Attribute] = _Table(
            "attribute", file.attributes, self._read_attribute, nesting
        )
        self._types: _Table[Type] = _Table("type", file.types, self._read_type, nesting)
        self._by_code: dict[int, Callable[[ByteCursor], Attribute]] = {
            1: self._array, 2: lambda c: bool(c.number()), 6: self._dictionary, 8: self._float,
            9: self._integer, 10: self._alias, 14: file.string, 15: self._tensor,
            17: lambda c: TypeAttribute(self.type(c)), 18: self._bounds, 20: self._accuracy,
            21: lambda c: self._named(c, "sub_axis_info", signed=("pre_size", "size")),
            22: lambda c: self._named(c, "axis_ref", ("name",), optional="sub_axis_info"),
            23: lambda c: self._named(c, "replica_group_mesh_axes", ("mesh", "axes")),
            24: lambda c: self._named(c, "mesh_axis", ("name",), ("size",)),
            25: self._mesh,
        }  # fmt: skip
        self._types_by_code: dict[int, Callable[[ByteCursor], Type]] = {
            1: self._complex, 8: self._function, 20: self._ranked, 21: self._with_encoding,
            22: lambda _: DialectType("stablehlo.token"), 23: self._tuple, 24: self._quantized,
            25: lambda c: TensorType(self.element(c), None), 30: self._per_axis, 41: self._buffer,
            42: self._future,
        }  # fmt: skip
        self._builtin_types: dict[int, Callable[[ByteCursor], Type]] = {
            9: self._complex, 13: self._ranked, 14: self._with_encoding,
        }  # fmt: skip

    # --- by number

    def attribute(self, cursor: ByteCursor) -> Attribute:
        """The attribute whose number is next.  Raises: ModelError for a kind that is not known."""
        return self.attribute_at(cursor.number(), cursor)

    def attribute_at(self, index: int, cursor: ByteCursor) -> Attribute:
        """An attribute by its number."""
        return self._attributes.at(index, cursor)

    def type(self, cursor: ByteCursor) -> Type:
        """The type whose number is next."""
        return self.type_at(cursor.number(), cursor)

    def type_at(self, index: int, cursor: ByteCursor) -> Type:
        """A type by its number."""
        return self._types.at(index, cursor)

    def element(self, cursor: ByteCursor) -> Element:
        """The next type, as one of elements.  Raises: ModelError for another."""
        found = self.type(cursor)
        if not isinstance(found, ScalarType | ComplexType | QuantizedType):
            raise cursor.error(f"{found} is no type of elements")
        return found

    def scalar(self, cursor: ByteCursor) -> ScalarType:
        """The next type, as one of numbers.  Raises: ModelError for another."""
        found = self.type(cursor)
        if not isinstance(found, ScalarType):
            raise cursor.error(f"{found} is no type of numbers")
        return found

    def place(self, cursor: ByteCursor) -> str:
        """The name in the place of an operation, as the program before it was exported had it."""
        index = cursor.number()
        for _ in range(MAX_DEPTH):
            if index >= len(self.file.attributes):
                raise cursor.error(f"attribute {index} is asked for")
            entry = self.file.attributes[index]
            if entry.dialect != "builtin" or not entry.is_coded:
                return ""
            inner = entry.open()
            code = inner.number()
            if code == _NAMED_PLACE:
                named = self.attribute(inner)
                return named if isinstance(named, str) else ""
            if code != _CALLED_PLACE:
                return ""
            index = inner.number()
        return ""

    # --- attributes

    def _read_attribute(self, entry: Entry, cursor: ByteCursor) -> Attribute:
        if not entry.is_coded:
            return Fields(entry.dialect, (cursor.text(),))
        code = cursor.number()
        if entry.dialect == "builtin":
            return self._builtin(code, cursor)
        if entry.dialect != "vhlo":
            # Notes for others, such as where a compiler for several devices shall put values.
            return Fields(entry.dialect)
        if code in _WORDS:
            index = cursor.number()
            if index >= len(_WORDS[code]):
                raise cursor.error(f"word {index} of attribute {code} is unknown")
            return Keyword(_WORDS[code][index])
        if code not in self._by_code:
            raise cursor.error(f"attribute of code {code} is unknown")
        return self._by_code[code](cursor)

    def _builtin(self, code: int, cursor: ByteCursor) -> Attribute:
        if code == 0:
            return tuple(self.attribute(cursor) for _ in range(cursor.count()))
        if code == 1:
            return self._dictionary(cursor)
        if code in (2, 3):
            return self.file.string(cursor)
        if code == 4:
            return self.attribute(cursor)
        if code == 6:
            return TypeAttribute(self.type(cursor))
        return Fields(f"builtin.{code}")

    def _array(self, cursor: ByteCursor) -> Attribute:
        return tuple(self.attribute(cursor) for _ in range(cursor.count()))

    def _dictionary(self, cursor: ByteCursor) -> Attribute:
        found: dict[str, Attribute] = {}
        for _ in range(cursor.count(2)):
            name = self.attribute(cursor)
            if not isinstance(name, str):
                raise cursor.error("the name of an attribute is no text")
            found[name] = self.attribute(cursor)
        return found

    def _float(self, cursor: ByteCursor) -> Attribute:
        type_ = self.scalar(cursor)
        numpy = numpy_of(type_)
        if numpy is None or not type_.name.startswith(("f", "bf")):
            raise cursor.error(f"{type_} is no type of floats")
        data = cursor.bits(bits_of(type_)).to_bytes(8, "little")
        value = float(np.frombuffer(data[: numpy.itemsize], numpy)[0])
        return Number(value, type_)

    def _integer(self, cursor: ByteCursor) -> Attribute:
        type_ = self.scalar(cursor)
        width = bits_of(type_)
        if not width:
            raise cursor.error(f"{type_} is no type of integers")
        value = cursor.bits(width) & ((1 << width) - 1)
        if not type_.name.startswith("u") and value >> (width - 1) and width > 1:
            value -= 1 << width
        return Number(value, type_)

    @staticmethod
    def _alias(cursor: ByteCursor) -> Attribute:
        cursor.signed_numbers()
        cursor.signed()
        cursor.signed_numbers()
        return Fields("stablehlo.output_operand_alias")

    @staticmethod
    def _bounds(cursor: ByteCursor) -> Attribute:
        return tuple(map(Number, cursor.signed_numbers()))

    def _mesh(self, cursor: ByteCursor) -> Attribute:
        """Axes, and devices in another order than theirs where the last bit of a number says so."""
        named: dict[str, Attribute] = {"axes": self.attribute(cursor)}
        index, is_there = cursor.flagged()
        if is_there:
            named["device_ids"] = self.attribute_at(index, cursor)
        return Fields("stablehlo.mesh", (), named)

    def _named(
        self,
        cursor: ByteCursor,
        name: str,
        attributes: Sequence[str] = (),
        signed: Sequence[str] = (),
        optional: str = "",
    ) -> Attribute:
        """Attributes, then numbers, then an attribute that may be left out: groups of devices by axes of a mesh."""
        named: dict[str, Attribute] = {each: self.attribute(cursor) for each in attributes}
        named |= {each: Number(cursor.signed()) for each in signed}
        if optional and cursor.number():
            named[optional] = self.attribute(cursor)
        return Fields(f"stablehlo.{name}", (), named)

    def _accuracy(self, cursor: ByteCursor) -> Attribute:
        named: dict[str, Attribute] = {
            "atol": Number(cursor.float64()), "rtol": Number(cursor.float64()),
            "ulps": Number(cursor.signed()), "mode": self.attribute(cursor),
        }  # fmt: skip
        return Fields("stablehlo.result_accuracy", (), named)

    def _tensor(self, cursor: ByteCursor) -> Attribute:
        type_ = self.type(cursor)
        if not isinstance(type_, TensorType) or type_.shape is None:
            raise cursor.error(f"a literal is of type {type_}")
        shape = tuple(size for size in type_.shape if size is not None)
        numpy = numpy_of(type_.element)
        if numpy is None or len(shape) != len(type_.shape):
            raise cursor.error(f"a literal of type {type_} cannot be read")
        if math.prod(shape) * numpy.itemsize > MAX_SIZE:
            raise cursor.error(f"no memory holds a literal of type {type_}")
        data = cursor.blob()
        return Dense(type_, _elements(data, shape, type_.element, numpy, cursor))

    # --- types

    def _read_type(self, entry: Entry, cursor: ByteCursor) -> Type:
        if entry.dialect == "builtin":
            return self._builtin_type(entry, cursor)
        if entry.dialect != "vhlo" or not entry.is_coded:
            return DialectType(entry.dialect)
        code = cursor.number()
        if code in _SCALARS:
            return ScalarType(_SCALARS[code])
        if code not in self._types_by_code:
            raise cursor.error(f"type of code {code} is unknown")
        return self._types_by_code[code](cursor)

    def _builtin_type(self, entry: Entry, cursor: ByteCursor) -> Type:
        """A type of MLIR's own, as operations of other dialects have it."""
        if not entry.is_coded:
            return DialectType("builtin")
        code = cursor.number()
        if code == 0:
            width, kind = divmod(cursor.number(), 4)
            if width > _MAX_WIDTH:
                raise cursor.error(f"an integer has {width} bits, at most {_MAX_WIDTH}")
            return ScalarType(f"{'u' if kind == _UNSIGNED else ''}i{width}")
        if code in _BUILTIN_SCALARS:
            return ScalarType(_BUILTIN_SCALARS[code])
        found = self._builtin_types.get(code)
        return DialectType("builtin") if found is None else found(cursor)

    def _complex(self, cursor: ByteCursor) -> Type:
        return ComplexType(self.scalar(cursor))

    def _function(self, cursor: ByteCursor) -> Type:
        return _limited(FunctionType(self._several(cursor), self._several(cursor)), cursor)

    def _several(self, cursor: ByteCursor) -> tuple[Type, ...]:
        return tuple(self.type(cursor) for _ in range(cursor.count()))

    def _tuple(self, cursor: ByteCursor) -> Type:
        return _limited(TupleType(self._several(cursor)), cursor)

    def _buffer(self, cursor: ByteCursor) -> Type:
        """Memory that a custom call writes to, which is read as a type that nothing is done with."""
        self._ranked(cursor)
        return DialectType("stablehlo.buffer")

    def _future(self, cursor: ByteCursor) -> Type:
        self._several(cursor)
        return DialectType("stablehlo.future")

    def _ranked(self, cursor: ByteCursor) -> Type:
        shape = self._shape(cursor)
        return TensorType(self.element(cursor), shape)

    def _with_encoding(self, cursor: ByteCursor) -> Type:
        bounds = self.attribute(cursor)
        shape = self._shape(cursor)
        element = self.element(cursor)
        given = bounds if isinstance(bounds, tuple) else ()
        sizes = [int(n.value) for n in given if isinstance(n, Number)]
        limits = tuple(n if n >= 0 else None for n in sizes)
        problem = why_no_bounds(shape, limits)
        if problem:
            raise cursor.error(problem)
        return TensorType(element, shape, limits)

    @staticmethod
    def _shape(cursor: ByteCursor) -> tuple[int | None, ...]:
        sizes = cursor.signed_numbers()
        if len(sizes) > MAX_RANK or any(n > MAX_SIZE for n in sizes):
            raise cursor.error("a shape is too large")
        if any(n < 0 and n not in (-1, _MINUS_ONE) for n in sizes):
            raise cursor.error("a size is negative")
        return tuple(n if n >= 0 else None for n in sizes)

    def _quantized(self, cursor: ByteCursor) -> Type:
        is_signed = bool(cursor.number() & 1)
        storage, expressed = self._storage(cursor, is_signed=is_signed), self.scalar(cursor)
        scale, zero = cursor.float64(), cursor.signed()
        limits = self._limits(cursor, storage)
        return QuantizedType(storage, expressed, (scale,), (zero,), None, limits)

    def _per_axis(self, cursor: ByteCursor) -> Type:
        is_signed = bool(cursor.number() & 1)
        storage, expressed = self._storage(cursor, is_signed=is_signed), self.scalar(cursor)
        axis, limits = cursor.number(), self._limits(cursor, storage)
        scales = tuple(cursor.float64() for _ in range(cursor.count()))
        zeros = tuple(cursor.signed_numbers())
        if axis >= MAX_RANK or len(scales) != len(zeros):
            raise cursor.error("a quantized type is damaged")
        return QuantizedType(storage, expressed, scales, zeros, axis, limits)

    @staticmethod
    def _limits(cursor: ByteCursor, storage: ScalarType) -> tuple[int, int] | None:
        """The least and the largest integer; None where they are those of the type."""
        limits = cursor.signed(), cursor.signed()
        return None if limits == whole_range(storage) else limits

    def _storage(self, cursor: ByteCursor, *, is_signed: bool) -> ScalarType:
        found = self.scalar(cursor)
        plain = found.name.removeprefix("u")
        return ScalarType(plain if is_signed else f"u{plain}")


_CALLED_PLACE: Final = 10
_NAMED_PLACE: Final = 14


def _limited(found: TupleType | FunctionType, cursor: ByteCursor) -> Type:
    if found.part_count > MAX_PARTS:
        raise cursor.error(f"a type has more than {MAX_PARTS} parts")
    return found


def _elements(
    data: bytes,
    shape: tuple[int, ...],
    element: Element,
    numpy: np.dtype[np.generic],
    cursor: ByteCursor,
) -> Array:
    """The elements of a literal; one that stands for all takes the memory of one."""
    count = math.prod(shape)
    if numpy == np.bool_:
        return _truths(data, shape, cursor)
    if bits_of(element) < _BITS and str(element).startswith(("i", "u")):
        return _small_integers(data, shape, element, numpy, cursor)
    if len(data) == numpy.itemsize:
        return np.broadcast_to(np.frombuffer(data, numpy).reshape(()), shape)
    if len(data) != count * numpy.itemsize:
        raise cursor.error(
            f"a literal of {count} elements of {element} has {len(data)} bytes"
        )
    return np.frombuffer(data, numpy).reshape(shape)


def _truths(data: bytes, shape: tuple[int, ...], cursor: ByteCursor) -> Array:
    """Truth values: one for all, a byte each, or a bit each, the first one lowest."""
    count = math.prod(shape)
    if len(data) == 1 and data[0] in (0, 0xFF):
        return np.broadcast_to(np.bool_(data[0] != 0), shape)
    if len(data) == count:
        return (np.frombuffer(data, np.uint8) != 0).reshape(shape)
    if len(data) != -(-count // _BITS):
        if len(data) == 1:
            return np.broadcast_to(np.bool_(data[0] != 0), shape)
        raise cursor.error(f"a literal of {count} truth values has {len(data)} bytes")
    bits = np.unpackbits(np.frombuffer(data, np.uint8), count=count, bitorder="little")
    return bits.astype(np.bool_).reshape(shape)


def _small_integers(
    data: bytes,
    shape: tuple[int, ...],
    element: Element,
    numpy: np.dtype[np.generic],
    cursor: ByteCursor,
) -> Array:
    """Integers of fewer than eight bits, a byte each."""
    count, gone = math.prod(shape), _BITS - bits_of(element)
    wide: Array = np.frombuffer(data, np.uint8) << gone
    signed = wide if str(element).startswith("u") else wide.view(np.int8)
    values = (signed >> gone).astype(numpy)
    if len(data) == 1:
        return np.broadcast_to(values.reshape(()), shape)
    if len(data) != count:
        raise cursor.error(
            f"a literal of {count} elements of {element} has {len(data)} bytes"
        )
    return values.reshape(shape)
