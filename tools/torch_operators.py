"""Runs the samples of `torch.testing`'s operator database through the PyTorch front end.

    python tools/torch_operators.py [NAME ...] [--samples N] [--seconds S] [--page FILE]
    python tools/torch_operators.py --machine-code --samples 2 --dtypes float32 int64

A process of its own (`tools/torch_samples.py`) runs them; where it ends or a sample takes too long, that sample is
counted and another process goes on behind it.  What is known stands in a file, a line for each run of an operator and
element type: a run that was stopped, or whose time was up, goes on where it ended, and `--again` begins anew, `--stale`
those that other sources were tried with.
A NAME also means its variants, as `nn.functional.interpolate` does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, final

import torch_tallies
from torch_tallies import Tally

ROOT: Final = Path(__file__).resolve().parents[1]
STATE: Final = Path("build/torch_operators.jsonl")
MACHINE_CODE: Final = Path("build/torch_operators_compiled.jsonl")
WORKER: Final = (sys.executable, str(Path(__file__).with_name("torch_samples.py")))
START_SECONDS: Final = 300.0
"""Torch is imported in that time, and all samples of an operator are made."""


class Late(Exception):  # noqa: N818 - an outcome
    """The process gave no line in time."""


class Gone(Exception):  # noqa: N818 - an outcome
    """The process ended."""


class Worker:
    """A process that answers a request with lines of JSON and an empty one; started when it is asked.

    Threads: for one.
    """

    def __init__(self, command: Sequence[str] = WORKER) -> None:
        self.command = command
        self.process: subprocess.Popen[str] | None = None
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.reader: threading.Thread | None = None

    def ask(self, request: Mapping[str, Any], seconds: float) -> Iterator[dict[str, Any]]:
        """The lines of an answer, each of which may take so long; the first one, longer.  Raises: Late, Gone."""
        process = self.process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
        except OSError as error:
            self.end()
            raise Gone from error
        limit = START_SECONDS
        while line := self._line(limit):
            limit = seconds
            yield json.loads(line)

    def end(self, patience: float = 1.0) -> str:
        """End the process, by force if it takes so many seconds.  Returns: how it ended."""
        process, self.process = self.process, None
        if process is None:
            return ""
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it had ended
            process.stdin.close()
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self.reader is not None:
            self.reader.join()
        return f"exit code {process.returncode}"

    def _start(self) -> subprocess.Popen[str]:
        self.process = process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert process.stdout is not None
        self.lines = queue.SimpleQueue()
        arguments = (process.stdout, self.lines)
        self.reader = threading.Thread(target=_read, args=arguments, daemon=True)
        self.reader.start()
        return process

    def _line(self, seconds: float) -> str:
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty as error:
            self.end()
            raise Late from error
        if not line:
            raise Gone(self.end(30.0))
        return line.strip()


def _read(source: IO[str], lines: queue.SimpleQueue[str]) -> None:
    with source:
        for line in source:
            lines.put(line)
    lines.put("")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How many samples are tried of an operator and element type, and for how long."""

    samples: int = 0
    """0 means all."""
    seconds: float = 1e9
    patience: float = 60.0
    """Seconds that one sample may take."""
    machine_code: bool = False
    """Whether the graphs are compiled; else the oracles of their ops compute them."""

    def reached(self, tally: Tally) -> bool:
        """Whether as many were tried as were asked for."""
        wanted = min(self.samples or tally.total, tally.total)
        return tally.ran >= wanted > 0


def sweep(worker: Worker, tally: Tally, limits: Limits) -> None:
    """Try the samples behind those that are known, and count what became of them."""
    end = time.monotonic() + limits.seconds
    while (left := end - time.monotonic()) > 0 and not limits.reached(tally):
        request = {
            "operator": tally.operator, "dtype": tally.dtype, "first": tally.ran,
            "most": limits.samples, "seconds": left, "machine_code": limits.machine_code,
        }  # fmt: skip
        try:
            count(tally, worker.ask(request, limits.patience))
        except Late:
            tally.add("slow", f"sample {tally.ran} took more than {limits.patience:g} s")
        except Gone as error:
            tally.add("crashed", f"the process ended at sample {tally.ran}: {error}")
        else:
            return
        if not tally.total:
            return  # it does not get as far as to make samples


def count(tally: Tally, lines: Iterable[Mapping[str, Any]]) -> None:
    """Add what an answer says."""
    for line in lines:
        if "total" in line:
            tally.total = line["total"]
        else:
            tally.add(line["outcome"], line["text"])


