"""Damaged copies of files: changed bytes, and ONNX models with one field changed.

What it is: seeded changes that hurt (offsets, sizes, types, names), for tests that nothing but an
error of ours comes of them.
What it is not: the tests (`tests/fuzz`) or the process they happen in (`fakes.case_worker`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

NASTY_INTEGERS = (
    0, 1, -1, 2, 3, 7, 8, 16, 127, 128, 255, -128, 1 << 15, (1 << 31) - 1, -(1 << 31), 1 << 32,
    (1 << 63) - 1, -(1 << 63),
)  # fmt: skip
NASTY_FLOATS = (0.0, -0.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
LARGEST_RAW_BYTES = 1 << 10


def changed_bytes(data: bytes, choose: random.Random, start: int, end: int) -> bytes:
    """A copy with one change in [start, end): bits, bytes, words, pieces lost or doubled."""
    copy = bytearray(data)
    place = choose.randrange(start, end)
    kind = choose.randrange(5)
    if kind == 0:
        copy[place] ^= 1 << choose.randrange(8)
    elif kind == 1:
        copy[place] = choose.randrange(256)
    elif kind == 2:
        width = choose.choice((2, 4, 8))
        word = choose.choice((*NASTY_INTEGERS, choose.randrange(2 * len(data))))
        word &= (1 << 8 * width) - 1
        copy[place : place + width] = word.to_bytes(width, "little")
    elif kind == 3:
        del copy[place : place + choose.randrange(1, 9)]
    else:
        piece = choose.randrange(start, end)
        copy[place:place] = data[piece : piece + choose.randrange(1, 9)]
    return bytes(copy)


def changed_model(model: onnx.ModelProto, choose: random.Random) -> onnx.ModelProto:
    """A copy whose wire format is right and whose meaning is not: one or two fields differ."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for _ in range(choose.choice((1, 1, 2))):
        message, field = choose.choice(list(_fields(copy)))
        if hasattr(getattr(message, field.name), "extend"):
            _change_list(getattr(message, field.name), field, choose, copy)
        else:
            setattr(
                message,
                field.name,
                _other(getattr(message, field.name), field, choose, copy),
            )
    return copy


def _fields(message: Message) -> Iterator[tuple[Any, FieldDescriptor]]:
    """Every field that is set, of every message within."""
    for field, value in message.ListFields():
        if field.type != FieldDescriptor.TYPE_MESSAGE:
            yield message, field
            continue
        if hasattr(value, "extend"):
            yield message, field
        for item in value if hasattr(value, "extend") else [value]:
            yield from _fields(item)


def _change_list(
    items: Any, field: FieldDescriptor, choose: random.Random, model: onnx.ModelProto
) -> None:
    """Lose, double or swap elements; or change one."""
    at, other = choose.randrange(len(items)), choose.randrange(len(items))
    kind = choose.randrange(4)
    if kind == 0:
        del items[at]
    elif kind == 1:
        items.append(items[at])
    elif field.type == FieldDescriptor.TYPE_MESSAGE:
        kept = type(items[at])()
        kept.CopyFrom(items[at])
        items[at].CopyFrom(items[other])
        items[other].CopyFrom(kept)
    elif kind == 2:
        items[at], items[other] = items[other], items[at]
    else:
        items[at] = _other(items[at], field, choose, model)


def _other(
    value: Any, field: FieldDescriptor, choose: random.Random, model: onnx.ModelProto
) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = (value + 1, value - 1, value * 2, -value)
        low, high = _range(field)
        return min(max(choose.choice((*NASTY_INTEGERS, *near)), low), high)
    if isinstance(value, float):
        return choose.choice(NASTY_FLOATS)
    if isinstance(value, str):
        names = [
            n
            for node in model.graph.node
            for n in (*node.input, *node.output, node.op_type)
        ]
        return choose.choice((*names, "", "ö", value + "x"))
    if isinstance(value, bytes) and value:
        return changed_bytes(value, choose, 0, len(value))
    return value


def _range(field: FieldDescriptor) -> tuple[int, int]:
    if field.type == FieldDescriptor.TYPE_ENUM:
        return 0, max(v.number for v in field.enum_type.values)
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return 0, (1 << 64) - 1
    bits = 31 if field.cpp_type == FieldDescriptor.CPPTYPE_INT32 else 63
    return -(1 << bits), (1 << bits) - 1
