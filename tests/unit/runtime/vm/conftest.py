"""Every test of the VM runs on both engines."""

from __future__ import annotations

import pytest

from tilewright.runtime.vm import bytecode_module


@pytest.fixture(autouse=True, params=["translate", "interpret"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine of modules that do not choose one."""
    monkeypatch.setattr(bytecode_module, "DEFAULT_MODE", request.param)
    return request.param
