"""Try model families that nothing here was built with: results, coverage, speed, memory.

What it is: two score families of transformers with random weights, against onnxruntime and torch on
one thread; a table sorted by ratio in which refusals, crashes and wrong words of coverage are rows.
What it is not: the figures of the model set (``bench.py``).
Who calls it: developers, with the extras ``torch`` and ``peers``; the first run exports, half a minute per family::

    python benchmarks/unseen_models.py                   # build/unseen_models.txt and .json
    python benchmarks/unseen_models.py --only mamba t5   # some; others keep their rows
    python benchmarks/unseen_models.py --export-only     # write build/models/unseen
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from figures.bars import OURS, PEER
from figures.machine import describe_machine
from figures.measure import HARNESS, environment_of, pinned
from figures.rows import format_duration
from sweep.command import describe_commit
from sweep.report import ratio_of

BAR: Final = 1.1
TOLERANCE: Final = 2e-4
ENVIRONMENT: Final = environment_of(1, HARNESS / "models")
Row = dict[str, Any]


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", type=Path, default=Path("build/models/unseen"))
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--export-only", action="store_true")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds per family")
    parser.add_argument("--out", type=Path, default=Path("build/unseen_models"))
    parser.add_argument("--strict", action="store_true", help="fail if a bar is missed")
    return parser.parse_args(arguments)


def ask(module: str, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a module of the package to its end."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def family_names() -> list[str]:
    """Return the names of the table, read in another process: torch is slow to import."""
    code = "from unseen.families import FAMILIES; print(*FAMILIES)"
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return answer.stdout.split()


def hold(path: Path, timeout_s: float) -> Row:
    """Return the row of a family; one that ends the process or hangs says so."""
    core = tuple(sorted(os.sched_getaffinity(0))[:1])
    try:
        with pinned(core):
            answer = ask("unseen.contest", str(path), timeout_s=timeout_s)
    except subprocess.TimeoutExpired:
        return {"name": path.stem, "failed": f"no answer in {timeout_s:.0f} s"}
    if answer.returncode:
        last = (answer.stderr.strip().splitlines() or [""])[-1]
        return {"name": path.stem, "failed": f"status {answer.returncode}: {last[:300]}"}
    row: Row = json.loads(answer.stdout.splitlines()[-1])
    return row


def complaints(row: Row) -> list[str]:
    """Return what is wrong with a row beyond its ratio."""
    words = [f"{key.upper()} {row[key]}" for key in ("failed", "refused") if key in row]
    if row.get("untrue"):
        words.append(f"UNTRUE {row['untrue']}")
    errors = ("peer_error", "larger_error", "torch_error")
    found = {key: row[key] for key in errors if key in row}
    # Against torch onnxruntime itself may differ (an export that changes the model): it decides.
    if max((found.get(key, 0.0) for key in errors[:2]), default=0.0) > TOLERANCE:
        words.append(f"WRONG {found}")
    return words


def line_of(row: Row) -> str:
    """Return one line of the table."""
    ratio, middle = ratio_of(row), ratio_of(row, "median_s")
    cells = [f"{row['name']:18}", f"{row.get('parameters', 0) / 1e6:7.1f}"]
    cells += [f"{'-' if value is None else f'{value:.2f}':>7}" for value in (ratio, middle)]
    cells += [
        f"{format_duration(row[runtime]['min_s']) if runtime in row else '-':>9}"
        for runtime in (OURS, PEER)
    ]
    cells += [
        f"{row[key]:8.0e}" if key in row else f"{'-':>8}"
        for key in ("torch_error", "peer_error", "larger_error")
    ]
    cells += [
        f"{row[key]:6.0f}" if key in row else f"{'-':>6}"
        for key in ("ours_mib", "peer_mib")
    ]
    cells.append(f"{row.get('compile_s', 0):6.1f}")
    cells.append(" ".join(f"{n} {word}" for word, n in row.get("words", {}).items()))
    return " ".join([*cells, *(f"[{text}]" for text in complaints(row))])


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines, what failed first, then by falling ratio."""
    ordered = sorted(rows, key=lambda row: -(ratio_of(row) or 1e9))
    heading = (
        f"{'family':18} {'M param':>7} {'least':>7} {'median':>7} {'ours':>9} {'peer':>9} "
        f"{'/torch':>8} {'/peer':>8} {'/larger':>8} {'MiB':>6} {'peer':>6} {'comp s':>6} coverage"
    )
    return [heading, *map(line_of, ordered)]


def export_missing(names: Sequence[str], folder: Path) -> dict[str, Row]:
    """Export what is not there; return a row for each that cannot be."""
    failed: dict[str, Row] = {}
    for name in names:
        if (folder / f"{name}.json").exists():
            continue
        answer = ask("unseen.write_files", str(folder), name, timeout_s=600.0)
        line = (answer.stdout.strip() or answer.stderr.strip()).splitlines()[0]
        print(line, file=sys.stderr, flush=True)
        if answer.returncode:
            failed[name] = {"name": name, "failed": f"not exported: {line[:200]}"}
    return failed


def main(arguments: Sequence[str] | None = None) -> int:
    """Export, measure, print, write."""
    options = parse_arguments(arguments)
    names = family_names()
    chosen = [name for name in names if not options.only or name in options.only]
    if unknown := set(options.only) - set(names):
        sys.exit(f"unknown family '{min(unknown)}'; there are: {', '.join(names)}")
    folder = options.models.resolve()
    failed = export_missing(chosen, folder)
    if options.export_only:
        return 1 if failed else 0
    document = options.out.with_suffix(".json")
    earlier = json.loads(document.read_text())["rows"] if document.exists() else []
    rows = {row["name"]: row for row in earlier if options.only}
    for number, name in enumerate(chosen, 1):
        row = failed.get(name) or hold(folder / f"{name}.onnx", options.timeout)
        rows[name] = row
        print(f"{number:3}/{len(chosen)} {line_of(row)}", file=sys.stderr, flush=True)
        write(list(rows.values()), options.out)
    print(options.out.with_suffix(".txt").read_text(), end="")
    missed = [r for r in rows.values() if complaints(r) or (ratio_of(r) or 0) > BAR]
    return 1 if options.strict and missed else 0


def write(rows: Sequence[Row], out: Path) -> None:
    """Write the table and the rows, after every family: a run may be ended."""
    machine, commit = describe_machine(), describe_commit()
    ratios = [ratio for row in rows if (ratio := ratio_of(row)) is not None]
    above = sum(ratio > BAR for ratio in ratios)
    text = [
        f"unseen models: {machine['processor']}, 1 thread, commit {commit}",
        f"{len(ratios)} of {len(rows)} timed, {above} above {BAR:g} ×",
        "",
        *table(rows),
    ]
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".txt").write_text("\n".join(text) + "\n")
    content = {"machine": machine, "commit": commit, "rows": rows}
    out.with_suffix(".json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
