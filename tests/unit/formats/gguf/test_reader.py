from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import parameter_files
from fakes.language_models import pair
from tilewright.base.errors import ArchiveError
from tilewright.formats.gguf import read_gguf

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 3,
    "epsilon": 0.5,
    "flag": True,
    "names": ["a", "", "\u00e4\u2581"],
    "scores": [0.0, -1.5],
    "types": [1, 2, 3],
}
DATA = parameter_files.gguf(
    [
        ("w", (2, 64), 8, bytes(range(136))),
        ("v", (3,), 0, np.arange(3, dtype="<f4").tobytes()),
    ],
    metadata=[pair(key, value) for key, value in METADATA.items()],
)


def test_metadata_of_every_type_is_read() -> None:
    found = read_gguf(DATA).metadata
    assert found["general.architecture"] == "llama"
    assert found["llama.block_count"] == 3
    assert found["epsilon"] == 0.5
    assert found["flag"] is True
    assert found["names"] == ("a", "", "\u00e4\u2581")
    assert np.array_equal(found["scores"], [0.0, -1.5])
    assert np.array_equal(found["types"], [1, 2, 3])


def test_tensors_show_the_memory_of_the_file() -> None:
    file = read_gguf(DATA)
    blocks = file.bytes_of(file.tensors["w"])
    assert blocks.shape == (2, 2, 34)
    assert blocks.tobytes() == bytes(range(136))
    assert np.shares_memory(blocks, np.frombuffer(DATA, np.uint8))


def test_dimensions_are_outermost_first() -> None:
    assert read_gguf(DATA).tensors["w"].shape == (2, 64)


def test_pieces_of_characters_in_texts_are_kept() -> None:
    raw = parameter_files.gguf_text("k") + struct.pack("<IQ", 8, 2) + b"\xc3("
    text = read_gguf(parameter_files.gguf([], metadata=[raw])).metadata["k"]
    assert isinstance(text, str)
    assert text.encode("utf-8", "surrogateescape") == b"\xc3("


BROKEN = {
    "other magic": (b"ONNX" + DATA[4:], "does not begin with 'GGUF'"),
    "version": (b"GGUF\x01" + DATA[5:], "GGUF version 1"),
    "tensors": (DATA[:8] + b"\xff" * 8 + DATA[16:], "does not fit"),
    "pairs": (DATA[:16] + b"\xff" * 8 + DATA[24:], "does not fit"),
    "truncated": (DATA[:-40], "needs"),
    "twice": (
        parameter_files.gguf([("w", (1,), 0, b"1234"), ("w", (1,), 0, b"1234")]),
        "'w' stands twice",
    ),
    "metadata twice": (
        parameter_files.gguf([], metadata=[pair("flag", 1), pair("k", 2), pair("flag", 1)]),
        "metadata 'flag' stands twice",
    ),
    "rank": (parameter_files.gguf([("w", (1,) * 9, 0, b"1234")]), "of rank 9"),
    "rows": (
        parameter_files.gguf([("w", (32, 33), 2, b"1" * 600)]),
        "whole number of blocks",
    ),
    "texts": (
        parameter_files.gguf(
            [],
            metadata=[parameter_files.gguf_text("k") + struct.pack("<IIQ", 9, 8, 1 << 62)],
        ),
        "does not fit",
    ),
    "numbers": (
        parameter_files.gguf(
            [],
            metadata=[parameter_files.gguf_text("k") + struct.pack("<IIQ", 9, 12, 1 << 62)],
        ),
        "needs",
    ),
    "nested": (
        parameter_files.gguf(
            [], metadata=[parameter_files.gguf_text("k") + struct.pack("<IIQ", 9, 9, 1)]
        ),
        "of type 9, which is not known",
    ),
    "alignment": (
        parameter_files.gguf([], metadata=[pair("general.alignment", 12)]),
        "is 12",
    ),
    "alignment of text": (
        parameter_files.gguf([], metadata=[pair("general.alignment", "x")]),
        "multiple of 8",
    ),
    "dimensions": (
        parameter_files.gguf([("w", (1 << 40, 1 << 40), 0, b"1234")]),
        "needs",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_files_are_errors_that_name_the_place(case: str) -> None:
    data, message = BROKEN[case]
    with pytest.raises(ArchiveError, match=message):
        read_gguf(data, "bad.gguf")


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(DATA) - 1), st.binary(min_size=1, max_size=9))
def test_hostile_bytes_are_errors_or_files(place: int, patch: bytes) -> None:
    data = DATA[:place] + patch + DATA[place + len(patch) :]
    try:
        file = read_gguf(data)
    except ArchiveError:
        return
    for tensor in file.tensors.values():
        assert tensor.offset + tensor.size_bytes <= len(data)


def test_the_order_of_bytes_of_big_endian_machines_is_named() -> None:
    data = bytearray(parameter_files.gguf([]))
    data[4:8] = data[4:8][::-1]
    with pytest.raises(ArchiveError, match="big-endian"):
        read_gguf(bytes(data))


def test_names_of_any_length_are_abridged_in_errors() -> None:
    long = "k" * 100_000
    wrong = parameter_files.gguf_text(long) + struct.pack("<I", 99)
    with pytest.raises(ArchiveError, match="of type 99") as caught:
        read_gguf(parameter_files.gguf([], metadata=[wrong]))
    assert len(str(caught.value)) < 300
    with pytest.raises(ArchiveError, match="tensor 'kkk") as caught:
        read_gguf(parameter_files.gguf([(long, (1 << 60,), 0, b"")]))
    assert len(str(caught.value)) < 400
