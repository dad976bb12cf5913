"""Tar archives of strangers: what Python and GNU tar write is read, everything that could do harm refused."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.tar import is_tar, read_tar


def make(
    *entries: tuple[str, bytes], fmt: int = tarfile.GNU_FORMAT, **fields: object
) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=fmt) as archive:
        for name, data in entries:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            for key, value in fields.items():
                setattr(entry, key, value)
            archive.addfile(entry, io.BytesIO(data))
    return file.getvalue()


def contents(data: bytes) -> dict[str, bytes]:
    return {member.name: bytes(member.data) for member in read_tar(data)}


@pytest.mark.parametrize(
    "fmt", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
)
def test_what_python_writes_is_read(fmt: int) -> None:
    names = ["lib0.o", "./devc.o", "sub/folder/x.c", f"{'d' * 90}/{'n' * 60}.o", "empty"]
    entries = [(name, name.encode() * 100) for name in names[:-1]] + [("empty", b"")]
    expected = {name.removeprefix("./"): data for name, data in entries}
    assert contents(make(*entries, fmt=fmt)) == expected


@pytest.mark.parametrize("fmt", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_and_foreign_names_are_read(fmt: int) -> None:
    name = "/".join(["größe" * 20] * 4) + ".o"
    assert contents(make((name, b"1"), ("b", b"2"), fmt=fmt)) == {name: b"1", "b": b"2"}


def test_gzip_is_taken_within_a_limit() -> None:
    data = gzip.compress(make(("a.o", bytes(1 << 20))))
    assert is_tar(data)
    assert len(contents(data)["a.o"]) == 1 << 20
    with pytest.raises(ArchiveError, match="is more than 100000 bytes"):
        read_tar(data, limit_bytes=100_000)
    with pytest.raises(ArchiveError, match="cut off"):
        read_tar(data[:-20])


def test_folders_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "x.o").write_bytes(b"x")
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(tmp_path / "sub", "sub")
    assert contents(file.getvalue()) == {"sub/x.o": b"x"}


def test_bytes_are_views_of_the_archive() -> None:
    data = bytearray(make(("a.o", b"before")))
    (member,) = read_tar(data)
    data[data.index(b"before")] = ord("B")
    assert bytes(member.data) == b"Before"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/etc/passwd", "leaves the folder"),
        ("../x.o", "leaves the folder"),
        ("a/../../x.o", "leaves the folder"),
        ("a\\..\\x.o", "leaves the folder"),
        ("c:x.o", "leaves the folder"),
        ("a\x1bb.o", "leaves the folder"),
        ("n" * 300, "is too long"),
        ("./.", "has no name"),
    ],
)
def test_names_that_mean_another_place_are_refused(name: str, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        read_tar(make((name, b"x")), "net.tar")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (tarfile.SYMTYPE, "is a symbolic link"), (tarfile.LNKTYPE, "is a link"),
        (tarfile.CHRTYPE, "is a device"), (tarfile.BLKTYPE, "is a device"),
        (tarfile.FIFOTYPE, "is a pipe"), (tarfile.GNUTYPE_SPARSE, "is a sparse file"),
        (b"Z", "is of unknown kind"),
    ],
)  # fmt: skip
def test_what_is_no_file_is_refused(kind: bytes, said: str) -> None:
    data = make(("x.o", b""), type=kind, linkname="/etc/passwd")
    with pytest.raises(ArchiveError, match=said) as caught:
        read_tar(data, "net.tar")
    assert str(caught.value).startswith("net.tar: member 'x.o'")


def test_names_that_meet_are_refused() -> None:
    with pytest.raises(ArchiveError, match=r"member 'A.o': is there twice"):
        read_tar(make(("a.o", b"1"), ("A.o", b"2")))
    with pytest.raises(ArchiveError, match="'a' is a file and a folder"):
        read_tar(make(("a", b"1"), ("a/b", b"2")))


def test_too_many_members_are_refused() -> None:
    data = make(*((f"{i}.o", b"") for i in range(4100)))
    with pytest.raises(ArchiveError, match="more than 4096 members"):
        read_tar(data)


def test_damage_is_refused_with_its_place() -> None:
    data = bytearray(make(("a.o", b"x" * 600), ("b.o", b"y")))
    assert is_tar(data)
    with pytest.raises(ArchiveError, match="member at byte 512 needs 600 bytes"):
        read_tar(data[:1000])
    data[1540] ^= 1
    with pytest.raises(ArchiveError, match="header at byte 1536 does not fit"):
        read_tar(data)
    assert not is_tar(bytes(2000))
    assert not is_tar(b"x" * 100)


def test_a_size_in_an_extended_header_is_bounded_by_the_archive() -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("a.o")
        entry.pax_headers = {"size": "99999999999999"}
        archive.addfile(entry)
    with pytest.raises(ArchiveError, match="needs 99999999999999 bytes"):
        read_tar(file.getvalue())


@pytest.mark.parametrize(
    "header", [b"11 path=a\n\nx=\n", b"0 a=b\n", b"5 a=b", b"x", b"6 a=b\n "]
)
def test_an_extended_header_that_is_none_is_refused_and_ends(header: bytes) -> None:
    data = bytearray(make(("x", header), type=b"x"))
    with pytest.raises(ArchiveError, match="an extended header is damaged"):
        read_tar(data)
