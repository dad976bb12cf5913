"""What tests of sessions share."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.sessions import save_model


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dynamic model of which one op has no kernel, as an artifact."""
    return save_model(tmp_path_factory.mktemp("session") / "model.vmfb")
