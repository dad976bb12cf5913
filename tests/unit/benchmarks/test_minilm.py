"""The safetensors reader, and the written MiniLM graph against torch's export of the same weights."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import minilm


def test_tensors_are_read_as_they_lie_in_the_file(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype="<f4").reshape(2, 3)
    places = np.array([7, 8], "<i8")
    header = {
        "__metadata__": {"format": "pt"},
        "matrix": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
        "places": {"dtype": "I64", "shape": [2], "data_offsets": [24, 40]},
    }
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(
        len(text).to_bytes(8, "little") + text + matrix.tobytes() + places.tobytes()
    )
    tensors = minilm.read_safetensors(path)
    assert set(tensors) == {"matrix", "places"}
    np.testing.assert_array_equal(tensors["matrix"], matrix)
    np.testing.assert_array_equal(tensors["places"], places)


@pytest.mark.slow
def test_the_written_graph_computes_what_torch_computes(models_folder: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    exported = models_folder / "minilm_l6.onnx"
    if importlib.util.find_spec(minilm.PACKAGE) is None or not exported.exists():
        pytest.skip("needs the demo package and the exported model")
    with np.load(exported.with_suffix(".inputs.npz")) as archive:
        inputs = dict(archive)
    with np.load(exported.with_suffix(".ref.npz")) as archive:
        states = archive["o0"]
    written = minilm.build_model(minilm.model_folder()).SerializeToString()
    session = onnxruntime.InferenceSession(written, providers=["CPUExecutionProvider"])
    embedding, got = session.run(["sentence_embedding", "last_hidden_state"], inputs)
    visible = inputs["attention_mask"].astype(bool)
    assert np.linalg.norm((got - states)[visible]) <= 1e-5 * np.linalg.norm(states[visible])
    weights = inputs["attention_mask"][..., None].astype(np.float64)
    mean = (states * weights).sum(1) / weights.sum(1)
    expected = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    np.testing.assert_allclose(embedding, expected, atol=1e-6)
