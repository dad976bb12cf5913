"""The demo's model gives the similarities that torch gives, and the example runs."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import minilm
import tilewright as tw
from tilewright.base import symbolic
from wordpiece import WordPiece

ROOT = Path(__file__).resolve().parents[2]
SENTENCES = [
    "The cat sits outside",
    "A man is playing guitar",
    "The new movie is awesome",
    "A woman watches TV, and the cat plays in the garden behind the old house!",
    "Hi",
]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec(minilm.PACKAGE) is None,
        reason="extra 'demo' is not installed",
    ),
]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("minilm") / "all-MiniLM-L6-v2.onnx"
    onnx.save(minilm.build_model(minilm.model_folder()), path)
    return path


def torch_embeddings(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
    import torch
    import transformers

    network = transformers.BertModel.from_pretrained(minilm.model_folder()).eval()
    with torch.no_grad():
        states = network(torch.from_numpy(ids), torch.from_numpy(mask)).last_hidden_state
    weights = torch.from_numpy(mask)[..., None]
    mean = (states * weights).sum(1) / weights.sum(1)
    return torch.nn.functional.normalize(mean, dim=1).numpy()


@pytest.mark.needs_torch
@pytest.mark.filterwarnings("ignore")
def test_similarities_equal_those_of_torch(model_path: Path) -> None:
    """One compilation, batches of several sizes and lengths, padded and not."""
    tokenizer = WordPiece(minilm.model_folder() / "vocab.txt")
    model = tw.compile(model_path)
    assert all(symbolic.symbols(d) for d in model.inputs[0][2])
    batches = (
        SENTENCES,
        SENTENCES[:2],
        SENTENCES[3:],
        [" ".join(SENTENCES * 4), "Hi", "Ho"],
    )
    sizes = set()
    for sentences in batches:
        ids, mask = tokenizer.encode_batch(sentences)
        sizes.add(ids.shape)
        got = np.asarray(model(ids, mask)[0])
        want = torch_embeddings(ids, mask)
        assert got.shape == want.shape
        np.testing.assert_allclose(got @ got.T, want @ want.T, rtol=0, atol=1e-4)
        np.testing.assert_allclose(np.diagonal(got @ got.T), 1, rtol=0, atol=1e-5)
    assert len({n for n, _ in sizes}) > 2
    assert len({length for _, length in sizes}) > 2


def test_a_sentence_alone_has_the_embedding_it_has_in_a_batch(model_path: Path) -> None:
    tokenizer = WordPiece(minilm.model_folder() / "vocab.txt")
    model = tw.compile(model_path)
    together = np.asarray(model(*tokenizer.encode_batch(SENTENCES))[0])
    for row, sentence in enumerate(SENTENCES):
        alone = np.asarray(model(*tokenizer.encode_batch([sentence]))[0])
        np.testing.assert_allclose(alone[0], together[row], atol=1e-5)


def test_the_example_prints_its_tables(model_path: Path) -> None:
    script = ROOT / "examples" / "01_sentence_similarity.py"
    finished = subprocess.run(
        [sys.executable, str(script), str(model_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert "cosine similarity" in finished.stdout
    assert "sentences/s" in finished.stdout
    assert f"\n  tilewright report {model_path} -o report.html " in finished.stdout


def test_the_example_says_what_is_missing(tmp_path: Path) -> None:
    script = ROOT / "examples" / "01_sentence_similarity.py"
    command = [sys.executable, str(script), str(tmp_path / "no.onnx")]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert finished.returncode == 2
    assert "no.onnx; 'make demo' makes it" in finished.stderr
