"""The tree of a StableHLO text: modules, functions, operations, regions, attributes and types.

What the file says, not yet what it means: names of operations and attributes are MLIR's, values know
their types, and nothing is checked beyond the grammar and the types that operands are given with.
Made by `parser`, read by the importer.

Source: MLIR Language Reference; StableHLO specification, "Programs" and "Types".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import final

from tilewright.compiler.graph.schema import Array


@final
@dataclass(frozen=True, slots=True)
class Place:
    """A line and a column, counted from 1; in an artifact, the number of the operation and its name.

    The name is what the program that was exported called it: `jit(f)/dot_general`.
    """

    line: int
    column: int
    name: str = ""

    def __str__(self) -> str:
        if self.column:
            return f"{self.line}:{self.column}"
        return f"operation {self.line}{f' ({self.name})' if self.name else ''}"


# --- types -----------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class ScalarType:
    """A number, by MLIR's name: `f32`, `i1`, `ui8`, `f8E4M3FN`, `index`."""

    name: str

    def __str__(self) -> str:
        return self.name


@final
@dataclass(frozen=True, slots=True)
class ComplexType:
    """A complex number whose two parts are of one type."""

    part: ScalarType

    def __str__(self) -> str:
        return f"complex<{self.part}>"


@final
@dataclass(frozen=True, slots=True)
class QuantizedType:
    """Integers that stand for `(q - zero_point) * scale`, per tensor, per slice of `axis`, or per block.

    `blocks` are axes and how many elements of each have one scale; `grid` is how many scales every axis has then.
    """

    storage: ScalarType
    expressed: ScalarType
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    limits: tuple[int, int] | None = None
    blocks: tuple[tuple[int, int], ...] = ()
    grid: tuple[int, ...] = ()

    def __str__(self) -> str:
        along = "" if self.axis is None else f":{self.axis}"
        if self.blocks:
            along = f":{{{', '.join(f'{axis}:{size}' for axis, size in self.blocks)}}}"
        return f"!quant.uniform<{self.storage}:{self.expressed}{along}>"


Element = ScalarType | ComplexType | QuantizedType


