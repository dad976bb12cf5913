"""The text form of the graph IR: printing.  `readers/graph_text.py` reads it back.

    graph @main<N: 1..>(%x: f32[N, 4]) {
      %w: f32[4] = constant {value = f32[4] [1.0, 2.0, 3.0, 4.0]}
      %y: f32[N, 4] = add(%x, %w)
      return %y as "out"
    }

Attributes that equal their default are left out, absent operands print as `_`, arrays of more
than a few elements as a reference `resource "<hash>"` to data kept elsewhere (`resources`).
Values with names that are no identifiers, or not unique, are quoted or numbered.  Not a format
for files that must survive releases; called by dumps, error texts and tests.
"""

from __future__ import annotations

import hashlib
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Final, final

import numpy as np

from tilewright.base import dtypes
from tilewright.base.dtypes import DType
from tilewright.base.symbolic import Dim, Symbol, symbols
from tilewright.base.text import quote, unique
from tilewright.compiler.graph.ir import Graph, Node, Value
from tilewright.compiler.graph.schema import Array, AttributeSpec, TensorType

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*")
INLINE_ELEMENTS: Final = 16


def to_text(
    graph: Graph, *, locations: bool = False, hashes: ArrayHashes | None = None
) -> str:
    """The whole graph as text, ending with a newline.

    Args:
        graph: what to print.
        locations: end each node with where it came from.
        hashes: reuse the hashes of large arrays between calls.
    """
    printer = _Printer(locations, hashes or ArrayHashes())
    printer.graph(graph, "", declare=True)
    return "\n".join(printer.lines) + "\n"


def resources(graph: Graph) -> dict[str, Array]:
    """The arrays that `to_text` prints by reference, by their hash."""
    known = ArrayHashes()
    found: dict[str, Array] = {}
    for array in _arrays(graph):
        if _inline_form(array) is None:
            found[known.of(array)] = array
    return found


def describe(node: Node) -> str:
    """One node on one line with unquoted operand types, for messages."""
    operands = ", ".join("_" if v is None else str(v.type) for v in node.operands)
    results = ", ".join(str(v.type) for v in node.results)
    return f"{node.op}({operands}) -> {results}"


def dimension_symbols(graph: Graph) -> dict[str, Symbol]:
    """Every symbol in a type or attribute of the graph and its regions, by name, in order."""
    found: dict[str, Symbol] = {}
    for dim in _dims(graph):
        for symbol in sorted(symbols(dim), key=lambda s: s.name):
            found.setdefault(symbol.name, symbol)
    return found


def _dims(graph: Graph) -> Iterator[Dim]:
    for value in graph.inputs:
        yield from value.type.shape
    for node in graph.nodes:
        for value in node.results:
            yield from value.type.shape
        for spec in node.schema.attributes:
            held = node.attributes.get(spec.name)
            if spec.kind == "dims" and isinstance(held, tuple):
                yield from held
        for region in node.regions:
            yield from _dims(region)


def _arrays(graph: Graph) -> Iterator[Array]:
    for node in graph.nodes:
        yield from (a for a in node.attributes.values() if isinstance(a, np.ndarray))
        for region in node.regions:
            yield from _arrays(region)


