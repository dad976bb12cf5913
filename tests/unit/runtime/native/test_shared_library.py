"""Libraries that the system opens: each is the one that was meant."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tilewright.base.errors import DeviceError, InputError
from tilewright.runtime.native.plugin_library import PluginLibrary
from tilewright.runtime.native.shared_library import (
    SharedLibrary,
    new_spelling,
    open_first,
)


def library(folder: Path, value: int) -> bytes:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (folder / "f.c").write_text(f"int f(void) {{ return {value}; }}\n")
    made = folder / f"{value}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, folder / "f.c"], check=True)
    return made.read_bytes()


def test_two_libraries_from_bytes_are_two_libraries(tmp_path: Path) -> None:
    libraries = [SharedLibrary(memoryview(library(tmp_path, value))) for value in (1, 2, 3)]
    call = ctypes.CFUNCTYPE(ctypes.c_int)
    assert [call(one.address("f"))() for one in libraries] == [1, 2, 3]


def test_a_path_has_many_spellings(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("here")
    spellings = {new_spelling(str(tmp_path / "x")) for _ in range(200)}
    assert len(spellings) == 200
    assert {Path(one).read_text() for one in spellings} == {"here"}
    assert max(map(len, spellings)) < len(str(tmp_path)) + 50


@pytest.mark.parametrize("name", ["\udcff\udcfe", "none\udcff.so", ""])
def test_a_library_whose_name_is_no_text_is_refused_in_words(name: str) -> None:
    """Names come from the environment, whose bytes may be any, and the system's reason repeats them."""
    names = [name or "/nowhere/none.so"]
    with pytest.raises(DeviceError, match=r"^cuda: no driver: .*cannot open shared object"):
        open_first(names, "cuda", "no driver", "install one")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.so")
    with pytest.raises(DeviceError, match=r"no driver: .*is a device or a pipe"):
        open_first([str(tmp_path / "pipe.so")], "cuda", "no driver", "install one")


@pytest.mark.parametrize("kind", ["pipe", "folder", "loop", "nothing"])
def test_what_is_no_file_is_no_plugin(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "plugin.so"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "loop":
        path.symlink_to(path)
    with pytest.raises(InputError, match=r"plugin\.so: no plugin: "):
        PluginLibrary(path)
