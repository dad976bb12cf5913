"""What the interop tests saw, in files: the source of docs/runtime/compatibility.md.

What it is: `record`, which the tests call with every verdict, and `recorded`, what is checked in.
`tools/compatibility.py` turns the one into the other and into the page.
What it is not: a place that judges.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

from conformance.interop.agreement import Verdict
from conformance.interop.refusals import classify
from conformance.interop.toolchain import ROOT, write
from tilewright.formats.byte_view import view_bytes
from tilewright.formats.vmfb import decode_module, read_archive
from tilewright.runtime import native

FOLDER = ROOT / "build" / "interop-results"
CHECKED_IN = Path(__file__).with_name("results.json")
_FORMAT = re.compile(rb"^(embedded-elf-|system-elf-|vmvx-)[\w-]+\x00?$")
_LONGEST_FORMAT = 64


def record(suite: str, name: str, verdict: Verdict, archive: Path | None = None) -> None:
    """Keep a verdict.

    Args:
        suite: which of the page's tables it belongs to.
        name: of the case in it.
        verdict: what came out.
        archive: the module, for what it holds; None where there is none.
    """
    row: dict[str, object] = {"outcome": verdict.outcome, "detail": verdict.detail[:300]}
    if verdict.outcome == "refused":
        refusal = classify(verdict.detail)
        row |= {"reason": refusal.kind, "subject": refusal.subject}
    row |= contents(archive) if archive is not None else {}
    (FOLDER / suite).mkdir(parents=True, exist_ok=True)
    write(FOLDER / suite / f"{name}.json", json.dumps(row))


def seen(suite: str, name: str) -> bool:
    """Whether there is a verdict of the case."""
    return (FOLDER / suite / f"{name}.json").exists()


def contents(archive: Path) -> dict[str, object]:
    """What an archive needs of a runtime: versions, formats, opcodes, functions."""
    module = read_archive(memoryview(native.map_file(str(archive))))
    code = decode_module(module)
    formats = set[str]()
    for segment in module.rodata:
        data = view_bytes(segment.data)
        if data.nbytes <= _LONGEST_FORMAT and _FORMAT.match(bytes(data)):
            formats.add(bytes(data).rstrip(b"\0").decode())
    version = module.bytecode_version
    return {
        "bytecode": f"{version >> 16}.{version & 0xFFFF}",
        "modules": {d.name: d.minimum_version for d in module.dependencies},
        "formats": sorted(formats),
        "opcodes": sorted({i.opcode.name for function in code for i in function}),
        "imports": sorted({i.name for i in module.imports}),
    }


@functools.cache
def recorded() -> dict[str, dict[str, Any]]:
    """Cases of each suite as they were when the page was written; nothing before the first time."""
    if not CHECKED_IN.exists():
        return {}
    suites = json.loads(CHECKED_IN.read_text(encoding="utf-8"))
    return {name: suite["cases"] for name, suite in suites.items()}
