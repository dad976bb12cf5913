"""One operation as its row sees it: operands, attributes, regions, and the maker of nodes.

Every attribute that is asked for is noted; the importer refuses the operation for those that nobody
asked for.  Made by the importer, read by rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, final

import numpy as np

from tilewright.base.dtypes import DType
from tilewright.base.errors import ModelError
from tilewright.base.symbolic import Dim, Expr
from tilewright.compiler.frontends.kit import control
from tilewright.compiler.frontends.kit.node_maker import NodeMaker
from tilewright.compiler.frontends.kit.problems import UnsupportedError
from tilewright.compiler.frontends.kit.tensor import Tensor
from tilewright.compiler.frontends.stablehlo.elements import dtype_of, stored_dtype
from tilewright.compiler.frontends.stablehlo.held import Complex, Held
from tilewright.compiler.frontends.stablehlo.tree import (
    Attribute,
    Attributes,
    Block,
    ComplexType,
    Dense,
    Fields,
    Keyword,
    Number,
    Operation,
    QuantizedType,
    Region,
    ScalarType,
    Symbol,
    TensorType,
    Type,
)
from tilewright.compiler.frontends.stablehlo.world import Process, World
from tilewright.compiler.ops.shapes import element_count


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two sizes: `LT`, `EQ`, or one of the others."""

    direction: str
    left: Dim
    right: Dim


Inline = Callable[[Region, Sequence[Held]], list[Held]]
"""Imports a region in place, on values for its arguments; gives what it returns."""


@final
class Attempt(Protocol):
    """Tries to import an operation, and goes back where that gives None or comes to more than so many nodes.

    What came to much for nothing is not tried again, and gives None.
    """

    def __call__(
        self,
        operation: Operation,
        write: Callable[[], list[Held] | None],
        most_nodes: int,
        /,
    ) -> list[Held] | None: ...


@final
@dataclass(frozen=True, slots=True)
class Services:
    """What rows ask of the importer.

    Attributes:
        inline: imports a region in place.
        lift: imports a region on numbers on whole tensors; shapes of operands broadcast.
        function: imports a function of the module in place, by its name.
        body: of a function, by its name.
        compared: notes a comparison of two sizes, whose result is not known.
        comparison: the one that a tensor is the result of.
        world: the processes that the module runs in.
        within: does something in another world.
        leave, enter: put the place of the walk away, and go back to one.
        probed: notes a value under a name.
        attempt: tries to import an operation in one of several ways.
    """

    inline: Inline
    lift: Inline
    function: Callable[[str, Sequence[Held]], list[Held]]
    body: Callable[[str], Block]
    compared: Callable[[Tensor, Comparison], None]
    comparison: Callable[[Tensor], Comparison | None]
    world: World
    within: Callable[
        [World, Callable[[], dict[Process, list[Held]]]], dict[Process, list[Held]]
    ]
    leave: Callable[[], object]
    enter: Callable[[object], None]
    probed: Callable[[str, Held], None]
    attempt: Attempt


