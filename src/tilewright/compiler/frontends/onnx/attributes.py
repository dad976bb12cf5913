"""Attributes of one ONNX node, with references resolved, read by type.

Remembers which names were read so that an attribute nobody understood is reported instead of
silently dropped.  Called by rows through `Call`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from onnx import AttributeProto, GraphProto, SparseTensorProto, TensorProto

from tilewright.base.errors import ModelError

_A: Final = AttributeProto
_FIELDS: Final[dict[int, str]] = {
    _A.FLOAT: "f",
    _A.INT: "i",
    _A.STRING: "s",
    _A.TENSOR: "t",
    _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.FLOATS: "floats",
    _A.INTS: "ints",
    _A.STRINGS: "strings",
    _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs",
}
_REPEATED: Final = frozenset({_A.FLOATS, _A.INTS, _A.STRINGS, _A.TENSORS, _A.GRAPHS})
_NAMES: Final[dict[str, tuple[int, str]]] = {
    "float": (_A.FLOAT, "a float"),
    "int": (_A.INT, "an int"),
    "string": (_A.STRING, "a string"),
    "tensor": (_A.TENSOR, "a tensor"),
    "graph": (_A.GRAPH, "a graph"),
    "sparse_tensor": (_A.SPARSE_TENSOR, "a sparse tensor"),
    "floats": (_A.FLOATS, "a list of floats"),
    "ints": (_A.INTS, "a list of ints"),
    "strings": (_A.STRINGS, "a list of strings"),
}
_WORDS: Final = {**dict(_NAMES.values()), _A.TYPE_PROTO: "a type"}
# Models from before the type field became mandatory: the field that is set tells.
_GUESS: Final = (_A.TENSOR, _A.GRAPH, _A.SPARSE_TENSOR, _A.STRING, _A.INT, _A.FLOAT)


def attribute_type(attribute: AttributeProto) -> int:
    """The type of `attribute`, also when an old exporter left the field out."""
    if attribute.type in _FIELDS or attribute.HasField("type"):
        return attribute.type
    for code in _GUESS:
        if attribute.HasField(_FIELDS[code]):
            return code
    for code in _REPEATED:
        if len(getattr(attribute, _FIELDS[code])):
            return code
    return _A.INTS


def is_of_type(attribute: AttributeProto, code: int) -> bool:
    """Whether an attribute is of a type; an empty list is one of any."""
    actual = attribute_type(attribute)
    if actual == code:
        return True
    is_list = actual in _REPEATED and code in _REPEATED
    return is_list and not len(getattr(attribute, _FIELDS[actual]))


def code_of(form: str) -> int:
    """The number of a type of attributes."""
    return _NAMES[form][0]


def words_of(code: int) -> str:
    """A type of attributes, in words."""
    return _WORDS[code]


def text_of(raw: object) -> str:
    """A proto string; bytes that are no UTF-8 come out readable."""
    return raw.decode("utf-8", "backslashreplace") if isinstance(raw, bytes) else str(raw)


@final
class AttributeReader:
    """Typed access to the attributes of one node."""

    __slots__ = ("_items", "seen")

    def __init__(self, items: Mapping[str, AttributeProto]) -> None:
        self._items: Mapping[str, AttributeProto] = items
        self.seen: set[str] = set()

    @property
    def unread(self) -> tuple[str, ...]:
        """Attributes that no row asked for."""
        return tuple(n for n in self._items if n not in self.seen)

    def has(self, name: str) -> bool:
        """Whether the node carries attribute `name`."""
        self.seen.add(name)
        return name in self._items

    def get(self, name: str, form: str) -> object:
        """The value of attribute `name`, or None when absent.

        Raises: ModelError when its type is not `form`.
        """
        self.seen.add(name)
        attribute = self._items.get(name)
        if attribute is None:
            return None
        code, words = _NAMES[form]
        if not is_of_type(attribute, code):
            raise ModelError(f"attribute '{name}' is not {words}")
        return getattr(attribute, _FIELDS[code])

    def integer(self, name: str) -> int | None:
        value = self.get(name, "int")
        return None if value is None else int(value)  # pyright: ignore[reportArgumentType]

    def float(self, name: str) -> float | None:
        value = self.get(name, "float")
        return None if value is None else float(value)  # pyright: ignore[reportArgumentType]

    def string(self, name: str) -> str | None:
        value = self.get(name, "string")
        return None if value is None else text_of(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        value = self.get(name, "ints")
        return tuple(int(v) for v in value) if isinstance(value, Sequence) else None

    def floats(self, name: str) -> tuple[float, ...] | None:
        value = self.get(name, "floats")
        return tuple(float(v) for v in value) if isinstance(value, Sequence) else None

    def strings(self, name: str) -> tuple[str, ...] | None:
        value = self.get(name, "strings")
        return tuple(map(text_of, value)) if isinstance(value, Sequence) else None

    def tensor(self, name: str) -> TensorProto | None:
        value = self.get(name, "tensor")
        return value if isinstance(value, TensorProto) else None

    def sparse_tensor(self, name: str) -> SparseTensorProto | None:
        value = self.get(name, "sparse_tensor")
        return value if isinstance(value, SparseTensorProto) else None

    def graph(self, name: str) -> GraphProto | None:
        value = self.get(name, "graph")
        return value if isinstance(value, GraphProto) else None
