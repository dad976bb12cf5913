"""Relax executables that TVM wrote, with its own texts about them: no machine code, some kilobytes.

`tests/golden/relax/tvm-<release>.json.xz` is made by `tvm_libraries.py` of this folder.
"""

from __future__ import annotations

import functools
import json
import lzma
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "relax"
RELEASES = ("0.25", "0.27")


@dataclass(frozen=True)
class StoredExecutable:
    """An executable, and what TVM's `as_text` and `stats` say about it."""

    data: bytes
    text: str
    statistics: str


@functools.cache
def stored_executables(release: str) -> dict[str, StoredExecutable]:
    """By model and mode: `loop.bytecode`, `loop.compiled`, ..."""
    document = json.loads(lzma.decompress((FOLDER / f"tvm-{release}.json.xz").read_bytes()))
    return {
        name: StoredExecutable(bytes.fromhex(row["bytes"]), row["text"], row["stats"])
        for name, row in document.items()
    }
