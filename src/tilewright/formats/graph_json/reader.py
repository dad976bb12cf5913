"""Reads TVM's graph JSON, strictly: every key must be known and everything required be there.

Every error says which node and which key.  What the file as a whole must obey is `verifier`'s.
Called by the graph executor, and by the plan's file form for the JSON itself.

Source: TVM 0.19, `src/runtime/graph_executor/graph_executor.h` (`Load` of each class).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn, TypeVar, cast

from tilewright.base.errors import ArchiveError
from tilewright.base.json_text import read_json
from tilewright.formats.graph_json.graph import EntryTable, Graph, Node, Reference
from tilewright.formats.graph_json.verifier import verify_graph

T = TypeVar("T")

_NUMBER_LIMIT: Final = 1 << 62
_COUNT_LIMIT: Final = 1 << 31  # of nodes, outputs: 32 bits in TVM
_GRAPH_KEYS: Final = ("nodes", "arg_nodes", "heads", "attrs", "node_row_ptr")
_NODE_KEYS: Final = ("op", "name", "inputs")
_OPERATOR_KEYS: Final = ("func_name", "num_inputs", "num_outputs", "flatten_data")
_SKIPPED_TAGS: Final = ("list_int", "size_t")
_METADATA: Final = "metadata"


def read_graph(data: bytes | memoryview | str, location: str = "graph") -> Graph:
    """Read a graph and verify it.

    Args:
        data: the file.
        location: how errors call it.

    Raises: ArchiveError for what is no graph, naming the node and the key.
    """
    members = read_members(data, location)
    graph = Graph(
        nodes=tuple(
            _node(row, f"{location}: node {index}")
            for index, row in enumerate(_list(members["nodes"], f"{location}: 'nodes'"))
        ),
        arguments=_counts(members["arg_nodes"], f"{location}: 'arg_nodes'"),
        heads=_references(members["heads"], f"{location}: 'heads'"),
        node_row_ptr=_counts(members["node_row_ptr"], f"{location}: 'node_row_ptr'"),
        entries=_entries(members["attrs"], f"{location}: 'attrs'"),
        metadata=members.get(_METADATA),
    )
    verify_graph(graph, location)
    return graph


def read_members(
    data: bytes | memoryview | str, location: str = "graph"
) -> dict[str, object]:
    """The members of the file by key, all that must be there; nothing is known of their values.

    What follows `metadata` is left out, as in TVM, which stops reading there.

    Raises: ArchiveError for what is no JSON object with these keys.
    """
    try:
        text = data if isinstance(data, str) else str(data, "utf-8")
        found: object = read_json(text, _refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArchiveError(f"no JSON ({error!s:.120})", location=location) from error
    members: dict[str, object] = {}
    for key, value in _object(found, location).items():
        members[key] = value
        if key == _METADATA:
            break
        if key not in _GRAPH_KEYS:
            raise ArchiveError(f"unknown key {key!r:.80}", location=location)
    _require(members, _GRAPH_KEYS, location)
    return members


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number of JSON")


def _require(members: Mapping[str, object], keys: tuple[str, ...], location: str) -> None:
    missing = [key for key in keys if key not in members]
    if missing:
        raise ArchiveError(f"'{missing[0]}' is missing", location=location)


# --- nodes ------------------------------------------------------------------------------------


def _node(value: object, location: str) -> Node:
    members = _object(value, location)
    _require(members, _NODE_KEYS, location)
    name = _text(members["name"], f"{location}: 'name'")
    where = f"{location} '{name:.80}'"
    attributes: dict[str, str] = {}
    dependencies: tuple[int, ...] | None = None
    spelling = "attrs"
    for key, item in members.items():
        if key in ("attrs", "attr"):
            if spelling == "attr" or (attributes and key == "attr"):
                raise ArchiveError("has 'attr' and 'attrs'", location=where)
            spelling = key
            attributes = _attributes(item, f"{where}: '{key}'")
        elif key == "control_deps":
            dependencies = _counts(item, f"{where}: 'control_deps'")
        elif key not in _NODE_KEYS:
            raise ArchiveError(f"unknown key {key!r:.80}", location=where)
    return Node(
        op=_text(members["op"], f"{where}: 'op'"),
        name=name,
        inputs=_references(members["inputs"], f"{where}: 'inputs'"),
        attributes=attributes,
        control_dependencies=dependencies,
        attributes_key=spelling,
    )


def _attributes(value: object, location: str) -> dict[str, str]:
    members = _object(value, location)
    _require(members, _OPERATOR_KEYS, location)
    found = {key: _text(item, f"{location}: '{key:.80}'") for key, item in members.items()}
    for key in _OPERATOR_KEYS[1:]:
        text = found[key]
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise ArchiveError(
                f"'{key}' is {text!r:.80}, expected a number", location=location
            )
    return found


def _references(value: object, location: str) -> tuple[Reference, ...]:
    return tuple(
        _reference(item, f"{location}[{index}]")
        for index, item in enumerate(_list(value, location))
    )


def _reference(value: object, location: str) -> Reference:
    numbers = _counts(value, location)
    if len(numbers) not in (2, 3):
        raise ArchiveError(
            f"has {len(numbers)} numbers, expected [node, output, version]",
            location=location,
        )
    return Reference(numbers[0], numbers[1], numbers[2] if len(numbers) == 3 else None)


# --- entries ----------------------------------------------------------------------------------


def _entries(value: object, location: str) -> EntryTable:
    members = _object(value, location)
    found: dict[str, object] = {}
    others: dict[str, tuple[str, object]] = {}
    for key, item in members.items():
        where = f"{location}: '{key:.80}'"
        tag, content = _tagged(item, where)
        if key not in _COLUMNS:
            if tag not in _SKIPPED_TAGS:
                raise ArchiveError(f"unknown, of type {tag!r:.80}", location=where)
            others[key] = tag, _skipped(tag, content, where)
            continue
        expected, read = _COLUMNS[key]
        if tag != expected:
            raise ArchiveError(f"type {tag!r:.80}, expected '{expected}'", location=where)
        found[key] = tuple(
            read(one, f"{where}[{index}]")
            for index, one in enumerate(_list(content, where))
        )
    _require(found, ("dltype", "shape", "storage_id"), location)
    return EntryTable(
        dtype=cast("tuple[str, ...]", found["dltype"]),
        shape=cast("tuple[tuple[int, ...], ...]", found["shape"]),
        storage_id=cast("tuple[int, ...]", found["storage_id"]),
        storage_scope=cast("tuple[str, ...] | None", found.get("storage_scope")),
        device_index=cast("tuple[int, ...] | None", found.get("device_index")),
        others=others,
        keys=tuple(members),
    )


def _tagged(value: object, location: str) -> tuple[str, object]:
    pair = _list(value, location)
    if len(pair) != 2:
        raise ArchiveError(
            f"has {len(pair)} items, expected [type, list]", location=location
        )
    return _text(pair[0], f"{location}: type"), pair[1]


def _skipped(tag: str, value: object, location: str) -> object:
    return _number(value, location) if tag == "size_t" else _numbers(value, location)


# --- values -----------------------------------------------------------------------------------


def _object(value: object, location: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ArchiveError(f"got {value!r:.80}, expected an object", location=location)
    return cast("dict[str, object]", value)


def _list(value: object, location: str) -> list[object]:
    if not isinstance(value, list):
        raise ArchiveError(f"got {value!r:.80}, expected a list", location=location)
    return cast("list[object]", value)


def _text(value: object, location: str) -> str:
    if not isinstance(value, str):
        raise ArchiveError(f"got {value!r:.80}, expected a string", location=location)
    if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
        raise ArchiveError(f"{value!r:.80} is no Unicode text", location=location)
    return value


def _number(value: object, location: str) -> int:
    if type(value) is not int or abs(value) >= _NUMBER_LIMIT:
        raise ArchiveError(f"got {value!r:.80}, expected an integer", location=location)
    return value


def _count(value: object, location: str) -> int:
    if type(value) is not int or not 0 <= value < _COUNT_LIMIT:
        raise ArchiveError(
            f"got {value!r:.80}, expected an integer from 0 on", location=location
        )
    return value


def _numbers(value: object, location: str) -> tuple[int, ...]:
    return _all(_number, value, location)


def _counts(value: object, location: str) -> tuple[int, ...]:
    return _all(_count, value, location)


def _all(read: Callable[[object, str], T], value: object, location: str) -> tuple[T, ...]:
    items = _list(value, location)
    return tuple(read(item, f"{location}[{index}]") for index, item in enumerate(items))


# The lists that an executor knows: their type tag, and how an item is read.
_COLUMNS: Final[Mapping[str, tuple[str, Callable[[object, str], object]]]] = {
    "dltype": ("list_str", _text),
    "shape": ("list_shape", _numbers),
    "storage_id": ("list_int", _number),
    "storage_scope": ("list_str", _text),
    "device_index": ("list_int", _number),
}
