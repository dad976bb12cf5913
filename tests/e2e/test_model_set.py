"""The exported models compute what torch computes (make models; make test-all)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from fakes.exported_models import NETWORKS
from figures.worker import read_inputs, relative_error

OPERATORS = (
    "matmul_1024",
    "matmul_128x768x3072",
    "matmul_128x768x768",
    "gemv_4096",
    "conv3x3_64_56",
    "depthwise3x3_144_56",
    "softmax_12x128x128",
    "layernorm_128x768",
)
LARGEST_ERROR = 1e-5
pytestmark = pytest.mark.slow


def outputs_of(result: object) -> list[np.ndarray]:
    return [
        np.asarray(value) for value in (result if isinstance(result, tuple) else (result,))
    ]


def model_path(folder: Path, name: str) -> Path:
    path = folder / f"{name}.onnx"
    assert path.exists(), f"{name} is not exported: make models"
    return path


@pytest.mark.needs_torch
def test_the_list_here_is_the_zoo() -> None:
    import zoo

    assert set(NETWORKS + OPERATORS) == set(zoo.ZOO)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NETWORKS + OPERATORS)
def test_a_compiled_model_agrees_with_torch(models_folder: Path, name: str) -> None:
    path = model_path(models_folder, name)
    model = tw.compile(path)
    outputs = outputs_of(model(*read_inputs(path).values()))
    assert relative_error(outputs, path) <= LARGEST_ERROR


@pytest.mark.parametrize("name", ["bert_base_dynamic", "minilm_l6"])
def test_one_compilation_runs_every_batch_and_length(
    models_folder: Path, name: str
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = model_path(models_folder, name)
    model = tw.compile(path)
    oracle = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(5)
    for batch, tokens in ((1, 1), (1, 128), (2, 17), (5, 33), (3, 64)):
        ids = generator.integers(0, 30000, (batch, tokens))
        mask = np.ones_like(ids)
        mask[0, 1 + tokens // 2 :] = 0
        [got] = outputs_of(model(ids, mask))
        [want] = oracle.run(None, {"input_ids": ids, "attention_mask": mask})
        assert got.shape == want.shape
        assert np.linalg.norm(got - want) <= LARGEST_ERROR * np.linalg.norm(want)


@pytest.mark.parametrize("name", ["mlp_b1", "mobilenetv2", "minilm_l6"])
def test_a_saved_artifact_gives_the_same_bits(
    models_folder: Path, tmp_path: Path, name: str
) -> None:
    path = model_path(models_folder, name)
    inputs = tuple(read_inputs(path).values())
    model = tw.compile(path)
    model.save(tmp_path / "model.vmfb")
    session = tw.load(tmp_path / "model.vmfb")
    for got, want in zip(
        outputs_of(session(*inputs)), outputs_of(model(*inputs)), strict=True
    ):
        np.testing.assert_array_equal(got, want)


def test_the_number_of_threads_does_not_change_a_bit(models_folder: Path) -> None:
    path = model_path(models_folder, "mobilenetv2")
    inputs = tuple(read_inputs(path).values())
    one, two = (outputs_of(tw.compile(path, threads=n)(*inputs)) for n in (1, 2))
    np.testing.assert_array_equal(one[0], two[0])
