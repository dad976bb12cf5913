"""Print every figure of the project as a ratio with its bar, onnxruntime beside, in one run.

What it is: the command behind ``make bench``.
What it is not: a profiler; for one model's kernels use ``tilewright bench``.
Who calls it: developers::

    python benchmarks/bench.py --models build/models              # everything, about 12 minutes
    python benchmarks/bench.py --only ops resnet50 --threads 2    # subsets and models by name
    python benchmarks/bench.py --contenders onnxruntime           # the peer alone
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from figures.machine import describe_machine
from figures.measure import ATTEMPTS
from figures.rows import MODEL_ROWS, OURS, PEER, Figures, Outcome

SUBSETS: Final = ("ops", "models", "decode", "threads", "processes")
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
    parser.add_argument("--threads", type=int, default=1, choices=(1, 2))
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
        "--contenders", nargs="+", default=[OURS, PEER], choices=(OURS, PEER)
    )
    parser.add_argument("--json", type=Path, default=Path("build/bench.json"))
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


def write_json(outcomes: list[Outcome], path: Path, threads: int) -> None:
    """Write the figures for other programs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [dataclasses.asdict(o) | {"verdict": o.verdict} for o in outcomes]
    document = {"machine": describe_machine(), "threads": threads, "rows": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write."""
    options = parse_arguments(arguments)
    console = Console(width=None if sys.stdout.isatty() else 190, highlight=False)
    machine = describe_machine()
    console.print(f"{machine['processor']}, {machine['cores']} cores allowed")
    figures = Figures(
        models=options.models,
        threads=options.threads,
        rounds=options.rounds,
        seconds=options.seconds,
        contenders=tuple(options.contenders),
        attempts=options.attempts,
    )

    def wanted(subset: str, name: str) -> bool:
        return not options.only or subset in options.only or name in options.only

    outcomes: list[Outcome] = []
    for outcome in figures.run(wanted):
        outcomes.append(outcome)
        console.print("  ".join(format_row(outcome)))
    console.print()
    print_table(outcomes, options.threads, console)
    write_json(outcomes, options.json, options.threads)
    missed = [outcome for outcome in outcomes if outcome.verdict in ("MISS", "WRONG")]
    barred = [outcome for outcome in outcomes if outcome.bar is not None]
    console.print(
        f"{len(barred) - len(missed)} of {len(barred)} bars passed; {options.json}"
    )
    return 1 if options.strict and missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
