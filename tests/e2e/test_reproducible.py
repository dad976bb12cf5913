"""The same model becomes the same bytes: wherever it lies, whenever, with however many processes."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from fakes.onnx_models import parse
from fakes.small_models import mlp, scale_and_shift

COMPILE = """
import sys
import tilewright as tw
source, folder, jobs, suffixes, levels = sys.argv[1:]
levels = levels.split() or None
for suffix in suffixes.split():
    target = f"{folder}/net{suffix.replace('-program', '')}"
    if suffix == ".vmfb":
        tw.compile(source, jobs=int(jobs), levels=levels).save(target)
    else:
        tw.build(source, jobs=int(jobs), levels=levels).export_library(target)
"""
LIBRARIES = [
    pytest.param(".so .a", marks=pytest.mark.slow),
    pytest.param(".o .tar", marks=pytest.mark.nightly),  # of the same objects
]
TEXTS_AND_PROGRAM = ".c .ll .s -program"


def save(model: onnx.ModelProto, path: Path, *, written: float) -> Path:
    """The model in a file that was last changed then."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.SerializeToString(deterministic=True))
    os.utime(path, (written, written))
    return path


def digests(
    source: Path,
    folder: Path,
    suffixes: str,
    *,
    jobs: int,
    levels: str = "",
    umask: int = 0o022,
    **environment: object,
) -> Mapping[str, str]:
    """Digests of what a process of its own makes of a model."""
    folder.mkdir(parents=True)
    settings = {name: str(value) for name, value in environment.items()}
    base = {k: v for k, v in os.environ.items() if k != "SOURCE_DATE_EPOCH"}
    subprocess.run(
        [
            sys.executable,
            "-c",
            COMPILE,
            source.name,
            str(folder),
            str(jobs),
            suffixes,
            levels,
        ],
        env={**base, "PYTHONPATH": os.pathsep.join(sys.path), **settings},
        cwd=source.parent,
        check=True,
        umask=umask,
    )
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def check(
    model: onnx.ModelProto, folder: Path, suffixes: str, levels: str = ""
) -> Mapping[str, str]:
    """Compile under two circumstances that have nothing in common, then again with a full cache."""
    here = save(model, folder / "here" / "one.onnx", written=1e9)
    there = save(model, folder / "a" / "b" / "two.onnx", written=1.5e9)
    first = digests(
        here,
        folder / "first",
        suffixes,
        jobs=1,
        levels=levels,
        PYTHONHASHSEED=1,
        TILEWRIGHT_CACHE_DIR=folder / "cache_one",
        TZ="UTC",
    )
    (folder / "temporary files").mkdir()
    second = digests(
        there,
        folder / "second" / "deeper",
        suffixes,
        jobs=2,
        levels=levels,
        umask=0o077,
        TMPDIR=folder / "temporary files",
        USER="somebody",
        LOGNAME="somebody",
        PYTHONHASHSEED=4321,
        TILEWRIGHT_CACHE_DIR=folder / "cache_two",
        TZ="Asia/Tokyo",
        HOME=folder,
        LC_ALL="tr_TR.UTF-8",
        LANG="tr_TR.UTF-8",
    )
    warm = digests(
        there,
        folder / "warm",
        suffixes,
        jobs=1,
        levels=levels,
        TILEWRIGHT_CACHE_DIR=folder / "cache_one",
    )
    assert len(first) >= len(suffixes.split())
    assert first == second == warm
    return first


@pytest.mark.slow
def test_the_same_model_becomes_the_same_archive(tmp_path: Path) -> None:
    check(mlp(), tmp_path, ".vmfb")


def test_the_name_of_the_file_is_not_part_of_the_model(tmp_path: Path) -> None:
    model = parse(
        "unnamed (float[8,4] w, int64[n] i) => (float[n,4] y)"
        "{ g = Gather <axis = 0> (w, i)  y = Relu (g) }"
    )
    model.graph.name = ""
    archives: list[bytes] = []
    for name in ("one", "two"):
        source = save(model, tmp_path / f"{name}.onnx", written=1e9)
        tw.compile(str(source)).save(tmp_path / f"{name}.vmfb")
        archives.append((tmp_path / f"{name}.vmfb").read_bytes())
        assert f"{name}.onnx".encode() not in archives[-1]
    assert archives[0] == archives[1]
    for engine in ("plan", "vm"):
        session = tw.load(tmp_path / "one.vmfb", engine=engine)
        with pytest.raises(tw.InputError, match=r"node '.*an index is out of range|index"):
            session(np.zeros((8, 4), np.float32), np.array([9]))


@pytest.mark.slow
def test_models_of_open_sizes_and_several_levels_too(tmp_path: Path) -> None:
    check(scale_and_shift(), tmp_path / "open", ".vmfb")
    check(mlp("batch"), tmp_path / "levels", ".vmfb", "v2 v3 v4")


@pytest.mark.parametrize("suffixes", LIBRARIES)
def test_the_same_model_becomes_the_same_libraries(tmp_path: Path, suffixes: str) -> None:
    check(mlp(), tmp_path, suffixes)


@pytest.mark.nightly
def test_the_same_model_becomes_the_same_texts_and_program(tmp_path: Path) -> None:
    made = check(mlp(), tmp_path, TEXTS_AND_PROGRAM)
    assert {"net.c", "net.ll", "net.s", "net"} <= set(made)
    assert "net.library/core/model.c" in made


@pytest.mark.slow
def test_weights_beside_are_the_same_too(tmp_path: Path) -> None:
    archives: list[tuple[bytes, ...]] = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        model = tw.compile(
            save(mlp(), folder / "m.onnx", written=1e9), jobs=len(archives) + 1
        )
        model.save(folder / "net.vmfb", weights=folder / "net.irpa")
        model.export_library(folder / "net.so", weights=folder / "net.irpa")
        archives.append(tuple((folder / f"net{s}").read_bytes() for s in (".vmfb", ".so")))
        assert (folder / "net.irpa").read_bytes() == (
            tmp_path / "one" / "net.irpa"
        ).read_bytes()
    assert archives[0] == archives[1]
