"""`tilewright cache`: where, how much, and gone."""

from __future__ import annotations

import json
from pathlib import Path

from fakes.command_line import tilewright
from tilewright.base import knobs


def test_the_cache_says_what_it_holds_and_is_cleared(
    mlp_onnx: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "cache"
    with knobs.override(cache_dir=folder, cache="1"):
        assert tilewright("cache").row("holds") == "0 B in 0 entries"
        tilewright("compile", mlp_onnx, "-q", "-o", tmp_path / "m.vmfb")
        known = json.loads(tilewright("cache", "--json").out)
        assert known["folder"].startswith(str(folder))
        assert known["entries"] > 0
        assert known["bytes"] > 0
        done = tilewright("cache", "--clear")
        assert done.row("deleted").endswith(f"in {known['entries']} entries")
        assert json.loads(tilewright("cache", "--json").out)["entries"] == 0
