"""The layering contracts of pyproject.toml hold, and cover every room there is."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tilewright.base.target import BACKENDS
from tilewright.compiler.backends.registry import find_backend

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "tilewright"


def contracts() -> list[dict[str, object]]:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return document["tool"]["importlinter"]["contracts"]


def test_the_contracts_hold() -> None:
    pytest.importorskip("importlinter", reason="extra 'dev' is not installed")
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    ]
    finished = subprocess.run(
        [*command, "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_no_contract_ignores_an_import() -> None:
    assert [c["name"] for c in contracts() if "ignore_imports" in c] == []


@pytest.mark.parametrize(
    "container", ["tilewright", "tilewright.compiler", "tilewright.runtime"]
)
def test_every_layered_room_is_exhaustive(container: str) -> None:
    layered = [c for c in contracts() if container in c.get("containers", [])]
    assert [c["exhaustive"] for c in layered] == [True]


@pytest.mark.parametrize(
    "room",
    ["compiler/frontends", "compiler/backends", "compiler/printers", "runtime/drivers"],
    ids=lambda r: r.split("/")[1],
)
def test_siblings_that_never_meet_are_all_listed(room: str) -> None:
    package = "tilewright." + room.replace("/", ".")
    siblings = {
        f"{package}.{path.parent.name}"
        for path in (SOURCE / room).glob("*/__init__.py")
        if path.parent.name != "kit"  # what they share lies below them
    }
    listed = {m for c in contracts() if c["type"] == "independence" for m in c["modules"]}
    assert siblings, f"no package in {room}"
    if len(siblings) > 1:
        assert siblings <= listed


LLVM: Final = ("compiler/backends/cpu/", "compiler/printers/llvm_text/")


def test_llvm_is_named_by_its_back_end_and_its_printer_alone() -> None:
    named = re.compile(
        r"^\s*(?:from|import) .*\b(?:llvmlite|backends\.cpu|llvm_text)\b", re.MULTILINE
    )
    found = [
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
    ]
    assert found
    assert [path for path in found if not path.startswith(LLVM)] == []


def test_every_word_for_a_back_end_has_its_folder() -> None:
    folders = {path.parent.name for path in SOURCE.glob("compiler/backends/*/backend.py")}
    assert folders == BACKENDS.keys()
    for word in BACKENDS:
        assert find_backend(word).name == word
