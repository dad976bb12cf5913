"""A language model against llama.cpp: the same text, and tokens per second.

`text` compares greedy texts of many prompts; where they part it says how far apart the two best tokens are, here,
there, and in numbers that both approximate (transformers on dequantised weights, in f32).  llama.cpp rounds activations to 8
bits, so its scores differ from exact ones in the second digit; ours differ in the fifth.  `speed` times prompts and tokens, in
turn with the peer in one run, and prints ratios of medians, or of the least times.

    python benchmarks/language_model.py speed one.gguf two.gguf --peer /path/to/python-with-llama-cpp --threads 1 2
    python benchmarks/language_model.py text model.gguf --peer /path/to/python-with-llama-cpp
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from tilewright.api.language.language_model import LanguageModel

PROMPTS: Final = (
    "Once upon a time", "The capital of France is", "In 1969, the first human", "def fibonacci(n):",
    "Water boils at", "The three primary colours are", "My favourite book is", "Dear Sir or Madam,",
    "A recipe for pancakes:\n", "The history of the Roman Empire", "Why is the sky blue?", "Two plus two is",
    "The meaning of life is", "SELECT name FROM", "It was a dark and stormy night;", "Photosynthesis is",
    "To be, or not to be,", "The best way to learn a language", "Machine learning is", "Ein Haus in den Bergen",
)  # fmt: skip
PROMPT_TOKENS: Final = (32, 256)
ROUNDS: Final = 7
DECODED: Final = 48


class Peer:
    """llama.cpp in a process of its own."""

    def __init__(self, python: str, model: Path, threads: int, context: int) -> None:
        script = Path(__file__).with_name("language_model_peer.py")
        self._process: subprocess.Popen[str] = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.ask("open", path=str(model), threads=threads, context=context)

    def ask(self, do: str, **given: Any) -> Any:
        """The answer to a request."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": do, **given}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


class Exact:
    """The same weights as f32 in transformers."""

    def __init__(self, model: Path) -> None:
        self._torch: Any = importlib.import_module("torch")
        transformers: Any = importlib.import_module("transformers")
        loader = transformers.AutoModelForCausalLM
        self._model: Any = loader.from_pretrained(
            str(model.parent), gguf_file=model.name, dtype=self._torch.float32
        ).eval()

    def scores(self, tokens: Sequence[int]) -> np.ndarray:
        """Scores behind tokens."""
        with self._torch.no_grad():
            return self._model(self._torch.tensor([list(tokens)])).logits[0, -1].numpy()


def greedy(model: LanguageModel, tokens: Sequence[int], count: int) -> list[int]:
    """The most likely tokens behind a prompt, whatever they are."""
    made: list[int] = []
    for _ in range(count):
        made.append(int(model.scores([*tokens, *made]).argmax()))
    return made


def compare_texts(options: argparse.Namespace) -> None:
    """Greedy texts of all prompts; where two part, by how much."""
    path = options.models[0]
    model = LanguageModel(path, context=options.context, precision=options.precision)
    exact = Exact(path)
    peer = Peer(options.peer, path, 1, options.context)
    equal = explained = 0
    for prompt in PROMPTS[: options.prompts]:
        tokens = model.tokenizer.encode(prompt, bos=False)
        assert tokens == peer.ask("encode", text=prompt), prompt
        ours = greedy(model, tokens, options.tokens)
        theirs = peer.ask("greedy", tokens=tokens, count=options.tokens)
        at = next((i for i in range(len(ours)) if ours[i] != theirs[i]), None)
        if at is None:
            equal += 1
            print(f"{prompt!r}: {options.tokens} tokens equal", flush=True)
            continue
        before = [*tokens, *ours[:at]]
        pair = [ours[at], theirs[at]]
        truth = exact.scores(before)
        mine, other = model.scores(before), np.array(peer.ask("scores", tokens=before))
        gap, error = (
            abs(float(truth[pair[0]] - truth[pair[1]])),
            np.abs(other - truth).max(),
        )
        explained += gap <= 2 * error and truth.argmax() == pair[0]
        print(
            f"{prompt!r}: {at} tokens equal; then the two best are {gap:.4f} apart; largest error of a score: "
            f"ours {np.abs(mine - truth).max():.5f}, llama.cpp {error:.4f}; exact scores choose "
            f"{'ours' if truth.argmax() == pair[0] else 'theirs'}",
            flush=True,
        )
    peer.close()
    print(
        f"{equal} of {options.prompts} equal, {explained} part within llama.cpp's error where exact scores choose ours"
    )


