"""Records of signatures are found at the end of a file, and digests see every change."""

from __future__ import annotations

import hashlib
import struct

import pytest

from fakes.scarce_threads import threads_left
from tilewright.base.errors import ArchiveError
from tilewright.formats.signature import (
    RECORD_LIMIT,
    SIGNATURE_BYTES,
    SignatureRecord,
    content_digest,
    fingerprint,
    read_detached,
    split_signatures,
)

RECORD = SignatureRecord(
    size_bytes=7, digest=bytes(range(32)), public_key=b"k" * 32, signature=b"s" * 64
)
PIECE = 1 << 22


def test_records_behind_the_content_are_read_in_order() -> None:
    other = SignatureRecord(size_bytes=7, digest=bytes(32), public_key=b"o" * 32)
    data = b"content" + RECORD.to_bytes() + other.to_bytes()
    content, records = split_signatures(data)
    assert bytes(content) == b"content"
    assert records == (RECORD, other)
    assert len(RECORD.to_bytes()) == SIGNATURE_BYTES == 152


@pytest.mark.parametrize("data", [b"", b"content", b"TILESIGN", bytes(152)])
def test_a_file_without_records_is_all_content(data: bytes) -> None:
    content, records = split_signatures(data)
    assert bytes(content) == data
    assert records == ()


def test_records_of_other_versions_are_refused_with_both() -> None:
    data = bytearray(RECORD.to_bytes())
    hint = "sign the file again with this version"
    for version, expected in ((2, f"update Tilewright, or {hint}"), (0, hint)):
        struct.pack_into("<H", data, 8, version)
        reads = rf"has version {version} .* reads version 1"
        with pytest.raises(ArchiveError, match=reads) as caught:
            split_signatures(b"content" + bytes(data))
        assert caught.value.hint == expected


def test_records_without_end_are_bounded() -> None:
    data = RECORD.to_bytes() * (RECORD_LIMIT + 5)
    content, records = split_signatures(data)
    assert len(records) == RECORD_LIMIT
    assert len(content) == 5 * SIGNATURE_BYTES


def test_a_detached_file_has_records_alone() -> None:
    assert read_detached(RECORD.to_bytes(), "x.sig") == (RECORD,)
    for data in (b"", b"x" + RECORD.to_bytes(), RECORD.to_bytes()[:-1]):
        with pytest.raises(ArchiveError, match="no file of signatures"):
            read_detached(data, "x.sig")


def test_what_is_signed_holds_every_field_and_says_for_what() -> None:
    assert RECORD.message.startswith(b"tilewright signature 1\0TILESIGN")
    for part in (RECORD.digest, RECORD.public_key, struct.pack("<Q", 7)):
        assert part in RECORD.message


def test_the_digest_is_the_tree_that_the_format_says() -> None:
    data = bytes(range(256)) * 40000  # two pieces and a half
    leaves = [
        hashlib.sha256(b"\0" + data[s : s + PIECE]).digest()
        for s in range(0, len(data), PIECE)
    ]
    assert len(leaves) == 3
    root = hashlib.sha256(b"\1" + struct.pack("<Q", len(data)) + b"".join(leaves))
    assert content_digest(data) == root.digest()


def test_every_changed_byte_and_length_gives_another_digest() -> None:
    data = bytearray(PIECE + 3)
    seen = {content_digest(data)}
    for place in (0, PIECE - 1, PIECE, PIECE + 2):
        data[place] ^= 1
        seen.add(content_digest(data))
    for size in (0, 1, PIECE, PIECE + 1):
        seen.add(content_digest(bytes(data[:size])))
    assert len(seen) == 9


def test_a_fingerprint_is_that_of_the_key() -> None:
    assert fingerprint(b"k" * 32) != fingerprint(b"l" * 32)
    assert len(fingerprint(b"k" * 32)) == len("SHA256:") + 43


@pytest.mark.parametrize("count", [0, 1])
def test_the_digest_is_the_same_where_threads_are_scarce(count: int) -> None:
    data = bytes(range(256)) * (5 << 14)
    expected = content_digest(data)
    with threads_left(count):
        assert content_digest(data) == expected
