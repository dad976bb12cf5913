"""The seal at the end of our archives: what every load finds, and what verifying finds."""

from __future__ import annotations

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.vmfb import ModuleDef, Rodata, archive_bytes, read_archive
from tilewright.formats.vmfb.seal import SEAL_ATTRIBUTE, SEAL_KIND, verify_archive

WEIGHTS = Rodata(data=bytes(range(256)) * 40)


def archive(sealed: bool = True) -> bytes:
    attributes = {SEAL_ATTRIBUTE: SEAL_KIND} if sealed else {}
    return archive_bytes(ModuleDef(name="m", rodata=(WEIGHTS,), attributes=attributes))


def flipped(data: bytes, place: int) -> bytes:
    copy = bytearray(data)
    copy[place] ^= 1
    return bytes(copy)


def read_and_verify(data: bytes) -> None:
    read_archive(data)
    verify_archive(data)


def test_a_sealed_archive_is_read_and_verified() -> None:
    data = archive()
    assert bytes(read_archive(data).rodata[0].data) == WEIGHTS.data
    verify_archive(data)


def test_every_changed_byte_is_found_by_verifying() -> None:
    data = archive()
    for place in range(0, len(data), 7):
        with pytest.raises(ArchiveError):
            read_and_verify(flipped(data, place))


def test_a_changed_weight_is_found_by_verifying_only() -> None:
    broken = flipped(archive(), len(archive()) - 2000)
    read_archive(broken)
    with pytest.raises(ArchiveError, match="the file is damaged"):
        verify_archive(broken)


@pytest.mark.parametrize("cut", [1, 8, 23, 24, 25, 100])
def test_a_cut_archive_is_refused(cut: int) -> None:
    with pytest.raises(ArchiveError):
        read_archive(archive()[:-cut])


def test_something_behind_the_seal_is_refused() -> None:
    with pytest.raises(ArchiveError, match="its end is missing"):
        read_archive(archive() + b"more")
    seal = archive()[-24:]
    with pytest.raises(ArchiveError, match="bytes before the seal"):
        read_archive(archive() + seal)


def test_archives_without_a_seal_are_read_but_not_verified() -> None:
    data = archive(sealed=False)
    read_archive(data)
    verify_archive(data, optional=True)
    with pytest.raises(ArchiveError, match="has no checksum"):
        verify_archive(data)
