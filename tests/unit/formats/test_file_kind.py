"""What a file is that a loader refuses."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from tilewright.base.file_kinds import LOAD_MODULE
from tilewright.formats.file_kind import refused_kind


def test_contents_decide_before_names() -> None:
    kind = refused_kind(b"!<arch>\n", "model.onnx")
    assert kind is not None
    assert (kind.subject, kind.remedy) == ("an archive of objects", LOAD_MODULE)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.o"))
    kind = refused_kind(packed.getvalue(), "model.zip")
    assert kind is not None
    assert (kind.subject, kind.remedy) == ("an archive (tar)", LOAD_MODULE)


@pytest.mark.parametrize("name", ["net", "net.vmfb", "net.VMFB", "net.old"])
def test_nothing_is_said_of_what_may_be_a_damaged_artifact(name: str) -> None:
    assert refused_kind(b"\x80\x81\x82" * 9, name) is None


def test_what_is_called_a_library_and_is_none_has_no_remedy() -> None:
    for name in ("net.so", "net.a", "net.tar", "net.S"):
        kind = refused_kind(b"\x80\x81\x82" * 9, name)
        assert kind is not None
        assert (kind.subject, kind.remedy) == ("of an unknown format", "")


def test_what_gzip_compressed_is_looked_into() -> None:
    """A model in gzip was "an archive (tar)", for `load_module`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a.o"))
    for content, subject in (
        (packed.getvalue(), "an archive (tar)"),
        (b"\x08\x07" * 1000, "compressed (gzip)"),
        (b"", "compressed (gzip)"),
    ):
        kind = refused_kind(gzip.compress(content), "model.onnx.gz")
        assert kind is not None
        assert kind.subject == subject
        assert (kind.remedy == LOAD_MODULE) == (subject == "an archive (tar)")


def test_a_zip_file_that_is_called_an_artifact_is_for_its_reader() -> None:
    assert refused_kind(b"PK\3\4" + bytes(60), "net.VMFB") is None
    assert refused_kind(b"PK\3\4" + bytes(60), "net.foo") is not None
