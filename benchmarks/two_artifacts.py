"""Print how long two artifacts of one model take beside each other, and whether their results have the same bits.

What it is: the check of a change to a rule.  Compile a model before and after the change and give both files.  Both run in one
process and take turns, the first of a round changes; times are processor time, which other programs of the machine disturb
least, and the least of all rounds.
What it is not: a measure against other runtimes (``bench.py``), nor of calls that wait for other threads.
Who calls it: developers::

    tilewright compile model.onnx -o before.vmfb      # then change the rule
    tilewright compile model.onnx -o after.vmfb
    nice -n -10 python benchmarks/two_artifacts.py before.vmfb after.vmfb --rounds 25
"""

from __future__ import annotations

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import tilewright
from tilewright.api.model_inputs import random_inputs

_LEAST_ROUNDS: Final = 5
_ROUND_NS: Final = 2_000_000
Array = np.ndarray


def results_of(session: tilewright.Session, inputs: Mapping[str, Array]) -> list[Array]:
    """What one call gives, copied."""
    results = session(**inputs)
    listed = results if isinstance(results, tuple | list) else (results,)
    return [np.array(result) for result in listed]


def have_same_bits(left: list[Array], right: list[Array]) -> bool:
    """Whether all results are the same, NaN and signs of zeros, too."""
    pairs = zip(left, right, strict=True)
    return len(left) == len(right) and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in pairs
    )


def in_turns(
    calls: tuple[Callable[[], object], Callable[[], object]], rounds: int
) -> tuple[list[float], list[float]]:
    """Milliseconds of processor time of a call of each, by rounds."""
    begin = time.process_time_ns()
    calls[0]()
    count = max(1, _ROUND_NS // max(1, time.process_time_ns() - begin))
    times: tuple[list[float], list[float]] = ([], [])
    # Drawn between rounds, not by a thread beside them.
    bar = track(
        range(rounds), "rounds", console=Console(stderr=True),
        transient=True, auto_refresh=False,
    )  # fmt: skip
    for turn in bar:
        for side in (0, 1) if turn % 2 else (1, 0):
            start = time.process_time_ns()
            for _ in range(count):
                calls[side]()
            times[side].append((time.process_time_ns() - start) / count / 1e6)
    return times


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, help="an artifact (.vmfb)")
    parser.add_argument("after", type=Path, help="another of the same model")
    parser.add_argument(
        "--inputs", type=Path, help="an .npz archive with the inputs, by name"
    )
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="NAME=SIZE",
        help="of an open dimension (1)",
    )
    parser.add_argument(
        "--rounds", type=int, default=25, help=f"at least {_LEAST_ROUNDS} (25)"
    )
    parser.add_argument("--threads", type=int, default=1, help="of each (1)")
    return parser.parse_args(arguments)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run both in turns and print; 1 where their results differ."""
    options = parsed(arguments)
    sides = (options.before, options.after)
    sessions = [tilewright.load(str(path), threads=options.threads) for path in sides]
    sizes = {name: int(size) for name, _, size in (s.partition("=") for s in options.size)}
    if options.inputs is None:
        arrays = random_inputs(sessions[0].inputs, sizes)
        inputs = {spec.name: x for spec, x in zip(sessions[0].inputs, arrays, strict=True)}
    else:
        with np.load(options.inputs, allow_pickle=False) as archive:
            inputs = {name: archive[name] for name in archive.files}
    same = have_same_bits(*(results_of(session, inputs) for session in sessions))
    before, after = (functools.partial(session, **inputs) for session in sessions)
    times = in_turns((before, after), max(_LEAST_ROUNDS, options.rounds))
    table = Table("artifact", "least ms", "median ms", title="processor time of a call")
    for path, taken in zip(sides, times, strict=True):
        table.add_row(path.name, f"{min(taken):.3f}", f"{statistics.median(taken):.3f}")
    least = min(times[1]) / min(times[0])
    ratios = statistics.median(b / a for a, b in zip(*times, strict=True))
    console = Console(width=100)
    console.print(table)
    console.print(
        f"after / before: {least:.3f} (least), {ratios:.3f} (median of the rounds)"
    )
    console.print("same bits" if same else "[red]the results differ")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
