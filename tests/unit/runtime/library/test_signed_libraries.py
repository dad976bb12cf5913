"""Libraries in every form are held to the signature that is asked for, before they are linked or mapped."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

import tilewright as tw
from fakes.ffi_library import make_library
from fakes.small_models import mlp
from tilewright.base.errors import ArchiveError
from tilewright.runtime import load_module
from tilewright.runtime.library import load

pytest.importorskip("cryptography", reason="the extra 'sign' is not installed")
FORMS = ("net.so", "lib0.o", "net.a", "net.tar")


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "maker.key"
    tw.generate_key(path)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_library(tmp_path)
    subprocess.run(["ar", "rcs", tmp_path / "net.a", tmp_path / "lib0.o"], check=True)
    with tarfile.open(tmp_path / "net.tar", "w") as archive:
        archive.add(tmp_path / "lib0.o", "lib0.o")
    return tmp_path


def test_signed_libraries_load_and_others_are_refused_first(
    folder: Path, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted = [f"{key}.pub"]
    for name in FORMS:
        tw.sign(folder / name, key)
        assert load_module(folder / name, trusted_keys=trusted)["add"](20, 22) == 42

    def reached(*_: object) -> None:
        raise AssertionError

    for step in ("_open", "_link", "_load_tar", "VmModule"):
        monkeypatch.setattr(load, step, reached)
    for name in FORMS:
        data = bytearray((folder / name).read_bytes())
        data[len(data) // 2] ^= 1
        (folder / name).unlink()  # the one that is loaded stays mapped
        (folder / name).write_bytes(data)
        with pytest.raises(ArchiveError, match="was changed after"):
            load_module(folder / name, trusted_keys=trusted)
        Path(f"{folder / name}.sig").unlink()
        with pytest.raises(ArchiveError, match="is not signed"):
            load_module(folder / name, trusted_keys=trusted)


@pytest.mark.slow
def test_a_signed_source_does_not_bring_files_that_nobody_signed(
    tmp_path: Path, key: Path
) -> None:
    path = tmp_path / "net.c"
    tw.build(mlp()).export_library(path)
    tw.sign(path, key)
    with pytest.raises(ArchiveError, match=r"needs the folder 'net\.library', which the s"):
        load_module(path, trusted_keys=[f"{key}.pub"])


def test_an_artifact_is_signed_inside_or_beside(tmp_path: Path, key: Path) -> None:
    model = tw.compile(mlp())
    for detached in (False, True):
        path = tmp_path / f"{detached}.vmfb"
        model.save(path)
        with pytest.raises(ArchiveError, match="is not signed"):
            load_module(path, trusted_keys=[f"{key}.pub"])
        tw.sign(path, key, detached=detached)
        module = load_module(path, trusted_keys=[f"{key}.pub"])
        assert module.implements_function("main")