@final
class Call:
    """One operation.

    Args:
        operation: as the tree has it.
        operands: what its operands stand for.
        maker: writes nodes.
        services: what the importer does for it.
    """

    __slots__ = ("inline", "lift", "maker", "operands", "operation", "read", "services")

    def __init__(
        self,
        operation: Operation,
        operands: Sequence[Held],
        maker: NodeMaker,
        services: Services,
    ) -> None:
        self.operation: Operation = operation
        self.operands: Sequence[Held] = operands
        self.maker: NodeMaker = maker
        self.services: Services = services
        self.inline: Inline = services.inline
        self.lift: Inline = services.lift
        self.read: set[str] = set()

    def on(self, operands: Sequence[Held], operation: Operation | None = None) -> Call:
        """The same call, or that of another operation, on other operands; what was asked for stays so."""
        found = Call(operation or self.operation, operands, self.maker, self.services)
        found.read |= self.read
        return found

    # --- operands and results

    def tensor(self, index: int) -> Tensor:
        """An operand that is a tensor of real numbers.  Raises: UnsupportedError for another."""
        return real(self.held(index))

    def tensors(self) -> list[Tensor]:
        """All operands, tensors of real numbers."""
        return [real(held) for held in self.operands]

    def held(self, index: int) -> Held:
        """An operand.  Raises: ModelError if there are not as many."""
        if index >= len(self.operands):
            raise ModelError(f"has {len(self.operands)} operands, expected more")
        return self.operands[index]

    def numbers(self, index: int) -> tuple[int, ...]:
        """The whole numbers of an operand that is known.  Raises: UnsupportedError if it is not."""
        tensor = self.tensor(index)
        known = tensor.array
        if known is None:
            self.maker.need(tensor)
            raise UnsupportedError(f"operand {index} depends on data, expected a constant")
        return tuple(int(n) for n in np.asarray(known).reshape(-1))

    def dims(self, index: int) -> tuple[Dim, ...]:
        """The sizes that an operand holds: as they follow from other sizes, or read from it in a run."""
        known = self._known_dims(index)
        if known is not None:
            return known
        return control.read_sizes(self.maker, self._flat(index))

    def amounts(self, index: int) -> tuple[Dim, ...]:
        """As `dims`, of numbers that may be negative: what is padded or, below zero, taken away."""
        known = self._known_dims(index)
        if known is not None:
            return known
        return tuple(control.read_signed(self.maker, self._flat(index), "padding"))

    def _known_dims(self, index: int) -> tuple[Dim, ...] | None:
        """What an operand holds, as it follows from sizes; None: only a run knows."""
        held = self.maker.contents(self.tensor(index))
        found = [] if held is None else list(held.elements.flat)
        if held is None or not all(isinstance(size, int | Expr) for size in found):
            return None
        return tuple(size for size in found if isinstance(size, int | Expr))

    def _flat(self, index: int) -> Tensor:
        x = self.tensor(index)
        return self.maker.reshape(x, (element_count(x.shape),))

    def region(self, index: int) -> Region:
        """A region.  Raises: ModelError if there are not as many."""
        if index >= len(self.operation.regions):
            raise ModelError(f"has {len(self.operation.regions)} regions, expected more")
        return self.operation.regions[index]

    def shape(self, index: int = 0) -> tuple[int, ...]:
        """The shape of a result.  Raises: UnsupportedError unless all sizes are numbers."""
        return static_shape(self._result(index))

    @property
    def is_empty(self) -> bool:
        """Whether a result is known to have no elements."""
        types = [value.type for value in self.operation.results]
        return any(isinstance(t, TensorType) and 0 in (t.shape or ()) for t in types)

    def stated(self, index: int = 0) -> tuple[int | None, ...]:
        """The sizes that the type of a result states; None: one that a call decides."""
        return sizes_in(self._result(index))

    def dtype(self, index: int = 0) -> DType:
        """The element type of a result, or of its parts.  Raises: UnsupportedError if we have none."""
        return element_dtype(self._result(index))

    def _result(self, index: int) -> Type:
        if index >= len(self.operation.results):
            raise ModelError(f"has {len(self.operation.results)} results, expected more")
        return self.operation.results[index].type

    # --- attributes

    def attribute(self, name: str) -> Attribute | None:
        """An attribute, or None."""
        self.read.add(name)
        return self.operation.attributes.get(name)

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole number.  Raises: ModelError if there is none and no default."""
        found = self.attribute(name)
        if found is None and default is not None:
            return default
        return integer_of(name, found)

    def integers(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        """A list of whole numbers, or a literal of them."""
        found = self.attribute(name)
        if found is None and default is not None:
            return tuple(default)
        if isinstance(found, Dense):
            return tuple(int(n) for n in np.asarray(found.array, np.int64).reshape(-1))
        return integers_of(name, found)

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """`count` pairs of whole numbers; zeros where the attribute is missing."""
        found = self.attribute(name)
        if found is None:
            return ((0, 0),) * count
        if isinstance(found, Dense):
            if found.type.shape != (count, 2):
                raise ModelError(
                    f"attribute '{name}' is of type {found.type}, expected {count} x 2 numbers"
                )
            rows = np.broadcast_to(np.asarray(found.array, np.int64), (count, 2))
            return tuple((int(low), int(high)) for low, high in rows)
        if not isinstance(found, tuple):
            raise ModelError(f"attribute '{name}' is no list of pairs")
        rows = [integers_of(name, row) for row in found]
        if any(len(row) != 2 for row in rows):
            raise ModelError(f"attribute '{name}' is no list of pairs")
        return tuple((low, high) for low, high in rows)

    def flags(self, name: str, count: int) -> tuple[bool, ...]:
        """`count` truth values; false where the attribute is missing."""
        found = self.attribute(name)
        if found is None:
            return (False,) * count
        if isinstance(found, Dense):
            return tuple(bool(flag) for flag in np.broadcast_to(found.array, (count,)))
        truths = None if not isinstance(found, tuple) else [_truth_of(f) for f in found]
        if truths is None or None in truths:
            raise ModelError(f"attribute '{name}' is no list of truth values")
        return tuple(bool(truth) for truth in truths)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A truth value."""
        found = self.attribute(name)
        return found if isinstance(found, bool) else default

    def keyword(self, name: str, default: str = "") -> str:
        """A word of a list that the dialect has."""
        found = self.attribute(name)
        return found.word if isinstance(found, Keyword) else default

    def fields(self, name: str) -> Attributes:
        """The fields of a dialect's attribute; none where it is missing."""
        found = self.attribute(name)
        return found.named if isinstance(found, Fields) else {}

    def text(self, name: str) -> str:
        """A text, or the name of a function."""
        found = self.attribute(name)
        return found.name if isinstance(found, Symbol) else str(found or "")