def timed(
    model: LanguageModel, tokens: Sequence[int], count: int, clock: str
) -> tuple[float, float]:
    """Seconds for a prompt, and for so many tokens behind it, by a clock of `time`."""
    now: Callable[[], float] = getattr(time, clock)
    model.cache.keep([-1, -1])
    begin = now()
    held = list(tokens)
    held.append(int(model.scores(held).argmax()))
    middle = now()
    for _ in range(count):
        held.append(int(model.scores(held).argmax()))
    return middle - begin, now() - middle


def compare_speed(options: argparse.Namespace) -> None:
    """Prompts and tokens behind them, in turn."""
    for path in options.models:
        for threads in options.threads:
            model = LanguageModel(
                path, context=options.context, threads=threads, precision=options.precision
            )
            peer = Peer(options.peer, path, threads, options.context)
            for length in options.lengths:
                found = _rates(model, peer, length, options)
                read, read_peer, made, made_peer = found
                print(
                    f"{path.name}, threads {threads}, prompt of {length}: prefill {read:.1f} tokens/s, "
                    f"llama.cpp {read_peer:.1f} ({read / read_peer:.2f} x); decode {made:.1f} tokens/s, "
                    f"llama.cpp {made_peer:.1f} ({made / made_peer:.2f} x)",
                    flush=True,
                )
            peer.close()


def _rates(
    model: LanguageModel, peer: Peer, length: int, options: argparse.Namespace
) -> tuple[float, ...]:
    """Tokens per second of a prompt and behind it, ours and the peer's each."""
    tokens = [int(t) for t in np.random.default_rng(length).integers(300, 9000, length)]
    count, clock = options.decoded, options.clock
    rows: list[tuple[float, ...]] = []
    timed(model, tokens, count, clock)
    for _ in range(options.rounds):
        ours = timed(model, tokens, count, clock)
        theirs = peer.ask("timed", tokens=tokens, count=count, clock=clock)
        rows.append(
            (length / ours[0], length / theirs[0], count / ours[1], count / theirs[1])
        )
    middle = max if options.least else statistics.median
    return tuple(middle(column) for column in zip(*rows, strict=True))


def main(arguments: Sequence[str]) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("text", "speed"))
    parser.add_argument("models", type=Path, nargs="+", help="of `text` the first")
    parser.add_argument(
        "--peer", default=sys.executable, help="a Python that has llama-cpp-python"
    )
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=PROMPT_TOKENS, help="of prompts"
    )
    parser.add_argument(
        "--clock", choices=("perf_counter", "process_time"), default="perf_counter",
        help="process_time: of the processor, for one thread on a machine that others use",
    )  # fmt: skip
    parser.add_argument(
        "--decoded", type=int, default=DECODED, help="tokens behind a prompt"
    )
    parser.add_argument(
        "--least", action="store_true", help="the least time of all rounds, not the median"
    )
    parser.add_argument("--precision", choices=("f32", "i8"), default="f32", help="ours")
    parser.add_argument(
        "--context", type=int, default=1024, help="room for tokens, of both"
    )
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    parser.add_argument("--tokens", type=int, default=200)
    options = parser.parse_args(arguments)
    (compare_texts if options.what == "text" else compare_speed)(options)


if __name__ == "__main__":
    main(sys.argv[1:])
