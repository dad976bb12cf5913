"""Whole models: IREE's modules run here, ours run under IREE's runtime (make models)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from conformance.interop.agreement import Verdict, compare
from conformance.interop.evidence import record
from conformance.interop.toolchain import (
    LLVM_CPU,
    compile_model,
    needs_iree,
    program,
    run_module,
)
from fakes import onnx_suite
from fakes.exported_models import NETWORKS
from figures.worker import read_inputs

LIGHT = {path.stem: path for path in onnx_suite.light_models()}
OPSET_FOR_LIGHT = 17  # the importer knows operators of old opsets in their new form only
pytestmark = [needs_iree, pytest.mark.nightly]


def model_path(request: pytest.FixtureRequest, name: str) -> Path:
    if name in LIGHT:
        return LIGHT[name]
    path = request.getfixturevalue("models_folder") / f"{name}.onnx"
    assert path.exists(), f"{name} is not exported: make models"
    return path


def inputs_of(path: Path) -> list[np.ndarray]:
    if path.stem in LIGHT:
        return [np.asarray(v) for v in onnx_suite.light_case(path).inputs.values()]
    fed = read_inputs(path)
    return [fed[value.name] for value in onnx.load(path).graph.input if value.name in fed]


@pytest.mark.parametrize("name", [*NETWORKS, *LIGHT])
def test_a_model_that_iree_compiled_gives_the_bits_that_iree_gives(
    request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    path = model_path(request, name)
    built = compile_model(path, LLVM_CPU, OPSET_FOR_LIGHT if name in LIGHT else 0)
    if built.error:
        record("models-of-iree", name, Verdict("refused", built.error))
        pytest.skip("IREE's importer or compiler refuses the model")
    verdict = compare(built.path, inputs_of(path), tmp_path)
    record("models-of-iree", name, verdict, built.path)
    assert verdict.outcome == "equal", verdict.detail


@pytest.mark.parametrize("name", [*NETWORKS, *LIGHT])
def test_a_model_that_we_compiled_gives_under_iree_what_it_gives_here(
    request: pytest.FixtureRequest, name: str, tmp_path: Path
) -> None:
    path = model_path(request, name)
    inputs = inputs_of(path)
    model = tw.compile(path)
    archive = tmp_path / "ours.vmfb"
    model.save(archive)
    ours = tw.load(archive, engine="vm")(*inputs)
    many = ours if isinstance(ours, tuple) else (ours,)
    theirs = run_module(archive, inputs, ["ref"] * len(many), tmp_path)
    outcome = "failed here" if theirs.error else "equal"
    for got, want in zip(theirs.results, many, strict=False):
        assert isinstance(got, np.ndarray)
        same = got.dtype == want.dtype and got.tobytes() == np.asarray(want).tobytes()
        outcome = outcome if same else "different"
    verdict = Verdict(outcome, theirs.error)
    record("our-models", name, verdict, archive)
    assert verdict.outcome == "equal", verdict.detail
    dumped = subprocess.run(
        [program("iree-dump-module"), "--output=flatbuffer-json", str(archive)],
        capture_output=True,
        check=True,
    )
    names = [
        function["local_name"]
        for function in json.loads(dumped.stdout)["exported_functions"]
    ]
    assert "main" in names
