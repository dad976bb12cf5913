"""What the fuzz harnesses share: findings, ranges of inputs, counting, limits on time and memory.

What it is: the part around a function that says what became of input `number`.
What it is not: mutations (`bytecode_mutations.py`, `format_mutations.py`).
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

HANG_S = 60
MEMORY_BYTES = 6 << 30
REPORT_EVERY = 10_000


@dataclass(frozen=True)
class FindingError(Exception):
    """Something that must not happen."""

    number: int
    what: str


Outcome = tuple[str, FindingError | None]


def run_range(run_one: Callable[[int], str], first: int, count: int) -> Iterator[Outcome]:
    """What became of a range of inputs, one after the other."""
    for number in range(first, first + count):
        try:
            yield run_one(number), None
        except FindingError as finding:
            yield "FOUND", finding


def add_options(parser: argparse.ArgumentParser, seed: str) -> None:
    """--seed, --first, --count."""
    parser.add_argument("--seed", default=seed)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=10_000)


def report(outcomes: Iterator[Outcome]) -> int:
    """Print findings and counts; the exit code.  A hang ends the process with a traceback."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    faulthandler.enable()
    counts: Counter[str] = Counter()
    for done, (what, finding) in enumerate(outcomes, 1):
        counts[what] += 1
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        if finding is not None:
            print(f"input {finding.number}: {finding.what}", flush=True)  # noqa: T201
            traceback.print_exception(finding.__cause__)
        if done % REPORT_EVERY == 0:
            print(f"{done} inputs: {dict(counts)}", flush=True)  # noqa: T201
    print(f"{counts.total()} inputs in all: {dict(counts)}", flush=True)  # noqa: T201
    return 1 if counts["FOUND"] else 0
