"""Takes the big tensors out of a serialized model before protobuf sees them.

Protobuf copies every byte string it parses; a model is mostly weights.  `detach` walks the wire
format once, leaves large `raw_data` fields where they are and puts a reference in their place, so
that parsing costs kilobytes and the weights stay memory-mapped.  Not a protobuf decoder: what it
does not understand it copies, and malformed bytes are left for protobuf to refuse.

Source: protobuf encoding guide (wire types), onnx.proto3 (field numbers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from tilewright.base.record import field, record

DETACH_BYTES: Final = 1024
MAX_DEPTH: Final = 24

# Message -> {field number: message inside it}; only the ways that lead to a TensorProto.
_PATHS: Final[dict[str, dict[int, str]]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "function": {7: "node"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "sparse": {1: "tensor", 2: "tensor"},
}
_GRAPH_TAG: Final = 7 << 3 | 2  # the field of a model that nearly all of it is in
_LARGEST_FILE: Final = 1 << 42
_RAW_DATA: Final = 9
_EXTERNAL_DATA: Final = 13
_DATA_LOCATION: Final = 14


class MalformedError(ValueError):
    """The bytes are not a sequence of protobuf fields."""


@final
class CutError(MalformedError):
    """The bytes end within the graph: the file has `expected` of them at least."""

    def __init__(self, expected: int) -> None:
        super().__init__(f"{expected} bytes expected")
        self.expected: int = expected


@final
@record(frozen=False)
class Detached:
    """A model without its large tensors; `skeleton` is what protobuf should parse.

    `token` is the location that marks a reference; it is random, so no model can forge one.
    """

    token: str
    pieces: list[bytes | memoryview] = field(default_factory=list[bytes | memoryview])
    count: int = 0

    @property
    def skeleton(self) -> bytes:
        return b"".join(self.pieces)


@final
@record
class _Field:
    """One field: `start` is its tag, `body` its payload (behind the length), `end` behind it."""

    number: int
    wire_type: int
    start: int
    body: int
    end: int


def detach(data: memoryview, token: str) -> Detached:
    """Replace every `raw_data` of at least `DETACH_BYTES` by a reference into `data`.

    Raises: CutError when `data` is the beginning of a model; MalformedError when it is not
    protobuf at all.
    """
    result = Detached(token)
    result.pieces = _message(data, 0, len(data), "model", result, 0)
    return result


def _fields(data: memoryview, start: int, end: int) -> Iterator[_Field]:
    position = start
    while position < end:
        tag, body = _varint(data, position, end)
        wire_type = tag & 7
        if tag < 8:  # as in a file of which only the room was made
            raise MalformedError("field number 0")
        if wire_type == 0:
            _, stop = _varint(data, body, end)
        elif wire_type == 1:
            stop = body + 8
        elif wire_type == 5:
            stop = body + 4
        elif wire_type == 2:
            length, body = _varint(data, body, end)
            stop = body + length
        else:
            raise MalformedError(f"wire type {wire_type}")
        if stop > end:
            is_graph = start == 0 and tag == _GRAPH_TAG and position > 0
            if is_graph and stop < _LARGEST_FILE:
                raise CutError(stop)
            raise MalformedError("field runs past its message")
        yield _Field(tag >> 3, wire_type, position, body, stop)
        position = stop


def _varint(data: memoryview, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MalformedError("varint does not end")


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _delimited(number: int, payload: bytes) -> bytes:
    return _encode_varint(number << 3 | 2) + _encode_varint(len(payload)) + payload


def _message(
    data: memoryview, start: int, end: int, kind: str, result: Detached, depth: int
) -> list[bytes | memoryview]:
    if kind == "tensor":
        return _tensor(data, start, end, result)
    pieces: list[bytes | memoryview] = []
    for item in _fields(data, start, end):
        inner = _PATHS[kind].get(item.number)
        small = item.end - item.body < DETACH_BYTES
        if inner is None or small or item.wire_type != 2 or depth >= MAX_DEPTH:
            pieces.append(data[item.start : item.end])
            continue
        before = result.count
        changed = _message(data, item.body, item.end, inner, result, depth + 1)
        if result.count == before:
            pieces.append(data[item.start : item.end])
            continue
        pieces.append(_encode_varint(item.number << 3 | 2))
        pieces.append(_encode_varint(sum(map(len, changed))))
        pieces.extend(changed)
    return pieces


def _tensor(
    data: memoryview, start: int, end: int, result: Detached
) -> list[bytes | memoryview]:
    """A TensorProto whose last large `raw_data` became external data at `token`."""
    fields = list(_fields(data, start, end))
    raw = [f for f in fields if f.number == _RAW_DATA and f.wire_type == 2]
    if not raw or raw[-1].end - raw[-1].body < DETACH_BYTES:
        return [data[start:end]]
    kept: list[bytes | memoryview] = [
        data[f.start : f.end]
        for f in fields
        if f.number not in (_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION)
    ]
    offset, length = raw[-1].body, raw[-1].end - raw[-1].body
    result.count += 1
    for key, value in (
        ("location", result.token),
        ("offset", str(offset)),
        ("length", str(length)),
    ):
        entry = _delimited(1, key.encode()) + _delimited(2, value.encode())
        kept.append(_delimited(_EXTERNAL_DATA, entry))
    kept.append(_encode_varint(_DATA_LOCATION << 3) + b"\x01")
    return kept
