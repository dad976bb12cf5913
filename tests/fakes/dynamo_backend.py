"""The function that torch finds under the name `tilewright`.

What it is: what the package's entry point names, read from the project's own file, so that the tests hold for an
installation without an entry point, too.
What it is not: torch, which a test asks for first.
"""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def entry() -> Any:
    """What the entry point names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, name = project["entry-points"]["torch_dynamo_backends"][
        "tilewright"
    ].partition(":")
    return getattr(importlib.import_module(module), name)
