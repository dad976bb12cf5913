"""Artifacts are known by their suffix in letters of any case, by everything that opens them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tilewright as tw
from fakes import onnx_models
from tilewright.api.compare.compare import _open
from tilewright.api.compare.sides import ArtifactSide
from tilewright.api.explorer.explorer import Explorer


def test_every_way_to_open_an_artifact_takes_one_in_capitals(tmp_path: Path) -> None:
    """They read it as a model of ONNX."""
    model = onnx_models.parse("graph (float[2] x) => (float[2] y) { y = Neg(x) }")
    path = str(tmp_path / "NET.VMFB")
    tw.compile(model, threads=1, jobs=1).save(path)
    x = np.ones(2, np.float32)
    session = tw.InferenceSession(path)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -x)
    assert isinstance(_open(path, {}), ArtifactSide)
    assert Explorer(path)._is_artifact
