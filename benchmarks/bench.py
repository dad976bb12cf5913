"""Print every figure of the project as a ratio with its bar, onnxruntime and OpenVINO beside, in one run.

What it is: the command behind ``make bench``.
What it is not: a profiler; for one model's kernels use ``tilewright bench``.
Who calls it: developers::

    python benchmarks/bench.py --models build/models              # everything, about 25 minutes
    python benchmarks/bench.py --only ops resnet50 --threads 2    # subsets and models by name
    python benchmarks/bench.py --contenders onnxruntime           # a peer alone
    python benchmarks/bench.py --threads 1 2 --page docs/figures  # and a dated page with plots
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from figures.bars import CONTENDERS, MODEL_ROWS
from figures.machine import describe_machine
from figures.measure import ATTEMPTS
from figures.page import write_page
from figures.rows import Figures, Outcome

SUBSETS: Final = (
    "ops", "models", "int8", "bf16", "decode", "levels", "threads", "processes",
)  # fmt: skip
COLOURS: Final = {"PASS": "green", "MISS": "red", "WRONG": "bold red", "-": "dim"}


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    models = [row.model for row in MODEL_ROWS]
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        epilog=f"subsets: {', '.join(SUBSETS)}; import, compile, memory; models: {', '.join(models)}",
    )
    parser.add_argument("--models", type=Path, default=Path("build/models"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], choices=(1, 2))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=0.6, help="per contender and round"
    )
    parser.add_argument(
        "--attempts",
        type=int,
        default=ATTEMPTS,
        help="per measurement, with waiting for a quiet machine; 1 where it never is",
    )
    parser.add_argument(
        "--contenders", nargs="+", default=list(CONTENDERS), choices=CONTENDERS
    )
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"))
    parser.add_argument(
        "--page", type=Path, metavar="FOLDER", help="write a dated page with plots there"
    )
    parser.add_argument("--strict", action="store_true", help="fail if a bar is missed")
    options = parser.parse_args(arguments)
    known = {*SUBSETS, "import", "compile", "memory", *models}
    unknown = [name for name in options.only if name not in known]
    if unknown:
        parser.error(f"unknown name {unknown[0]!r}; {parser.epilog}")
    return options


def format_row(outcome: Outcome) -> tuple[str, ...]:
    """Return the cells of one line."""
    sign = "≥" if outcome.at_least else "≤"
    verdict = outcome.verdict
    return (
        outcome.name,
        "-" if outcome.ratio is None else f"{outcome.ratio:.3f}",
        "" if outcome.bar is None else f"{sign} {outcome.bar:g}",
        outcome.unit,
        f"[{COLOURS[verdict]}]{verdict}[/]",
        "" if outcome.error is None else f"{outcome.error:.0e}",
        outcome.detail,
    )


def print_table(outcomes: list[Outcome], threads: int, console: Console) -> None:
    """Print the figures as one table."""
    table = Table(title=f"figures, {threads} thread(s), one run", title_justify="left")
    table.add_column("what")
    table.add_column("ratio", justify="right")
    table.add_column("bar", justify="right")
    for heading in ("of", "", "error", "measured"):
        table.add_column(heading)
    for outcome in outcomes:
        table.add_row(*format_row(outcome))
    console.print(table)


def write_json(runs: dict[int, list[Outcome]], path: Path) -> None:
    """Write the figures for other programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [
        dataclasses.asdict(o) | {"verdict": o.verdict, "threads": threads}
        for threads, outcomes in runs.items()
        for o in outcomes
    ]
    document = {"machine": describe_machine(), "rows": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")


def run(options: argparse.Namespace, threads: int, console: Console) -> list[Outcome]:
    """Measure everything asked for with so many threads, telling each outcome as it comes."""
    figures = Figures(
        models=options.models,
        threads=threads,
        rounds=options.rounds,
        seconds=options.seconds,
        contenders=tuple(options.contenders),
        attempts=options.attempts,
    )
    is_first = threads == options.threads[0]

    def wanted(subset: str, name: str) -> bool:
        # What a process takes, and two threads in the time of one, does not depend on the threads told.
        if subset in ("threads", "processes") and not is_first:
            return False
        return not options.only or subset in options.only or name in options.only

    outcomes: list[Outcome] = []
    for outcome in figures.run(wanted):
        outcomes.append(outcome)
        console.print("  ".join(format_row(outcome)))
    console.print()
    print_table(outcomes, threads, console)
    return outcomes


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    console = Console(width=None if sys.stdout.isatty() else 190, highlight=False)
    machine = describe_machine()
    console.print(f"{machine['processor']}, {machine['cores']} cores allowed")
    runs = {n: run(options, n, console) for n in dict.fromkeys(options.threads)}
    write_json(runs, options.json)
    outcomes = [outcome for found in runs.values() for outcome in found]
    missed = [outcome for outcome in outcomes if outcome.verdict in ("MISS", "WRONG")]
    barred = [outcome for outcome in outcomes if outcome.bar is not None]
    console.print(
        f"{len(barred) - len(missed)} of {len(barred)} bars passed; {options.json}"
    )
    if options.page is not None:
        words = shlex.join(sys.argv[1:] if arguments is None else arguments)
        command = f"python benchmarks/bench.py {words}".rstrip()
        page = write_page(options.page, time.strftime("%Y-%m-%d"), command, runs)
        console.print(f"wrote {page}")
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
