"""IREE's own tools as judges of what this room writes; skipped where they are not installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tilewright.formats.vmfb import read_archive, write_archive
from tilewright.formats.vmfb.text import disassemble_module
from unit.formats.conftest import ARCHIVES
from unit.formats.vmfb.modules import add_module

Tool = Callable[..., str]


@pytest.mark.parametrize("driver", ["local-sync", "local-task"])
def test_iree_runs_a_module_with_our_kernel_bytecode_and_archive(
    iree_tool: Tool, tmp_path: Path, driver: str
) -> None:
    path = tmp_path / "own.vmfb"
    write_archive(add_module(), path)
    shown = iree_tool(
        "iree-run-module",
        *(f"--device={driver}", f"--module={path}", "--function=add"),
        *("--input=7xf32=1 2 3 4 5 6 7", "--input=7xf32=10"),
    )
    assert "7xf32=11 12 13 14 15 16 17" in shown


def test_iree_reads_from_our_archives_what_its_own_say(
    iree_tool: Tool, tmp_path: Path
) -> None:
    for path in sorted(ARCHIVES.glob("iree-3.13.0-*.vmfb")):
        ours = tmp_path / path.name
        write_archive(read_archive(path.read_bytes()), ours)
        dumps = [
            json.loads(iree_tool("iree-dump-module", "--output=flatbuffer-json", str(item)))
            for item in (path, ours)
        ]
        for dump in dumps:
            for segment in dump["rodata_segments"]:
                segment.pop("external_data_offset", None)
            for location in dump["debug_database"]["location_table"]:
                if location and location.get("metadata") == "":
                    del location["metadata"]
        assert dumps[0] == dumps[1]


def test_our_text_is_the_text_of_iree_but_for_names_and_quotes(
    iree_tool: Tool, tmp_path: Path
) -> None:
    path = tmp_path / "own.vmfb"
    write_archive(add_module(), path)
    theirs = iree_tool("iree-dump-module", "--output=disassembly", str(path))
    assert disassemble_module(read_archive(path.read_bytes())) == theirs
    for path in sorted(ARCHIVES.glob("iree-3.13.0-*.vmfb")):
        theirs = iree_tool(
            "iree-dump-module", "--output=disassembly", str(path)
        ).splitlines()
        ours = disassemble_module(read_archive(path.read_bytes())).splitlines()
        different = [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]
        internal = ("vm.fail", "@fn0(", "_mod:0(")  # quotes; names from debug data
        assert all(any(mark in line for mark in internal) for line, _ in different)
