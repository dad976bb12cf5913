"""The graph IR: a typed SSA graph of tensor operations.

Numeric semantics: integers wrap in two's complement; floats follow IEEE 754 in the stated type,
reductions and contractions of f16/bf16 accumulate in f32; the order of a float sum is not
specified; NaN propagates through arithmetic, `max` and `min`.  Division of integers truncates.

Nodes stand in a list in topological order; values know the node that made them.  `Editor` is the
only writer after construction.  Not here: what ops exist (`compiler/ops`), text (`text.py`),
checks (`verifier.py`), execution (`evaluator.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, cast, final

from tilewright.base.record import field, record
from tilewright.base.symbolic import Dim, Symbol, symbols
from tilewright.compiler.graph.schema import Attributes, OpSchema, TensorType, Trait


@final
@record
class Location:
    """Where a node came from, in the model's terms; `str` prints `model.onnx: node 'add_3'`.

    The `note` says behind the name what is wrong where this node fails.
    """

    file: str = "<memory>"
    name: str = ""
    note: str = ""

    def __str__(self) -> str:
        return f"{self.file}: {self.place}" if self.name else self.file

    @property
    def place(self) -> str:
        """Without the file, for what artifacts keep: a model by another name is the same model."""
        name = f"node '{self.name}'" if self.name else "a node without a name"
        return name + self.note


UNKNOWN_LOCATION = Location()
_WITH_SYMBOLS: Final = Trait.BINDS | Trait.BRANCH | Trait.LOOP
"""Traits of nodes whose attributes bind symbols."""


@final
class Value:
    """One tensor value: a graph input (`node` is None) or result `index` of `node`."""

    __slots__ = ("index", "name", "node", "type")

    def __init__(self, type_: TensorType, name: str = "") -> None:
        self.type: TensorType = type_
        self.name: str = name
        self.node: Node | None = None
        self.index: int = 0

    @property
    def origin(self) -> Value:
        """The value whose bytes this one shows through views."""
        value = self
        while value.node is not None and value.node.has(Trait.VIEW):
            value = value.node.present_operands[0]
        return value

    def __repr__(self) -> str:
        return f"%{self.name or '?'}: {self.type}"


@final
class Node:
    """One application of an op; identity matters, so nodes compare by `is`."""

    __slots__ = ("attributes", "location", "operands", "regions", "results", "schema")

    def __init__(
        self,
        schema: OpSchema,
        operands: Sequence[Value | None],
        attributes: Attributes,
        result_types: Sequence[TensorType],
        *,
        regions: Sequence[Graph] = (),
        location: Location = UNKNOWN_LOCATION,
        names: Sequence[str] = (),
    ) -> None:
        self.schema: OpSchema = schema
        self.operands: list[Value | None] = list(operands)
        self.attributes: dict[str, object] = dict(attributes)
        self.regions: tuple[Graph, ...] = tuple(regions)
        self.location: Location = location
        self.results: tuple[Value, ...] = tuple(
            Value(t, names[i] if i < len(names) else "") for i, t in enumerate(result_types)
        )
        for index, value in enumerate(self.results):
            value.node = self
            value.index = index

    @property
    def op(self) -> str:
        """The name of the op."""
        return self.schema.name

    @property
    def title(self) -> str:
        """What people call the node, in names of kernels and their buffers."""
        title = self.schema.title
        return self.op if title is None else title(self.attributes)

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value

    @property
    def present_operands(self) -> tuple[Value, ...]:
        """The operands without the absent optional ones."""
        if None not in self.operands:  # most often; asked for more often than anything else
            return cast("tuple[Value, ...]", tuple(self.operands))
        return tuple([v for v in self.operands if v is not None])

    @property
    def operand_types(self) -> list[TensorType | None]:
        """The types of all operands, None for absent optional ones."""
        return [None if v is None else v.type for v in self.operands]

    def operand(self, index: int = 0) -> Value:
        """An operand that is there."""
        value = self.operands[index]
        assert value is not None
        return value

    def optional_operand(self, index: int) -> Value | None:
        """An operand that may be absent."""
        return self.operands[index] if index < len(self.operands) else None

    def has(self, trait: Trait) -> bool:
        """Whether the op has every flag of `trait`."""
        # As `in`, which takes twice as long: nothing is asked more often.
        wanted = trait._value_
        return self.schema.traits._value_ & wanted == wanted

    def ints(self, name: str) -> tuple[int, ...]:
        """An attribute of kind `ints`."""
        return cast("tuple[int, ...]", self.attributes[name])

    def dims(self, name: str) -> tuple[Dim, ...]:
        """An attribute of kind `dims`."""
        return cast("tuple[Dim, ...]", self.attributes[name])

    def number(self, name: str) -> int:
        """An attribute of kind `int`."""
        return cast("int", self.attributes[name])

    def real(self, name: str) -> float:
        """An attribute of kind `float`."""
        return cast("float", self.attributes[name])

    def word(self, name: str) -> str:
        """An attribute of kind `string`."""
        return cast("str", self.attributes[name])

    def flag(self, name: str) -> bool:
        """An attribute of kind `bool`."""
        return cast("bool", self.attributes[name])

    @property
    def bound_sizes(self) -> tuple[Symbol, ...]:
        """The symbols that nodes behind this one may use because of it."""
        return self._symbols_of("sizes")

    @property
    def trip_sizes(self) -> tuple[Symbol, ...]:
        """The symbols that are sizes of what a loop carries, in its regions."""
        return self._symbols_of("trip_sizes")

    def _symbols_of(self, attribute: str) -> tuple[Symbol, ...]:
        dims = cast("tuple[Dim, ...]", self.attributes.get(attribute, ()))
        if not dims or not self.schema.traits & _WITH_SYMBOLS:  # most have none: no flags
            return ()
        return tuple(symbol for dim in dims for symbol in symbols(dim))

    def __repr__(self) -> str:
        return f"<{self.op} -> {', '.join(map(repr, self.results))}>"


@final
@record(eq=False, frozen=False)
class Graph:
    """Inputs, nodes in topological order, outputs.  Regions of control flow are graphs too.

    The dimension symbols of a graph are those that occur in the types of its inputs.
    `equalities` are pairs of sizes that the nodes take to be equal without proof; a run checks them.
    """

    name: str = "main"
    inputs: list[Value] = field(default_factory=list[Value])
    nodes: list[Node] = field(default_factory=list[Node])
    outputs: list[Value] = field(default_factory=list[Value])
    output_names: list[str] = field(default_factory=list[str])
    equalities: tuple[tuple[Dim, Dim], ...] = ()

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def walk(self) -> Iterator[Node]:
        """Every node in order; those of the regions of control flow before the node that has them."""
        for node in self.nodes:
            if node.regions and not node.has(Trait.SEALED):
                for region in node.regions:
                    yield from region.walk()
            yield node

    def bound_names(self) -> frozenset[str]:
        """The symbols that nodes, those of regions included, bind to sizes of the data, or loops change."""
        return frozenset(
            symbol.name
            for node in self.walk()
            for symbol in (*node.bound_sizes, *node.trip_sizes)
        )

    def values(self) -> Iterator[Value]:
        """Inputs, then every result in order."""
        yield from self.inputs
        for node in self.nodes:
            yield from node.results
