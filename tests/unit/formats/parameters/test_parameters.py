"""Parameter files: each format against bytes written independently, whole, cut and mutated."""

from __future__ import annotations

import io
import json
import random
import struct

import ml_dtypes
import numpy as np
import pytest

from fakes import parameter_files
from tilewright.base.errors import ArchiveError, UserError
from tilewright.formats.parameters import (
    ParameterIndex,
    SplatEntry,
    StoredEntry,
    read_parameters,
    write_archive,
)

RNG = np.random.default_rng(7)
F32 = RNG.standard_normal((3, 5)).astype(np.float32)
BF16 = RNG.standard_normal(7).astype(ml_dtypes.bfloat16)
EMPTY = np.zeros((0, 4), np.int64)
Q4 = RNG.bytes(18 * 3)  # 96 elements of Q4_0
SPLAT = SplatEntry("s", 24, bytes(range(8)))

IRPA = parameter_files.irpa({"a": F32, "b.c": BF16.view(np.uint16), "": b"xyz"}, [SPLAT])
SAFETENSORS = parameter_files.safetensors(
    {"a": F32, "b.c": BF16, "e": EMPTY}, {"a": "F32", "b.c": "BF16", "e": "I64"}
)
GGUF = parameter_files.gguf(
    [
        ("a", F32.shape, 0, F32.tobytes()),
        ("b.c", BF16.shape, 30, BF16.tobytes()),
        ("q", (3, 32), 2, Q4),
    ],
    metadata=[
        parameter_files.gguf_text("general.alignment") + struct.pack("<II", 4, 64),
        parameter_files.gguf_text("names")
        + struct.pack("<IIQ", 9, 8, 2)
        + parameter_files.gguf_text("ä")
        + parameter_files.gguf_text(""),
        parameter_files.gguf_text("floats") + struct.pack("<IIQ3d", 9, 12, 3, 1, 2, 3),
        parameter_files.gguf_text("yes") + struct.pack("<I?", 7, True),
    ],
    alignment=64,
)
PARAMS = parameter_files.tvm_params({"a": F32, "b.c": BF16, "e": EMPTY})
FILES = {"irpa": IRPA, "safetensors": SAFETENSORS, "gguf": GGUF, "params": PARAMS}


def stored(index: ParameterIndex, name: str) -> bytes:
    entry = index.entries[name]
    assert isinstance(entry, StoredEntry)
    return bytes(index.bytes_of(entry))


@pytest.mark.parametrize("name", FILES)
def test_every_format_gives_back_what_was_written(name: str) -> None:
    index = read_parameters(FILES[name], "f")
    assert index.format == name
    assert stored(index, "a") == F32.tobytes()
    assert stored(index, "b.c") == BF16.tobytes()


def test_what_only_some_formats_know() -> None:
    tensors = read_parameters(SAFETENSORS).entries
    assert tensors["e"] == StoredEntry("e", len(SAFETENSORS), 0, "I64", (0, 4))
    archive = read_parameters(IRPA).entries
    assert archive["s"] == SPLAT
    assert stored(read_parameters(IRPA), "") == b"xyz"
    index = read_parameters(GGUF)
    entry = index.entries["q"]
    assert isinstance(entry, StoredEntry)
    assert (entry.element_type, entry.shape, entry.offset % 64) == ("Q4_0", (3, 32), 0)
    assert stored(index, "q") == Q4


def test_archives_are_aligned_for_mapping() -> None:
    assert len(IRPA) % 4096 == 0
    for entry in read_parameters(IRPA).entries.values():
        assert isinstance(entry, SplatEntry) or entry.offset % 64 == 0


def test_joined_archives_are_one() -> None:
    """A header may point to the next one; offsets stay relative to their own header."""
    first = parameter_files.irpa({"a": F32})
    second = parameter_files.irpa({"z": b"last", "y": F32})
    linked = bytearray(first + second)
    struct.pack_into("<Q", linked, 16, len(first))
    index = read_parameters(linked)
    assert list(index.entries) == ["a", "z", "y"]
    assert stored(index, "z") == b"last"
    twice = bytearray(first + first)
    struct.pack_into("<Q", twice, 16, len(first))
    with pytest.raises(ArchiveError, match="'a' stands twice"):
        read_parameters(twice)


def test_erased_entries_are_skipped() -> None:
    data = bytearray(parameter_files.irpa({"a": F32, "b": b"kept"}))
    struct.pack_into("<I", data, 96 + 8, 0)
    assert list(read_parameters(data).entries) == ["b"]


def test_metadata_travels() -> None:
    file = io.BytesIO()
    write_archive(file, {"a": b"1", "b": b"2"}, metadata={"b": b"note"})
    entries = read_parameters(file.getvalue()).entries
    assert [entry.metadata for entry in entries.values()] == [b"", b"note"]


