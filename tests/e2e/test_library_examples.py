"""The examples in C, C++, Rust and Go compute what Python computes, from one exported model."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import minilm  # pyright: ignore[reportMissingImports] - on the path of tests only
import tilewright as tw
from fakes.exported_library import c_compiler

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TOKENS = [101, 1996, 4937, 7719, 2648, 2096, 1037, 2158, 2003, 2652, 2858, 102]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec(minilm.PACKAGE) is None,
        reason="extra 'demo' is not installed",
    ),
]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, np.ndarray]:
    """A folder with the library and its headers, and the embedding that Python computes."""
    c_compiler()
    folder = tmp_path_factory.mktemp("minilm")
    onnx.save(minilm.build_model(minilm.model_folder()), folder / "minilm.onnx")
    model = tw.compile(folder / "minilm.onnx", threads=1)
    model.build().export_library(
        folder / "libminilm.so", name="minilm", header=folder / "minilm.hpp"
    )
    ids = np.array([TOKENS])
    return folder, np.asarray(model(ids, np.ones_like(ids))[0])[0]


def found(name: str) -> str:
    path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        pytest.skip(f"there is no {name}")
    return path


def build_c(folder: Path) -> list[str]:
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Werror")
    return [*c_compiler(), "-std=c11", *warnings, "embed.c", *LINK, "-o", "embed"]


def build_cpp(folder: Path) -> list[str]:
    warnings = ("-Wall", "-Wextra", "-Wconversion", "-Werror", "-pedantic")
    return [found("g++"), "-std=c++17", *warnings, "embed.cpp", *LINK, "-o", "embed"]


def build_rust(folder: Path) -> list[str]:
    return [
        *(
            found("rustc"),
            "-O",
            "--edition",
            "2021",
            "-D",
            "warnings",
            "embed.rs",
            "-o",
            "embed",
        ),
        *("-L.", "-lminilm", "-C", "link-arg=-Wl,-rpath,$ORIGIN"),
    ]


def build_go(folder: Path) -> list[str]:
    return [found("go"), "build", "-o", "embed", "."]


LINK = ("-L.", "-lminilm", "-Wl,-rpath,$ORIGIN")
BUILDS = {"c": build_c, "cpp": build_cpp, "rust": build_rust, "go": build_go}


@pytest.mark.parametrize("language", BUILDS)
def test_the_example_computes_what_python_computes(
    exported: tuple[Path, np.ndarray], language: str, tmp_path: Path
) -> None:
    folder, wanted = exported
    build: Callable[[Path], list[str]] = BUILDS[language]
    command = build(tmp_path)
    for path in [*folder.glob("*minilm.[hs]*"), *(EXAMPLES / language).iterdir()]:
        shutil.copy(path, tmp_path)
    cache = {
        "GOCACHE": str(tmp_path / "cache"),
        "GOFLAGS": "-mod=mod",
        "HOME": str(tmp_path),
    }
    environment = {**os.environ, **cache} if language == "go" else None
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False,
        env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran = subprocess.run(
        [str(tmp_path / "embed"), *map(str, TOKENS)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    got = np.array([float(line) for line in ran.stdout.split()], np.float32)
    np.testing.assert_array_equal(got, wanted)
    refused = subprocess.run(
        [str(tmp_path / "embed"), *map(str, [*TOKENS[:2], 9**9])],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert refused.returncode == 1
    assert f"index {9**9} is out of range on axis 0" in refused.stderr
    no_number = subprocess.run(
        [str(tmp_path / "embed"), "101", "hello"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert no_number.returncode == 1
    assert no_number.stderr == "embed: expected token ids, which are whole numbers\n"
