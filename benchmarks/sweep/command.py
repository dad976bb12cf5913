"""The command line that both sweeps share: choose, run, resume, print, write.

What it is: options and output of ``op_sweep.py`` and ``block_sweep.py``.
What it is not: a measurement.
Who calls it: the two commands.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from figures.machine import describe_machine
from sweep.manner import Manner
from sweep.referee import TIMEOUT_S, Referee, read_rows, run
from sweep.report import family_lines, line_of, summarize, symbol_lines, table

Row = dict[str, Any]


def parse_arguments(
    description: str, stem: str, arguments: Sequence[str] | None
) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="TEXT",
        help="cases whose name has one of these",
    )
    parser.add_argument("--limit", type=int, help="at most so many cases in this run")
    parser.add_argument("--seconds", type=float, help="begin no case after this time")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds per case")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="keep the rows that an earlier run of the same kind left",
    )
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument(
        "--symbols",
        action="store_true",
        help="compile for symbols in the place of sizes, and beside them for the sizes",
    )
    parser.add_argument(
        "--processor",
        action="store_true",
        help="processor time, the least of many short turns: for a machine that others use, too",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="PATH",
        help=f"build/{stem}, with _symbols and _processor behind it where asked for, unless told",
    )
    parser.add_argument("--strict", action="store_true", help="fail if a bar is missed")
    options = parser.parse_args(arguments)
    options.manner = Manner(symbols=options.symbols, processor=options.processor)
    name = "_".join((stem, *options.manner.words()))
    options.out = options.out or Path("build") / name
    return options


def choose(names: Sequence[str], only: Sequence[str]) -> list[str]:
    """Return the names that have one of the texts in them, all without texts."""
    return [name for name in names if not only or any(text in name for text in only)]


def describe_commit() -> str:
    """Return the commit that was measured, with a mark where files differ from it."""
    asked = ["git", "describe", "--always", "--dirty"]
    here = Path(__file__).parent
    answer = subprocess.run(asked, cwd=here, capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


def sweep(
    stem: str,
    title: str,
    names: Sequence[str],
    bar: float,
    options: argparse.Namespace,
) -> int:
    """Run what the options ask for; return the status of the process."""
    chosen = choose(names, options.only)
    if options.list:
        print("\n".join(chosen))
        return 0
    journal = options.out.with_suffix(".rows")
    if not options.resume:
        journal.unlink(missing_ok=True)
    manner: Manner = options.manner
    done = read_rows(journal, manner)
    pending = [name for name in chosen if name not in done][: options.limit]
    end = time.monotonic() + (options.seconds or float("inf"))
    with Referee(stem, manner=manner, timeout_s=options.timeout) as referee:
        for number, row in enumerate(run(referee, pending, journal), 1):
            done[row["name"]] = row
            print(f"{number:4}/{len(pending)} {line_of(row)}", file=sys.stderr, flush=True)
            if time.monotonic() > end:
                break
    rows = [done[name] for name in chosen if name in done]
    summary = summarize(rows, bar)
    machine, commit = describe_machine(), describe_commit()
    clock = "processor time" if manner.processor else "wall clock"
    text = [f"{title}: {machine['processor']}, 1 thread, {clock}, commit {commit}"]
    text += [*summary.lines(bar), f"{len(chosen) - len(rows)} cases not run", ""]
    text += [*family_lines(rows), "", *symbol_lines(rows), *table(rows)]
    options.out.with_suffix(".txt").write_text("\n".join(text) + "\n")
    document = {
        "machine": machine,
        "commit": commit,
        "summary": asdict(summary),
        "rows": rows,
    }
    options.out.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(text))
    missed = summary.above or summary.wrong or summary.refused
    return 1 if options.strict and missed else 0
