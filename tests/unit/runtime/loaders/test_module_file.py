"""Files become modules, or errors that name them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilewright.base.errors import ArchiveError
from tilewright.formats.vmfb import ModuleDef, archive_bytes
from tilewright.runtime.loaders.module_file import read_module_file
from tilewright.runtime.modules.io_parameters import open_parameters


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "m.vmfb"
    path.write_bytes(archive_bytes(ModuleDef(name="m")))
    assert read_module_file(path).name == "m"
    assert read_module_file(str(path)).name == "m"


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ArchiveError, match=f"^{path}: cannot read the file: "):
            read_module_file(path)
    broken = tmp_path / "broken"
    for data in (b"", b"text", archive_bytes(ModuleDef(name="m"))[:40]):
        broken.write_bytes(data)
        with pytest.raises(ArchiveError, match=f"^{broken}: "):
            read_module_file(broken)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("copy", [False, True])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path, copy: bool) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, os.devnull):
        with pytest.raises(ArchiveError, match=f"^{path}: is a device or a pipe, expected"):
            read_module_file(path, copy=copy)
    with pytest.raises(ArchiveError, match=f"^{pipe}: is a device or a pipe, expected"):
        open_parameters([f"model={pipe}"])
