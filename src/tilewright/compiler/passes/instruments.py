"""Watchers of a run of passes: time, dumps, verification.

An instrument sees the graph before and after every pass and may raise; it never changes the
graph.  The pipeline decides which are on; passes know nothing of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from tilewright.base import knobs
from tilewright.base.output_file import make_output_folder, write_text_output
from tilewright.base.text import format_duration
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.text import ArrayHashes, to_text
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.passes.contract import GraphPass, Instrument, PassResult


@final
@dataclass(slots=True)
class TimingInstrument:
    """Collects (pass name, nanoseconds, modified) in order."""

    rows: list[tuple[str, int, bool]] = field(default_factory=list[tuple[str, int, bool]])

    def before(self, graph_pass: GraphPass, graph: Graph) -> None:
        """Nothing to do."""

    def after(
        self,
        graph_pass: GraphPass,
        graph: Graph,  # noqa: ARG002 - protocol
        result: PassResult,
        duration_ns: int,
    ) -> None:
        """Note the time."""
        self.rows.append((graph_pass.name, duration_ns, result.modified))

    def render(self) -> str:
        """A table, one pass per line, and the sum."""
        width = max((len(name) for name, _, _ in self.rows), default=5)
        lines = [
            f"{name:{width}}  {format_duration(time):>10}{'' if modified else '  (no change)'}"
            for name, time, modified in self.rows
        ]
        total = sum(time for _, time, _ in self.rows)
        return "\n".join([*lines, f"{'total':{width}}  {format_duration(total):>10}"])


@final
@dataclass(slots=True)
class DumpInstrument:
    """Writes the graph as text before the first and after every pass that changed it.

    Files are `000-input.twir`, `001-fold-constants.twir` … in `folder`.
    """

    folder: Path
    count: int = 0
    last: Path | None = None
    hashes: ArrayHashes = field(default_factory=ArrayHashes)

    def before(self, graph_pass: GraphPass, graph: Graph) -> None:  # noqa: ARG002 - protocol
        """Write the input of the first pass."""
        if self.last is None:
            self._write("input", graph)

    def after(
        self,
        graph_pass: GraphPass,
        graph: Graph,
        result: PassResult,
        duration_ns: int,  # noqa: ARG002 - protocol
    ) -> None:
        """Write what the pass made."""
        self.count += 1
        if result.modified:
            self._write(graph_pass.name, graph)

    def _write(self, what: str, graph: Graph) -> None:
        make_output_folder(self.folder)
        self.last = self.folder / f"{self.count:03}-{what}.twir"
        write_text_output(self.last, to_text(graph, locations=True, hashes=self.hashes))


@final
@dataclass(slots=True)
class VerifyInstrument:
    """Verifies the graph before the first pass and after every pass that changed it."""

    started: bool = False

    def before(self, graph_pass: GraphPass, graph: Graph) -> None:  # noqa: ARG002 - protocol
        """Verify what comes in."""
        if not self.started:
            self.started = True
            verify(graph)

    def after(
        self,
        graph_pass: GraphPass,  # noqa: ARG002 - protocol
        graph: Graph,
        result: PassResult,
        duration_ns: int,  # noqa: ARG002 - protocol
    ) -> None:
        """Verify what the pass made."""
        if result.modified:
            verify(graph)


@final
class _PrintedTimes:
    """Writes the time of every pass to standard error as it ends."""

    def before(self, graph_pass: GraphPass, graph: Graph) -> None:
        """Nothing to do."""

    def after(
        self,
        graph_pass: GraphPass,
        graph: Graph,  # noqa: ARG002 - protocol
        result: PassResult,
        duration_ns: int,
    ) -> None:
        """Write one line."""
        note = "" if result.modified else "  (no change)"
        time = format_duration(duration_ns)
        sys.stderr.write(f"{graph_pass.name:24}  {time:>10}{note}\n")


def instruments_of_knobs() -> tuple[Instrument, ...]:
    """The watchers that `TILEWRIGHT_DUMP_DIR`, `_VERIFY` and `_TIMING` ask for."""
    folder = knobs.DUMP_DIR.get()
    found: list[Instrument] = [] if folder is None else [DumpInstrument(folder)]
    if knobs.VERIFY.get():
        found.append(VerifyInstrument())
    if knobs.TIMING.get():
        found.append(_PrintedTimes())
    return tuple(found)