@final
class ArrayHashes:
    """Content hashes of arrays, remembered while the array lives."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Array], str]] = {}

    def of(self, array: Array) -> str:
        """The hash of type, shape and bytes in row-major order."""
        known = self._known.get(id(array))
        if known is not None and known[0]() is array:
            return known[1]
        digest = hashlib.blake2b(f"{array.dtype}{array.shape}".encode(), digest_size=12)
        digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        self._known[id(array)] = (weakref.ref(array), digest.hexdigest())
        return digest.hexdigest()


def format_scalar(value: np.generic, dtype: DType) -> str:
    """One element; floats print the shortest digits that read back to the same value."""
    if dtype.is_bool:
        return "true" if value else "false"
    if not dtype.is_float:
        return str(int(value))
    wide = float(value)
    return str(np.float32(wide)) if dtype is dtypes.f32 else repr(wide)


def _inline_form(array: Array) -> str | None:
    dtype = dtypes.from_numpy(array.dtype)
    if array.size > INLINE_ELEMENTS:
        first = array.flat[0]
        if array.strides and any(array.strides) and not _is_splat(array):
            return None
        return f"splat {format_scalar(first, dtype)}"
    return "[" + ", ".join(format_scalar(v, dtype) for v in array.flat) + "]"


def _is_splat(array: Array) -> bool:
    # Bits, not values: -0.0 and 0.0 differ, NaN equals itself.
    corner = array[tuple(slice(0, 2) for _ in range(array.ndim))]
    if not _same_bits(corner):
        return False
    return _same_bits(array)


def _same_bits(array: Array) -> bool:
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.dtype.itemsize > 8 or flat.size == 0:
        return False
    bits = flat.view(f"u{flat.dtype.itemsize}")
    return bool((bits == bits[0]).all())


def format_array(array: Array, hashes: ArrayHashes) -> str:
    """`f32[2] [1.0, 2.0]`, `f32[64, 64] splat 0.0` or `f32[64, 64] resource "…"`."""
    type_ = TensorType(dtypes.from_numpy(array.dtype), tuple(array.shape))
    inline = _inline_form(array)
    return (
        f"{type_} {inline if inline is not None else 'resource ' + quote(hashes.of(array))}"
    )


def _format_float(value: object) -> str:
    return repr(float(value)) if isinstance(value, float | int) else str(value)


def _format_tuple(value: object) -> str:
    return f"[{', '.join(map(str, value))}]" if isinstance(value, tuple) else str(value)


def _format_floats(value: object) -> str:
    shown = map(_format_float, value) if isinstance(value, tuple) else [str(value)]
    return f"[{', '.join(shown)}]"


_FORMATS: Final[dict[str, Callable[[object], str]]] = {
    "int": str,
    "float": _format_float,
    "string": lambda value: quote(str(value)),
    "bool": lambda value: "true" if value else "false",
    "dtype": str,
    "dims": _format_tuple,
    "ints": _format_tuple,
    "floats": _format_floats,
}


@final
class _Printer:
    def __init__(self, locations: bool, hashes: ArrayHashes) -> None:
        self.lines: list[str] = []
        self._locations: bool = locations
        self._hashes: ArrayHashes = hashes

    def graph(self, graph: Graph, margin: str, *, declare: bool) -> None:
        names = _names(graph)
        dims = _format_symbols(dimension_symbols(graph)) if declare else ""
        inputs = ", ".join(f"{names[v]}: {v.type}" for v in graph.inputs)
        self.lines.append(f"{margin}graph @{_word(graph.name)}{dims}({inputs}) {{")
        for node in graph.nodes:
            self._node(node, names, margin + "  ")
        self.lines.append(f"{margin}  return{_format_outputs(graph, names)}")
        self.lines.append(margin + "}")

    def _node(self, node: Node, names: dict[Value, str], margin: str) -> None:
        results = ", ".join(f"{names[v]}: {v.type}" for v in node.results)
        operands = ", ".join(
            "_" if v is None else names.get(v, f"%?{v.name}") for v in node.operands
        )
        call = f"({operands})" if node.schema.operands or node.operands else ""
        results = f"{results} = " if node.results else ""
        text = f"{margin}{results}{_word(node.op)}{call}{self._attributes(node)}"
        if self._locations:
            place = node.location
            given = (place.file, place.name, *([place.note] if place.note else []))
            text += f" at {' '.join(map(quote, given))}"
        self.lines.append(text)
        for region in node.regions:
            self.graph(region, margin + "  ", declare=False)

    def _attributes(self, node: Node) -> str:
        specs = {spec.name: spec for spec in node.schema.attributes}
        shown = [
            f"{name} = {self._attribute(value, specs.get(name))}"
            for name, value in sorted(node.attributes.items())
            if not _is_default(value, specs.get(name))
        ]
        return f" {{{', '.join(shown)}}}" if shown else ""

    def _attribute(self, value: object, spec: AttributeSpec | None) -> str:
        if value is None:
            return "none"
        if isinstance(value, np.ndarray):
            return format_array(value, self._hashes)
        return _FORMATS[spec.kind](value) if spec and spec.kind in _FORMATS else str(value)


def _is_default(value: object, spec: AttributeSpec | None) -> bool:
    if spec is None or spec.required or isinstance(value, np.ndarray):
        return False
    return type(value) is type(spec.default) and value == spec.default


def _word(name: str) -> str:
    return name if NAME.fullmatch(name) else quote(name)


def _names(graph: Graph) -> dict[Value, str]:
    names: dict[Value, str] = {}
    taken: set[str] = set()
    numbered = 0
    for value in graph.values():
        name = value.name
        if not name:
            while str(numbered) in taken:
                numbered += 1
            name = str(numbered)
        name = unique(name, taken)
        taken.add(name)
        names[value] = "%" + (name if name.isdigit() else _word(name))
    return names


def _format_symbols(found: dict[str, Symbol]) -> str:
    if not found:
        return ""
    pieces: list[str] = []
    for name, symbol in found.items():
        low = "" if symbol.lower is None else symbol.lower
        high = "" if symbol.upper is None else symbol.upper
        pieces.append(f"{name}: {low}..{high}")
    return f"<{', '.join(pieces)}>"


def _format_outputs(graph: Graph, names: dict[Value, str]) -> str:
    pieces: list[str] = []
    for index, value in enumerate(graph.outputs):
        shown = names.get(value, f"%?{value.name}")
        if index < len(graph.output_names):
            shown += f" as {quote(graph.output_names[index])}"
        pieces.append(shown)
    return " " + ", ".join(pieces) if pieces else ""
