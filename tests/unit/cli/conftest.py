"""Models and artifacts for the verbs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fakes.command_line import tilewright
from fakes.small_models import mlp, save, scale_and_shift, with_host_op


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="session")
def mlp_onnx(folder: Path) -> Path:
    return save(mlp(), folder / "mlp.onnx")


@pytest.fixture(scope="session")
def dynamic_onnx(folder: Path) -> Path:
    """The same for any batch, so that its activations depend on the call."""
    return save(mlp("batch"), folder / "dynamic.onnx")


@pytest.fixture(scope="session")
def scale_onnx(folder: Path) -> Path:
    """Inputs x: f32[batch, 3] and scale: f32[3], outputs y and z."""
    return save(scale_and_shift(), folder / "scale.onnx")


@pytest.fixture(scope="session")
def host_onnx(folder: Path) -> Path:
    return save(with_host_op(), folder / "host.onnx")


def compiled(model: Path) -> Path:
    path = model.with_suffix(".vmfb")
    assert tilewright("compile", model, "-o", path, "--quiet").code == 0
    return path


@pytest.fixture(scope="session")
def mlp_vmfb(mlp_onnx: Path) -> Path:
    return compiled(mlp_onnx)


@pytest.fixture(scope="session")
def scale_vmfb(scale_onnx: Path) -> Path:
    return compiled(scale_onnx)