def run(
    worker: Worker,
    state: Path,
    wanted: Mapping[str, Sequence[str]],
    limits: Limits,
    revision: str = "",
) -> None:
    """Run operators one after the other, write down and print what became of them."""
    known = torch_tallies.read_state(state)
    for operator, dtypes in wanted.items():
        tallies = [known.get((operator, d), Tally(operator, d)) for d in dtypes]
        start = time.perf_counter()
        for tally in tallies:
            if limits.reached(tally):
                continue
            tally.revision = revision if not tally.ran else tally.revision
            sweep(worker, tally, limits)
            torch_tallies.append_state(state, tally)
        seconds = time.perf_counter() - start
        if seconds > 0.1:
            report(operator, tallies, seconds)


def report(operator: str, tallies: Sequence[Tally], seconds: float) -> None:
    """Print a line about an operator, and what is to be looked at."""
    counts = torch_tallies.count_of(tallies)
    words = " ".join(f"{word} {n}" for word, n in counts.items() if n or word == "right")
    total = sum(tally.total for tally in tallies)
    print(f"{operator:<44} {words} of {total}  {seconds:.1f}s", flush=True)
    for tally in tallies:
        for text in tally.failures:
            print(f"    {tally.dtype} {text[:400]}", flush=True)
        for text, n in list(tally.reasons.items())[:3]:
            print(f"    {tally.dtype} refused x{n}: {text[:200]}", flush=True)


def chosen(
    operators: Mapping[str, list[str]], names: Sequence[str]
) -> dict[str, list[str]]:
    """The operators with these names, and their variants; all where none is given."""
    return {
        operator: dtypes
        for operator, dtypes in operators.items()
        if not names or any(operator == n or operator.startswith(f"{n}.") for n in names)
    }


def _in_order(
    known: Mapping[tuple[str, str], Tally], operators: Mapping[str, Sequence[str]]
) -> list[Tally]:
    """What is known, in the order of the operators and their element types."""
    runs = ((name, dtype) for name, dtypes in operators.items() for dtype in dtypes)
    return [known[run] for run in runs if run in known]


def main() -> int:
    """Read the command line.  Returns: how many samples are wrong or crash."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--samples", type=int, default=0, help="per operator and element type; 0: all"
    )
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="per operator and element type"
    )
    parser.add_argument("--patience", type=float, default=60.0, help="seconds of a sample")
    parser.add_argument("--dtypes", nargs="*", help="only these, as float32")
    parser.add_argument(
        "--machine-code", action="store_true", help="compile; takes ten times as long"
    )
    parser.add_argument("--again", action="store_true", help="forget what is known of them")
    parser.add_argument(
        "--stale", action="store_true", help="forget what other sources were tried with"
    )
    parser.add_argument(
        "--state", type=Path, help="what is known, instead of a file in build"
    )
    parser.add_argument("--page", type=Path, help="write the page of all that is known")
    options = parser.parse_args()
    worker = Worker()
    about = next(iter(worker.ask({}, START_SECONDS)))
    worker.end()
    wanted = chosen(about["operators"], options.names)
    if options.dtypes:
        wanted = {n: [d for d in ds if d in options.dtypes] for n, ds in wanted.items()}
    state: Path = options.state or (MACHINE_CODE if options.machine_code else STATE)
    runs = {(name, dtype) for name, dtypes in wanted.items() for dtype in dtypes}
    if options.again:
        torch_tallies.forget(state, runs)
    revision = torch_tallies.revision_of(ROOT, about["version"])
    if options.stale:
        torch_tallies.forget(state, torch_tallies.stale(state, revision) & runs)
    limits = Limits(
        samples=options.samples,
        seconds=options.seconds,
        patience=options.patience,
        machine_code=options.machine_code,
    )
    try:
        run(worker, state, wanted, limits, revision)
    except KeyboardInterrupt:
        print("stopped; what is known is kept")
    finally:
        worker.end()
    tallies = _in_order(torch_tallies.read_state(state), about["operators"])
    if options.page is not None:
        text = torch_tallies.page(tallies, about["version"])
        options.page.write_text(text, encoding="utf-8")
    counts = torch_tallies.count_of(t for t in tallies if t.operator in wanted)
    print(dict(counts))
    return counts["wrong"] + counts["crashed"]


if __name__ == "__main__":
    sys.exit(min(main(), 100))
