"""Random numbers of the tests of this folder: each test has its own, whichever ran before it."""

from __future__ import annotations

import zlib

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def _own_random_numbers(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put a generator that the test's name seeds in the place of its file's `RNG`, if there is one."""
    if hasattr(request.module, "RNG"):
        seed = zlib.crc32(request.node.name.encode())
        monkeypatch.setattr(request.module, "RNG", np.random.default_rng(seed))
