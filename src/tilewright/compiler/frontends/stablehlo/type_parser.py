"""Types as MLIR writes them: `tensor<2x?xf32>`, `complex<f32>`, `!quant.uniform<i8:f32, 0.1:-30>`.

Called by the parsers of attributes and operations.

Source: MLIR Language Reference, "Type System"; StableHLO specification, "Types".
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar, final

from tilewright.compiler.frontends.stablehlo.cursor import Cursor
from tilewright.compiler.frontends.stablehlo.elements import SCALARS, whole_range
from tilewright.compiler.frontends.stablehlo.tree import (
    ComplexType,
    DialectType,
    Element,
    FunctionType,
    QuantizedType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    why_no_bounds,
)

MAX_RANK: Final = 64
MAX_PARTS: Final = 1 << 16
"""Of a tuple or a function type: with names for types a few lines make one that no memory holds when it is written out."""
# Sizes are 64-bit numbers.
MAX_SIZE: Final = (1 << 63) - 1
_SIZE: Final = re.compile(r"\s*(\d{1,20}|\?|\*)x")
_NUMBER: Final = re.compile(r"-?\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,4})?")

_BOUNDS: Final = {
    "#stablehlo.bounds": (("<",), (">",)),
    "#stablehlo.type_extensions": (("<", "bounds", "=", "["), ("]", ">")),
}
"""What stands around bounds, by the name of the encoding; the second is that of older versions."""
_UNSIGNED: Final = re.compile(r"u\d{1,2}\Z")
_INTEGER: Final = re.compile(r"[su]?i\d{1,2}\Z")
Composed = TypeVar("Composed", TupleType, FunctionType)


@final
class TypeParser:
    """Reads types from a cursor; `aliases` are those that the file names (`!t = tensor<2xf32>`)."""

    def __init__(self, cursor: Cursor) -> None:
        self.cursor: Cursor = cursor
        self.aliases: dict[str, Type] = {}
        self._by_word: dict[str, Callable[[], Type]] = {
            "tensor": self._tensor,
            "tuple": self._tuple,
            "complex": self._complex,
        }
        self._by_name: dict[str, Callable[[], Type]] = {"!quant.uniform": self._quantized}

    def at_type(self) -> bool:
        """Whether a type begins here, as far as its first token tells."""
        cursor = self.cursor
        if cursor.kind == "alias":
            return cursor.word.startswith("!")
        is_word = cursor.kind == "word"
        return is_word and (
            cursor.word in self._by_word or bool(SCALARS.match(cursor.word))
        )

    def type(self) -> Type:
        """One type, or one of a function.  Raises: ModelError where none begins."""
        cursor = self.cursor
        with cursor.nested():
            if cursor.at("("):
                return self.function()
            if cursor.kind == "alias" and cursor.word.startswith("!"):
                return self._named()
            if cursor.kind == "word" and cursor.word in self._by_word:
                return self._by_word[cursor.advance()]()
            if cursor.kind == "word" and SCALARS.match(cursor.word):
                return ScalarType(cursor.advance())
            raise cursor.unexpected("a type", tuple(self._by_word))

    def function(self) -> FunctionType:
        """`(types) -> types`."""
        inputs = self.listed()
        self.cursor.expect("->")
        return self._limited(FunctionType(inputs, self.results()))

    def _limited(self, found: Composed) -> Composed:
        if found.part_count > MAX_PARTS:
            raise self.cursor.error(f"a type has more than {MAX_PARTS} parts")
        return found

    def results(self) -> tuple[Type, ...]:
        """One type, or several between parentheses."""
        return self.listed() if self.cursor.at("(") else (self.type(),)

    def listed(self) -> tuple[Type, ...]:
        """Types between parentheses."""
        self.cursor.expect("(")
        if self.cursor.accept(")"):
            return ()
        found = self.several()
        self.cursor.expect(")")
        return found

    def several(self) -> tuple[Type, ...]:
        """Types with commas between them, at least one."""
        found = [self.type()]
        while self.cursor.accept(","):
            found.append(self.type())
        return tuple(found)

    # --- by their first word

    def _named(self) -> Type:
        cursor = self.cursor
        place, name = cursor.place, cursor.advance()
        known = self._by_name.get(name)
        if known is not None:
            return known()
        if name in self.aliases:
            return self.aliases[name]
        if "." not in name:
            raise cursor.error(f"type '{name}' is not defined", place)
        if cursor.at("<"):
            cursor.skip_balanced()
        return DialectType(name[1:])

    def _tensor(self) -> TensorType:
        cursor = self.cursor
        shape: list[int | None] | None = []
        # What comes after the bracket is no token: `2x3xf32` is one word to MLIR, too.
        if not cursor.at("<"):
            raise cursor.unexpected("'<'")
        position = cursor.end
        while (found := _SIZE.match(cursor.text, position)) is not None:
            position = found.end()
            if found[1] == "*":
                shape = None
                break
            shape.append(None if found[1] == "?" else int(found[1]))
        cursor.seek(position)
        if shape is not None and len(shape) > MAX_RANK:
            raise cursor.error(f"a tensor has {len(shape)} dimensions, at most {MAX_RANK}")
        if shape is not None and any(
            size is not None and size > MAX_SIZE for size in shape
        ):
            raise cursor.error("a dimension is too large for 64 bits")
        element = self._element()
        bounds = self._bounds() if cursor.accept(",") else ()
        sizes = None if shape is None else tuple(shape)
        problem = why_no_bounds(sizes, bounds)
        if problem:
            raise cursor.error(problem)
        cursor.expect(">")
        return TensorType(element, sizes, bounds)

    def _element(self) -> Element:
        place = self.cursor.place
        found = self.type()
        if not isinstance(found, ScalarType | ComplexType | QuantizedType):
            raise self.cursor.error(
                f"got elements of type {found}, expected numbers", place
            )
        return found

    def _bounds(self) -> tuple[int | None, ...]:
        cursor = self.cursor
        name = cursor.take("alias", "an encoding such as #stablehlo.bounds<?, 4>")
        if name not in _BOUNDS:
            if cursor.at("<"):
                cursor.skip_balanced()
            return ()
        opening, closing = _BOUNDS[name]
        for word in opening:
            cursor.expect(word)
        found = [self._bound()]
        while cursor.accept(","):
            found.append(self._bound())
        for word in closing:
            cursor.expect(word)
        return tuple(found)

    def _bound(self) -> int | None:
        return None if self.cursor.accept("?") else self.cursor.integer()

    def _tuple(self) -> TupleType:
        self.cursor.expect("<")
        if self.cursor.accept(">"):
            return TupleType(())
        items = self.several()
        self.cursor.expect(">")
        return self._limited(TupleType(items))

    def _complex(self) -> ComplexType:
        self.cursor.expect("<")
        part = self._scalar()
        self.cursor.expect(">")
        return ComplexType(part)

    def _scalar(self) -> ScalarType:
        place = self.cursor.place
        found = self.type()
        if not isinstance(found, ScalarType):
            raise self.cursor.error(f"got type {found}, expected that of a number", place)
        return found

    def _quantized(self) -> QuantizedType:
        """`<i8<-128:127>:f32:0, {0.1:-30, 0.5:-20}>`, or by blocks `<i8:f32:{0:1, 1:2}, {{0.1, 0.5}}>`."""
        cursor = self.cursor
        cursor.expect("<")
        storage = self._storage()
        limits = None
        if cursor.accept("<"):
            low = cursor.integer()
            cursor.expect(":")
            limits = low, cursor.integer()
            if limits == whole_range(storage):
                limits = None
            cursor.expect(">")
        cursor.expect(":")
        expressed = self._scalar()
        axis, blocks, grid = None, (), ()
        if cursor.accept(":"):
            blocks = self._blocks()
            axis = None if blocks else cursor.integer()
        cursor.expect(",")
        if blocks:
            grid, pairs = self._grid_of_scales()
        else:
            pairs = self._scales()
        cursor.expect(">")
        scales, zeros = zip(*pairs, strict=True)
        return QuantizedType(storage, expressed, scales, zeros, axis, limits, blocks, grid)

    def _blocks(self) -> tuple[tuple[int, int], ...]:
        """`{0:1, 1:2}`: axes and the sizes of their blocks; nothing where an axis stands."""
        cursor = self.cursor
        if not cursor.accept("{"):
            return ()
        found = [self._block()]
        while cursor.accept(","):
            found.append(self._block())
        cursor.expect("}")
        return tuple(found)

    def _block(self) -> tuple[int, int]:
        axis = self.cursor.integer()
        self.cursor.expect(":")
        return axis, self.cursor.integer()

    def _grid_of_scales(self) -> tuple[tuple[int, ...], list[tuple[float, int]]]:
        """Nested braces: how many there are of each depth, and all scales."""
        cursor = self.cursor
        if not cursor.at("{"):
            return (), [self._scale()]
        with cursor.nested():
            place = cursor.place
            cursor.expect("{")
            parts = [self._grid_of_scales()]
            while cursor.accept(","):
                parts.append(self._grid_of_scales())
            cursor.expect("}")
        if len({grid for grid, _ in parts}) > 1:
            raise cursor.error("the scales are no grid", place)
        return (len(parts), *parts[0][0]), [pair for _, pairs in parts for pair in pairs]

    def _storage(self) -> ScalarType:
        """Integers, which the quant dialect calls `u8` where they have no sign."""
        cursor = self.cursor
        if cursor.kind == "word" and _UNSIGNED.match(cursor.word):
            return ScalarType(f"ui{cursor.advance()[1:]}")
        place, found = cursor.place, self._scalar()
        if not _INTEGER.match(found.name):
            raise cursor.error(f"got storage of type {found}, expected integers", place)
        return found

    def _scales(self) -> list[tuple[float, int]]:
        cursor = self.cursor
        if not cursor.accept("{"):
            return [self._scale()]
        found = [self._scale()]
        while cursor.accept(","):
            found.append(self._scale())
        cursor.expect("}")
        return found

    def _scale(self) -> tuple[float, int]:
        found = self.cursor.match(_NUMBER)
        if found is None:
            raise self.cursor.unexpected("a scale")
        zero_point = self.cursor.integer() if self.cursor.accept(":") else 0
        return float(found[0]), zero_point
