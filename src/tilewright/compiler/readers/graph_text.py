"""Graphs from text: what `graph.text.to_text` prints, which also shows what it looks like, read back.

Recursive descent with one line of context in errors.  The parser knows syntax and attribute
kinds; what ops exist comes from the `lookup` argument, whether the graph makes sense is the
verifier's matter.  Called by tests and by tools that take graphs as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import UserError
from tilewright.base.symbolic import Dim, DimReader
from tilewright.base.text import unquote
from tilewright.base.text_reader import NUMBER, TextReader
from tilewright.compiler.graph.ir import UNKNOWN_LOCATION, Graph, Location, Node, Value
from tilewright.compiler.graph.schema import Array, AttributeSpec, OpSchema, TensorType

Lookup = Callable[[str], OpSchema]

_SPACE: Final = re.compile(r"(?:\s+|//[^\n]*)*")
_BLANK: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
_VALUE: Final = re.compile(r"%(?:[A-Za-z_][A-Za-z0-9_.$]*|[0-9]+)")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def parse_graph(
    text: str, lookup: Lookup, *, resources: Mapping[str, Array] | None = None
) -> Graph:
    """Read one graph.

    Args:
        text: what `to_text` prints.
        lookup: the schema of an op by name; raises for unknown ones.
        resources: arrays printed by reference, by hash.

    Raises: UserError with line and column.
    """
    reader = TextReader(text, "graph text", space=_SPACE)
    graph = _Parser(reader, lookup, resources or {}).graph()
    reader.expect_end("the end of the text")
    return graph


@final
class _Parser:
    def __init__(
        self, text: TextReader, lookup: Lookup, resources: Mapping[str, Array]
    ) -> None:
        self._text: TextReader = text
        self._lookup: Lookup = lookup
        self._resources: Mapping[str, Array] = resources
        self._symbols: dict[str, Dim] = {}
        self._dim_reader: DimReader = DimReader(text, self._symbol)

    # --- words

    def _name(self) -> str:
        if self._text.is_at('"'):
            return unquote(self._text.read(_STRING, "a string"))
        return self._text.read(_WORD, "a name")

    def _string(self) -> str:
        return unquote(self._text.read(_STRING, "a string"))

    def _value_name(self) -> str:
        if self._text.is_at('%"'):
            self._text.expect("%")
            return self._string()
        return self._text.read(_VALUE, "a value like %x")[1:]

    def _dtype(self) -> DType:
        start = self._text.skip_space()
        word = self._text.read(_WORD, "a data type")
        try:
            return dtypes.parse(word)
        except UserError as error:
            raise self._text.expected("a data type", at=start) from error

    def _type(self) -> TensorType:
        dtype = self._dtype()
        return TensorType(dtype, self._dims())

    def _dims(self) -> tuple[Dim, ...]:
        self._text.expect("[")
        return self._text.several(self._dim, "]")

    def _dim(self) -> Dim:
        # `//` begins a comment elsewhere.
        space, self._text.space = self._text.space, _BLANK
        value = self._dim_reader.read()
        self._text.space = space
        return value

    def _symbol(self, name: str, _: int) -> Dim:
        return self._symbols.get(name, symbolic.symbol(name))

    # --- structure

    def graph(self) -> Graph:
        self._text.expect("graph")
        self._text.expect("@")
        graph = Graph(name=self._name())
        self._symbol_list()
        scope: dict[str, Value] = {}
        self._text.expect("(")
        graph.inputs += self._text.several(lambda: self._input(scope), ")")
        self._text.expect("{")
        while not self._text.accept_word("return"):
            graph.nodes.append(self._node(scope))
        self._outputs(graph, scope)
        self._text.expect("}")
        return graph

    def _input(self, scope: dict[str, Value]) -> Value:
        name, type_ = self._typed_name()
        return self._define(scope, name, Value(type_, name))

    def _symbol_list(self) -> None:
        if not self._text.accept("<"):
            return
        while not self._text.accept(">"):
            name = self._text.read(_WORD, "a dimension symbol")
            self._text.expect(":")
            self._symbols[name] = symbolic.symbol(name, *self._text.bounds())
            self._text.accept(",")

    def _typed_name(self) -> tuple[str, TensorType]:
        name = self._value_name()
        self._text.expect(":")
        return name, self._type()

    def _define(self, scope: dict[str, Value], name: str, value: Value) -> Value:
        if name in scope:
            raise self._text.error(f"value '%{name}' is defined twice")
        if name.isdigit():
            value.name = ""
        scope[name] = value
        return value

    def _use(self, scope: dict[str, Value]) -> Value:
        start = self._text.skip_space()
        name = self._value_name()
        value = scope.get(name)
        if value is None:
            raise self._text.error(f"value '%{name}' is not defined here", at=start)
        return value

    def _node(self, scope: dict[str, Value]) -> Node:
        results: list[tuple[str, TensorType]] = []
        if self._text.is_at("%"):  # else a node without results
            results.append(self._typed_name())
            while self._text.accept(","):
                results.append(self._typed_name())
            self._text.expect("=")
        schema = self._schema()
        operands = self._operands(scope) if self._text.is_at("(") else ()
        attributes = self._attributes(schema)
        location = UNKNOWN_LOCATION
        if self._text.accept_word("at"):
            given = (self._string(), self._string())
            note = self._string() if self._text.is_at('"') else ""
            location = Location(*given, note)
        regions: list[Graph] = []
        while self._text.accept_word("graph"):
            self._text.position -= len("graph")
            regions.append(self.graph())
        node = Node(
            schema,
            operands,
            attributes,
            [type_ for _, type_ in results],
            regions=regions,
            location=location,
            names=[name for name, _ in results],
        )
        for (name, _), value in zip(results, node.results, strict=True):
            self._define(scope, name, value)
        return node

    def _schema(self) -> OpSchema:
        start = self._text.skip_space()
        name = self._name()
        try:
            return self._lookup(name)
        except UserError as error:
            raise self._text.error(error.message, at=start, hint=error.hint) from error

    def _operands(self, scope: dict[str, Value]) -> tuple[Value | None, ...]:
        self._text.expect("(")
        return self._text.several(
            lambda: None if self._text.accept("_") else self._use(scope), ")"
        )

    def _outputs(self, graph: Graph, scope: dict[str, Value]) -> None:
        while self._text.is_at("%"):
            graph.outputs.append(self._use(scope))
            if self._text.accept_word("as"):
                graph.output_names.append(self._string())
            if not self._text.accept(","):
                break

    # --- attributes

    def _attributes(self, schema: OpSchema) -> dict[str, object]:
        specs = {spec.name: spec for spec in schema.attributes}
        found = schema.complete({})

        def read() -> tuple[str, object]:
            name = self._text.read(_WORD, "an attribute name")
            spec = specs.get(name)
            if spec is None:
                raise self._text.error(f"op '{schema.name}' has no attribute '{name}'")
            self._text.expect("=")
            return name, self._attribute(spec)

        return found | dict(self._text.several(read, "}") if self._text.accept("{") else ())

    def _attribute(self, spec: AttributeSpec) -> object:
        if self._text.accept_word("none"):
            return None
        readers: dict[str, Callable[[], object]] = {
            "int": lambda: self._text.whole("an integer"),
            "float": lambda: float(self._text.read(NUMBER, "a number")),
            "string": self._string,
            "bool": self._bool,
            "dtype": self._dtype,
            "dims": self._dims,
            "ints": self._ints,
            "floats": self._floats,
            "array": self._array,
        }
        if spec.kind not in readers:
            raise self._text.error(f"attribute kind '{spec.kind}' has no text form")
        return readers[spec.kind]()

    def _ints(self) -> tuple[int, ...]:
        dims = self._dims()
        if not all(isinstance(d, int) for d in dims):
            raise self._text.expected("integers")
        return tuple(d for d in dims if isinstance(d, int))

    def _floats(self) -> tuple[float, ...]:
        self._text.expect("[")
        return self._text.several(lambda: float(self._text.read(NUMBER, "a number")), "]")

    def _bool(self) -> bool:
        if self._text.accept_word("true"):
            return True
        self._text.expect("false")
        return False

    def _array(self) -> Array:
        type_ = self._type()
        shape = tuple(d for d in type_.shape if isinstance(d, int))
        if len(shape) != type_.rank:
            raise self._text.expected("the static type of an array")
        if self._text.accept_word("resource"):
            key = self._string()
            if key not in self._resources:
                raise self._text.error(f"resource '{key}' is not given")
            return self._resources[key]
        if self._text.accept_word("splat"):
            return np.full(shape, self._element(type_.dtype), type_.dtype.numpy)
        self._text.expect("[")
        elements = self._text.several(lambda: self._element(type_.dtype), "]")
        flat = np.array(elements, type_.dtype.numpy)
        if flat.size != int(np.prod(shape)):
            raise self._text.error(f"expected {int(np.prod(shape))} elements before")
        return flat.reshape(shape)

    def _element(self, dtype: DType) -> object:
        if dtype.is_bool:
            return self._bool()
        if dtype.is_float:
            return float(self._text.read(NUMBER, "a number"))
        return self._text.whole("an integer")