@final
@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type and shape; None: a size that a call decides.  `shape` None: the rank, too.

    `bounds` are the largest sizes of the dimensions that a call decides, where they are stated.
    """

    element: Element
    shape: tuple[int | None, ...] | None
    bounds: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        if self.shape is None:
            return f"tensor<*x{self.element}>"
        sizes = "".join("?x" if size is None else f"{size}x" for size in self.shape)
        return f"tensor<{sizes}{self.element}>"


def why_no_bounds(
    shape: tuple[int | None, ...] | None, bounds: tuple[int | None, ...]
) -> str:
    """What is wrong with the bounds of a tensor of a shape; nothing where they fit."""
    if not bounds or shape is None:
        return "bounds of a tensor of any rank" if bounds else ""
    if len(bounds) != len(shape):
        return f"got {len(bounds)} bounds for {len(shape)} dimensions"
    pairs = zip(shape, bounds, strict=True)
    if any(size is not None and bound is not None for size, bound in pairs):
        return "a dimension whose size is stated has a bound"
    return ""


@final
@dataclass(frozen=True, slots=True)
class TupleType:
    """Several values as one; `part_count` is how many types stand in its text, itself among them."""

    items: tuple[Type, ...]
    part_count: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "part_count", 1 + _part_count(self.items))

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.items))}>"


@final
@dataclass(frozen=True, slots=True)
class DialectType:
    """A type of a dialect that is only known by name: `!stablehlo.token`."""

    name: str

    def __str__(self) -> str:
        return f"!{self.name}"


@final
@dataclass(frozen=True, slots=True)
class FunctionType:
    """What a function or an operation takes and gives; `part_count` as of a tuple."""

    inputs: tuple[Type, ...]
    results: tuple[Type, ...]
    part_count: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        count = 1 + _part_count(self.inputs) + _part_count(self.results)
        object.__setattr__(self, "part_count", count)

    def __str__(self) -> str:
        listed = ", ".join(map(str, self.inputs))
        return f"({listed}) -> ({', '.join(map(str, self.results))})"


Type = (
    ScalarType
    | ComplexType
    | QuantizedType
    | TensorType
    | TupleType
    | DialectType
    | FunctionType
)


def _part_count(types: tuple[Type, ...]) -> int:
    """How many types there are when each is written out: names let one stand in many places."""
    return sum(
        t.part_count if isinstance(t, TupleType | FunctionType) else 1 for t in types
    )


# --- attributes ------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True)
class Number:
    """An integer or a float; `type` where the text states one."""

    value: int | float
    type: Type | None = None


@final
@dataclass(frozen=True, slots=True)
class Keyword:
    """A bare word that a dialect gives a meaning: `LT`, `SIGNED`, `DEFAULT`."""

    word: str


@final
@dataclass(frozen=True, slots=True)
class Unit:
    """An attribute that says all by being there."""


@final
@dataclass(frozen=True, slots=True)
class Symbol:
    """The name of a function: `@main`."""

    name: str


@final
@dataclass(frozen=True, slots=True)
class TypeAttribute:
    """A type where an attribute stands."""

    type: Type


@final
@dataclass(frozen=True, slots=True)
class Span:
    """One dimension of a slice, `start:limit:stride`."""

    start: int
    limit: int
    stride: int = 1


@final
@dataclass(frozen=True, slots=True, eq=False)
class Dense:
    """The elements of a tensor; a splat takes the memory of one element."""

    type: TensorType
    array: Array


@final
@dataclass(frozen=True, slots=True)
class Labels:
    """The dimension numbers of a convolution: letters and numbers of the axes of each operand."""

    input: tuple[str, ...]
    kernel: tuple[str, ...]
    output: tuple[str, ...]


@final
@dataclass(frozen=True, slots=True)
class Fields:
    """An attribute of a dialect: `#stablehlo.gather<offset_dims = [0], index_vector_dim = 1>`."""

    name: str
    items: tuple[Attribute, ...] = ()
    named: Mapping[str, Attribute] = field(default_factory=dict[str, "Attribute"])


Attribute = (
    bool
    | str
    | Number
    | Keyword
    | Unit
    | Symbol
    | TypeAttribute
    | Span
    | Dense
    | Labels
    | Fields
    | tuple["Attribute", ...]
    | Mapping[str, "Attribute"]
)
Attributes = Mapping[str, Attribute]


# --- programs --------------------------------------------------------------------------------


@final
@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """What an operation gives or a block takes; identity is its own."""

    name: str
    type: Type


@final
@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One application of an operation, by its full name: `stablehlo.add`."""

    name: str
    operands: tuple[Value, ...]
    results: tuple[Value, ...]
    attributes: Attributes
    regions: tuple[Region, ...]
    place: Place


@final
@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Arguments and operations in order."""

    arguments: tuple[Value, ...]
    operations: tuple[Operation, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Region:
    """Blocks; those of StableHLO have one."""

    blocks: tuple[Block, ...]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """A function of a module; without a body it is a declaration."""

    name: str
    type: FunctionType
    body: Block | None
    place: Place
    attributes: Attributes = field(default_factory=dict[str, Attribute])
    argument_attributes: tuple[Attributes, ...] = ()
    result_attributes: tuple[Attributes, ...] = ()


@final
@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """Functions by name, in order."""

    name: str
    functions: Mapping[str, Function]
    attributes: Attributes = field(default_factory=dict[str, Attribute])
    place: Place = Place(1, 1)

    def entries(self) -> list[tuple[Function, Block]]:
        """What is run: `main`, or the only function, or all if all are tests on their own."""
        main = self.functions.get("main")
        functions = list(self.functions.values()) if main is None else [main]
        alone = all(not f.type.inputs and not f.type.results for f in functions)
        if len(functions) > 1 and not alone:
            return []
        return [(f, f.body) for f in functions if f.body is not None]

    def operations(self) -> Iterator[Operation]:
        """Every operation, those in regions after the one that holds them."""
        for function in self.functions.values():
            if function.body is not None:
                yield from _operations(function.body)


def _operations(block: Block) -> Iterator[Operation]:
    for operation in block.operations:
        yield operation
        for region in operation.regions:
            for inner in region.blocks:
                yield from _operations(inner)