def config_of(call: Call) -> Attributes:
    """What a custom call says about itself to who runs it.  Raises: ModelError if it says nothing."""
    for name in ("mhlo.backend_config", "backend_config"):
        found = call.attribute(name)
        if isinstance(found, dict):
            return found
    raise ModelError("says nothing about how it is to be run")


def real(held: Held) -> Tensor:
    """A tensor of real numbers.  Raises: UnsupportedError for what is none."""
    if isinstance(held, Complex):
        raise UnsupportedError("complex numbers are not supported here")
    if not isinstance(held, Tensor):
        raise UnsupportedError("tuples and tokens are not supported here")
    return held


def integer_of(name: str, attribute: Attribute | None) -> int:
    """A whole number.  Raises: ModelError for what is none."""
    if isinstance(attribute, Dense) and attribute.array.size == 1:
        return int(np.asarray(attribute.array, np.int64).reshape(()))
    if not isinstance(attribute, Number) or not isinstance(attribute.value, int):
        raise ModelError(f"attribute '{name}' is missing or no whole number")
    return attribute.value


def integers_of(name: str, attribute: Attribute | None) -> tuple[int, ...]:
    """Whole numbers of a list.  Raises: ModelError for what is none."""
    if not isinstance(attribute, tuple):
        raise ModelError(f"attribute '{name}' is missing or no list of whole numbers")
    return tuple(integer_of(name, item) for item in attribute)


def _truth_of(attribute: Attribute) -> bool | None:
    """A truth value, which the short form of windows may write as a whole number; None for what is none."""
    value = attribute.value if isinstance(attribute, Number) else attribute
    return bool(value) if isinstance(value, bool | int) else None


def listed(fields: Attributes, name: str) -> tuple[int, ...]:
    """A list in a dialect's attribute; empty where it is missing."""
    found = fields.get(name)
    return () if found is None else integers_of(name, found)


def sizes_in(type_: Type) -> tuple[int | None, ...]:
    """The sizes that a type states.  Raises: UnsupportedError for what is no tensor, or of any rank."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        raise UnsupportedError(f"values of type {type_} are not supported here")
    return type_.shape


def static_shape(type_: Type) -> tuple[int, ...]:
    """The sizes of a tensor.  Raises: UnsupportedError where one is no number."""
    stated = sizes_in(type_)
    sizes = tuple(size for size in stated if size is not None)
    if len(sizes) != len(stated):
        raise UnsupportedError(
            f"sizes that a call decides are not supported, as in {type_}"
        )
    return sizes


def part_of(element: Type) -> Type:
    """The numbers that elements are made of: parts of complex ones, integers of quantized ones."""
    if isinstance(element, QuantizedType):
        return element.storage
    return element.part if isinstance(element, ComplexType) else element


def element_dtype(type_: Type) -> DType:
    """Our element type, of the parts for complex numbers.  Raises: UnsupportedError if we have none."""
    element = type_.element if isinstance(type_, TensorType) else type_
    part = part_of(element)
    found = dtype_of(part) if isinstance(part, ScalarType) else None
    if found is None:
        raise UnsupportedError(f"elements of type {element} are not supported")
    return found


def border_dtype(type_: Type) -> DType:
    """Our type of as many bits as the module states, where there is one; else the one inside."""
    element = type_.element if isinstance(type_, TensorType) else type_
    part = part_of(element)
    found = stored_dtype(part) if isinstance(part, ScalarType) else None
    return element_dtype(type_) if found is None else found
