"""Builds the C tests in native/tests with and without sanitizers, warnings as errors, and runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

NATIVE = Path(__file__).resolve().parents[4] / "native"
STRICT = ["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wconversion", "-Werror"]
WRAPPED = ("malloc", "calloc", "realloc", "posix_memalign")
WRAPS = ["-DTW_WRAPPED", *(f"-Wl,--wrap={name}" for name in WRAPPED)]
INCLUDES = [f"-I{NATIVE / part}" for part in ("include", "src", "src/program")]


def compile_core_test(compiler: list[str], target: Path, flags: list[str]) -> None:
    parts = ("src", "src/program", "src/library", "tests")
    folders = [NATIVE / part for part in parts]
    sources = [path for folder in folders for path in sorted(folder.glob("*.c"))]
    command = [
        *compiler,
        *STRICT,
        *flags,
        *INCLUDES,
        *(WRAPS if sys.platform == "linux" else ()),
        *map(str, sources),
        "-pthread",
        "-o",
        str(target),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    missing = (
        "libtsan",
        "libasan",
        "libubsan",
        "cannot find -l",
        "unsupported option '-fsanitize",
    )
    if done.returncode != 0 and any(word in done.stderr for word in missing):
        pytest.skip("the compiler has no such sanitizer")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        pytest.param(["-O2"], [], marks=pytest.mark.slow),
        pytest.param(
            ["-O1", "-g", "-fsanitize=undefined", "-fno-sanitize-recover=all"],
            [],
            marks=pytest.mark.nightly,
        ),
        # The allocator of the address sanitizer keeps its locks over a fork (up to GCC 14), so that a child
        # waits for ever where another thread was just allocating.
        pytest.param(
            ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
            ["--no-fork"],
            marks=pytest.mark.slow,
        ),
        # The thread sanitizer does not follow a child that starts threads.
        pytest.param(
            ["-O1", "-g", "-fsanitize=thread"], ["--no-fork"], marks=pytest.mark.slow
        ),
    ],
    ids=["plain", "undefined", "address, undefined", "thread"],
)
def test_the_core_holds_its_promises(
    compiler: list[str], tmp_path: Path, flags: list[str], arguments: list[str]
) -> None:
    if any("sanitize" in flag for flag in flags) and shutil.which(compiler[0]) is None:
        pytest.skip("no sanitizers without a system compiler")
    program = tmp_path / "core_test"
    compile_core_test(compiler, program, flags)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [str(program), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all checks held\n"


@pytest.mark.slow
def test_the_binding_compiles_without_warnings(compiler: list[str], tmp_path: Path) -> None:
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        pytest.skip("no Python headers")
    sources = sorted((NATIVE / "src" / "python").glob("*.c"))
    for source in sources:
        done = subprocess.run(
            [
                *(*compiler, *STRICT, *INCLUDES, "-DPy_LIMITED_API=0x030B0000"),
                '-DTW_SOURCES="mark"',
                *("-isystem", str(headers), "-O2", "-fPIC", "-c", str(source)),
                *("-o", str(tmp_path / "out.o")),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_what_runs_relax_compiles_without_a_warning(
    compiler: list[str], tmp_path: Path
) -> None:
    for path in sorted((NATIVE / "src" / "relax").glob("*.c")):
        command = [*compiler, *STRICT, "-O2", *INCLUDES, "-c", str(path)]
        done = subprocess.run(
            [*command, "-o", str(tmp_path / f"{path.stem}.o")],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
