"""The text form of the graph IR: parsing.  `text.py` prints it and shows what it looks like.

Recursive descent with one line of context in errors.  The parser knows syntax and attribute
kinds; what ops exist comes from the `lookup` argument, whether the graph makes sense is the
verifier's matter.  Called by tests and by tools that take graphs as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar, final

import numpy as np

from tilewright.base import dtypes, symbolic
from tilewright.base.dtypes import DType
from tilewright.base.errors import UserError
from tilewright.base.symbolic import Dim
from tilewright.base.text import unquote
from tilewright.compiler.graph.ir import UNKNOWN_LOCATION, Graph, Location, Node, Value
from tilewright.compiler.graph.schema import Array, AttributeSpec, OpSchema, TensorType

Lookup = Callable[[str], OpSchema]
Item = TypeVar("Item")

_SKIP: Final = re.compile(r"(?:\s+|//[^\n]*)*")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
_CALL: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\(")
_VALUE: Final = re.compile(r"%(?:[A-Za-z_][A-Za-z0-9_.$]*|[0-9]+)")
_STRING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_INTEGER: Final = re.compile(r"-?[0-9]+")
_NUMBER: Final = re.compile(r"-?(?:inf|nan|[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)")


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
    parser = _Parser(text, lookup, resources or {})
    graph = parser.graph()
    parser.end()
    return graph


@final
class _Parser:
    def __init__(self, text: str, lookup: Lookup, resources: Mapping[str, Array]) -> None:
        self._text: str = text
        self._at: int = 0
        self._lookup: Lookup = lookup
        self._resources: Mapping[str, Array] = resources
        self._symbols: dict[str, Dim] = {}

    # --- characters

    def _error(self, message: str) -> UserError:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - (self._text.rfind("\n", 0, self._at) + 1) + 1
        got = self._text[self._at : self._at + 24].split("\n")[0]
        return UserError(
            f"{message}, got '{got}'", location=f"graph text, line {line}, column {column}"
        )

    def _skip(self) -> None:
        match = _SKIP.match(self._text, self._at)
        self._at = match.end() if match else self._at

    def _accept(self, token: str) -> bool:
        self._skip()
        if not self._text.startswith(token, self._at):
            return False
        end = self._at + len(token)
        if token[-1].isalnum() and self._text[end : end + 1].isalnum():
            return False
        self._at = end
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise self._error(f"expected '{token}'")

    def _match(self, pattern: re.Pattern[str], subject: str) -> str:
        self._skip()
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self._error(f"expected {subject}")
        self._at = match.end()
        return match[0]

    def _several(self, read: Callable[[], Item], end: str) -> tuple[Item, ...]:
        """What stands between commas up to the token `end`, which is read, too."""
        found: list[Item] = []
        while not self._accept(end):
            if found:
                self._expect(",")
            found.append(read())
        return tuple(found)

    def _peek(self, token: str) -> bool:
        self._skip()
        return self._text.startswith(token, self._at)

    def end(self) -> None:
        self._skip()
        if self._at != len(self._text):
            raise self._error("expected the end of the text")

    # --- words

    def _name(self) -> str:
        if self._peek('"'):
            return unquote(self._match(_STRING, "a string"))
        return self._match(_WORD, "a name")

    def _string(self) -> str:
        return unquote(self._match(_STRING, "a string"))

    def _value_name(self) -> str:
        if self._peek('%"'):
            self._at += 1
            return self._string()
        return self._match(_VALUE, "a value like %x")[1:]

    def _dtype(self) -> DType:
        self._skip()
        start = self._at
        word = self._match(_WORD, "a data type")
        try:
            return dtypes.parse(word)
        except UserError as error:
            self._at = start
            raise self._error("expected a data type") from error

    def _type(self) -> TensorType:
        dtype = self._dtype()
        return TensorType(dtype, self._dims())

    def _dims(self) -> tuple[Dim, ...]:
        self._expect("[")
        return self._several(self._dim, "]")

    def _dim(self) -> Dim:
        self._skip()
        start, depth = self._at, 0
        while self._at < len(self._text):
            char = self._text[self._at]
            if depth == 0 and char in ",]":
                break
            depth += (char == "(") - (char == ")")
            self._at += 1
        try:
            value = symbolic.parse(self._text[start : self._at].strip())
        except UserError as error:
            self._at = start
            raise self._error("expected a dimension") from error
        return symbolic.substitute(value, self._symbols)

    # --- structure

    def graph(self) -> Graph:
        self._expect("graph")
        self._expect("@")
        graph = Graph(name=self._name())
        self._symbol_list()
        scope: dict[str, Value] = {}
        self._expect("(")
        graph.inputs += self._several(lambda: self._input(scope), ")")
        self._expect("{")
        while not self._accept("return"):
            graph.nodes.append(self._node(scope))
        self._outputs(graph, scope)
        self._expect("}")
        return graph

    def _input(self, scope: dict[str, Value]) -> Value:
        name, type_ = self._typed_name()
        return self._define(scope, name, Value(type_, name))

    def _symbol_list(self) -> None:
        if not self._accept("<"):
            return
        while not self._accept(">"):
            name = self._match(_WORD, "a dimension symbol")
            self._expect(":")
            lower = None if self._peek("..") else int(self._match(_INTEGER, "a bound"))
            self._expect("..")
            upper = int(self._match(_INTEGER, "a bound")) if self._has_integer() else None
            self._symbols[name] = symbolic.symbol(name, lower, upper)
            self._accept(",")

    def _has_integer(self) -> bool:
        self._skip()
        return _INTEGER.match(self._text, self._at) is not None

    def _typed_name(self) -> tuple[str, TensorType]:
        name = self._value_name()
        self._expect(":")
        return name, self._type()

    def _define(self, scope: dict[str, Value], name: str, value: Value) -> Value:
        if name in scope:
            raise self._error(f"value '%{name}' is defined twice")
        if name.isdigit():
            value.name = ""
        scope[name] = value
        return value

    def _use(self, scope: dict[str, Value]) -> Value:
        self._skip()
        start = self._at
        name = self._value_name()
        value = scope.get(name)
        if value is None:
            self._at = start
            raise self._error(f"value '%{name}' is not defined here")
        return value

    def _node(self, scope: dict[str, Value]) -> Node:
        results: list[tuple[str, TensorType]] = []
        self._skip()
        if not _CALL.match(self._text, self._at):  # else a node without results
            results.append(self._typed_name())
            while self._accept(","):
                results.append(self._typed_name())
            self._expect("=")
        schema = self._lookup(self._name())
        operands = self._operands(scope) if self._peek("(") else ()
        attributes = self._attributes(schema)
        location = UNKNOWN_LOCATION
        if self._accept("at"):
            given = (self._string(), self._string())
            note = self._string() if self._peek('"') else ""
            location = Location(*given, note)
        regions: list[Graph] = []
        while self._accept("graph"):
            self._at -= len("graph")
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

    def _operands(self, scope: dict[str, Value]) -> tuple[Value | None, ...]:
        self._expect("(")
        return self._several(lambda: None if self._accept("_") else self._use(scope), ")")

    def _outputs(self, graph: Graph, scope: dict[str, Value]) -> None:
        while self._peek("%"):
            graph.outputs.append(self._use(scope))
            if self._accept("as"):
                graph.output_names.append(self._string())
            if not self._accept(","):
                break

    # --- attributes

    def _attributes(self, schema: OpSchema) -> dict[str, object]:
        specs = {spec.name: spec for spec in schema.attributes}
        found = schema.complete({})

        def read() -> tuple[str, object]:
            name = self._match(_WORD, "an attribute name")
            spec = specs.get(name)
            if spec is None:
                raise self._error(f"op '{schema.name}' has no attribute '{name}'")
            self._expect("=")
            return name, self._attribute(spec)

        return found | dict(self._several(read, "}") if self._accept("{") else ())

    def _attribute(self, spec: AttributeSpec) -> object:
        if self._accept("none"):
            return None
        readers: dict[str, Callable[[], object]] = {
            "int": lambda: int(self._match(_INTEGER, "an integer")),
            "float": lambda: float(self._match(_NUMBER, "a number")),
            "string": self._string,
            "bool": self._bool,
            "dtype": self._dtype,
            "dims": self._dims,
            "ints": self._ints,
            "floats": self._floats,
            "array": self._array,
        }
        if spec.kind not in readers:
            raise self._error(f"attribute kind '{spec.kind}' has no text form")
        return readers[spec.kind]()

    def _ints(self) -> tuple[int, ...]:
        dims = self._dims()
        if not all(isinstance(d, int) for d in dims):
            raise self._error("expected integers")
        return tuple(d for d in dims if isinstance(d, int))

    def _floats(self) -> tuple[float, ...]:
        self._expect("[")
        return self._several(lambda: float(self._match(_NUMBER, "a number")), "]")

    def _bool(self) -> bool:
        if self._accept("true"):
            return True
        self._expect("false")
        return False

    def _array(self) -> Array:
        type_ = self._type()
        shape = tuple(d for d in type_.shape if isinstance(d, int))
        if len(shape) != type_.rank:
            raise self._error("expected the static type of an array")
        if self._accept("resource"):
            key = self._string()
            if key not in self._resources:
                raise self._error(f"resource '{key}' is not given")
            return self._resources[key]
        if self._accept("splat"):
            return np.full(shape, self._element(type_.dtype), type_.dtype.numpy)
        self._expect("[")
        elements = self._several(lambda: self._element(type_.dtype), "]")
        flat = np.array(elements, type_.dtype.numpy)
        if flat.size != int(np.prod(shape)):
            raise self._error(f"expected {int(np.prod(shape))} elements before")
        return flat.reshape(shape)

    def _element(self, dtype: DType) -> object:
        if dtype.is_bool:
            return self._bool()
        if dtype.is_float:
            return float(self._match(_NUMBER, "a number"))
        return int(self._match(_INTEGER, "an integer"))