def test_an_empty_archive() -> None:
    assert read_parameters(parameter_files.irpa({})).entries == {}
    assert read_parameters(parameter_files.gguf([])).entries == {}


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(UserError, match="same name"):
        parameter_files.irpa({"s": b""}, [SPLAT])
    with pytest.raises(UserError, match="pattern of 3"):
        parameter_files.irpa({}, [SplatEntry("x", 6, b"abc")])


# --- broken files

BROKEN = {
    "nothing": (b"", "not a parameter file"),
    "text": (b"hello, this is text", "not a parameter file"),
    "future irpa": (IRPA[:4] + b"\x01" + IRPA[5:], "version 1.0, expected 0.0"),
    "old gguf": (b"GGUF\x01" + GGUF[5:], "GGUF version 1"),
    "gguf type": (parameter_files.gguf([("a", (1,), 99, b"1234")]), "unknown tensor type 99"),
    "gguf blocks": (parameter_files.gguf([("a", (33,), 2, b"1" * 36)]), "whole number of blocks"),
    "gguf offset": (parameter_files.gguf([("a", (64,), 0, b"1234")]), "'a' at byte"),
    "gguf count": (GGUF[:8] + b"\xff" * 8 + GGUF[16:], "does not fit the file"),
    "no json": (struct.pack("<Q", 9) + b"{'single}", "not JSON"),
    "deep json": (struct.pack("<Q", 200002) + b'{"a":' * 40000 + b"  ", "not JSON"),
    "long header": (struct.pack("<Q", 1 << 40) + b"{}", "at most"),
    "no fields": (struct.pack("<Q", 8) + b'{"a":[]}', "expected dtype"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_with_the_place(name: str) -> None:
    data, message = BROKEN[name]
    with pytest.raises(ArchiveError, match=message) as caught:
        read_parameters(data, "weights.bin")
    assert str(caught.value).startswith("weights.bin")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "4 bytes for F32"),
        ({"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}, "unknown dtype"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "natural"),
        ({"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}, "natural"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}, "needs 4 bytes"),
        ({"dtype": "F32", "shape": [1], "data_offsets": [8, 4]}, "-4 bytes"),
    ],
)
def test_inconsistent_tensors_are_refused(fields: dict[str, object], message: str) -> None:
    text = json.dumps({"a": fields}).encode()
    with pytest.raises(ArchiveError, match=message):
        read_parameters(struct.pack("<Q", len(text)) + text + b"1234")


@pytest.mark.parametrize("name", FILES)
def test_mutated_files_never_do_worse_than_an_error(name: str) -> None:
    """Bytes changed, cut and repeated; whatever is accepted lies inside of the file."""
    whole = FILES[name]
    head = min(len(whole), 1024)
    randomness = random.Random(name)
    for _ in range(3000):
        data = bytearray(whole)
        for _ in range(randomness.randint(1, 4)):
            data[randomness.randrange(head)] = randomness.choice(
                (0, 1, 0x7F, 0xFF, randomness.getrandbits(8))
            )
        if randomness.random() < 0.2:
            del data[randomness.randrange(len(data)) :]
        try:
            index = read_parameters(data)
        except ArchiveError:
            continue
        for entry in index.entries.values():
            if isinstance(entry, StoredEntry):
                assert len(index.bytes_of(entry)) == entry.length


def test_entries_that_share_a_long_name_are_refused() -> None:
    """Each name begins a byte later in the same text: together as long as the square of the file."""
    prefix, ranges = struct.Struct("<4sHHQQQ"), struct.Struct("<Q6Q")
    entry = struct.Struct("<QIQQQQQQQQ")
    count, size = 2_000, -(-entry.size // 16) * 16
    header = prefix.size + ranges.size
    table, texts = -(-header // 16) * 16, -(-header // 16) * 16 + count * size
    data = prefix.pack(b"IRPA", 0, 0, header, 0, 0)
    data += ranges.pack(count, table, count * size, texts, count * 8, 0, 0)
    data = data.ljust(table, b"\0")
    for n in range(count):
        row = entry.pack(entry.size, 2, 0, n, count * 8 - n, 0, 0, 0, 0, 0)
        data += row.ljust(size, b"\0")
    with pytest.raises(ArchiveError, match="refer to the same data over and over"):
        read_parameters(data + b"a" * count * 8)


def test_shapes_without_end_are_refused() -> None:
    text = json.dumps(
        {"a": {"dtype": "F32", "shape": [10**400] * 100, "data_offsets": [0, 0]}}
    ).encode()
    with pytest.raises(ArchiveError, match="expected dtype, shape and data_offsets"):
        read_parameters(struct.pack("<Q", len(text)) + text)
