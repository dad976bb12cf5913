"""The C core that travels with a library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from fakes.exported_library import c_compiler
from tilewright.compiler.packaging.library.core_files import FOLDER, UNITS, core_files
from tilewright.compiler.packaging.library.sources import FLAGS

STRICT = ("-Wall", "-Wextra", "-Wconversion", "-Werror")


def test_without_a_name_the_core_keeps_its_names() -> None:
    named, plain = core_files("net"), core_files(None)
    header = f"{FOLDER}/tw_names.h"
    assert b"#define tw_pool_create net_tw_pool_create\n" in named[header]
    assert plain[header].count(b"#define") == 1
    assert {**named, header: b""} == {**plain, header: b""}


@pytest.mark.slow
def test_every_symbol_of_the_core_begins_with_the_models_name(tmp_path: Path) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm")
    compiler = c_compiler()
    for name, text in core_files("net").items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text)
    for unit in UNITS:
        command = [*compiler, *FLAGS, *STRICT, "-c", f"{FOLDER}/{unit}", "-o", "unit.o"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        listed = subprocess.run(
            ["nm", "--defined-only", "-g", "unit.o"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        symbols = [line.split()[-1] for line in listed.stdout.splitlines()]
        assert all(symbol.startswith("net_tw_") for symbol in symbols), (unit, symbols)
