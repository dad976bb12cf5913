"""Holds a list of cases in a worker process that may die or hang, and keeps every row.

What it is: timeouts, restarts, and the file that lets a run go on where it ended.
What it is not: a measurement (``contest.py``) or a table (``report.py``).
Who calls it: ``op_sweep.py`` and ``block_sweep.py``.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from figures.measure import end, start
from sweep.manner import Manner

TIMEOUT_S: Final = 60.0
Row = dict[str, Any]


class Referee:
    """The worker process, started when needed.

    Args:
        cases: Which set the names are of: "ops" or "blocks".
        manner: What is measured.
        timeout_s: Time for one case, compilation included.
        command: What is started instead of the worker; the tests start something short.
    """

    def __init__(
        self,
        cases: str,
        *,
        manner: Manner | None = None,
        timeout_s: float = TIMEOUT_S,
        command: Sequence[str] | None = None,
    ) -> None:
        self.manner = manner or Manner()
        worker = [sys.executable, "-m", "sweep.worker", cases, *self.manner.words()]
        self.command = list(command or worker)
        self.timeout_s = timeout_s
        self.cores = tuple(sorted(os.sched_getaffinity(0))[:1])
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def hold(self, name: str) -> Row:
        """Return the row of a case, with how it was made.

        A case that ends the worker or takes too long has a row that says so.
        """
        return {**self.answer(name), **self.manner.marks()}

    def answer(self, name: str) -> Row:
        """Return what the worker says of a case, or how it was lost."""
        process = self.process = self.process or start(self.command, 1, self.cores)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(name.encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return self.lost(name, "the worker ended")
        ready, _, _ = select.select([process.stdout], [], [], self.timeout_s)
        if not ready:
            return self.lost(name, f"no answer in {self.timeout_s:.0f} s")
        line = process.stdout.readline()
        if not line:
            return self.lost(name, f"the process ended with status {process.wait()}")
        row: Row = json.loads(line)
        return row

    def lost(self, name: str, reason: str) -> Row:
        """Return the row of a case that cost the worker, and forget the worker."""
        self.close()
        return {"name": name, "family": name.partition("/")[0], "failed": reason}

    def close(self) -> None:
        """End the worker."""
        process, self.process = self.process, None
        if process is not None:
            end(process)


def read_rows(path: Path, manner: Manner) -> dict[str, Row]:
    """Return the rows of an earlier run by name: those made in the same manner.

    A line cut short is left out.  Rows that do not say how they were made are of an older sweep, and are run again.
    """
    if not path.exists():
        return {}
    rows: dict[str, Row] = {}
    for line in path.read_text().splitlines():
        try:
            row: Row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if manner.made(row):
            rows[row["name"]] = row
    return rows


def run(referee: Referee, names: Sequence[str], path: Path) -> Iterator[Row]:
    """Yield the rows of ``names``, each written to ``path`` as soon as it is there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
    with path.open("a") as file:
        if torn:  # by a run that was ended while it wrote
            file.write("\n")
        for name in names:
            row = referee.hold(name)
            file.write(json.dumps(row) + "\n")
            file.flush()
            yield row
