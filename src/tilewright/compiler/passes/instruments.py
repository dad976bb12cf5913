"""Ready-made watchers of passes: time, prints, dumps, verification.

A watcher sees the graph before and after every pass and may raise; it never changes the graph.  Who is
on is the `PassContext`'s business; passes know nothing of them.

Source: the names are those of TVM, `python/tvm/ir/instrument.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO, final

from tilewright.base import knobs
from tilewright.base.diagnostics import say
from tilewright.base.errors import UserError
from tilewright.base.output_file import make_output_folder, write_text_output
from tilewright.base.text import format_duration
from tilewright.compiler.graph.ir import Graph
from tilewright.compiler.graph.text import ArrayHashes, to_text
from tilewright.compiler.graph.verifier import verify
from tilewright.compiler.passes.context import PassInfo, PassInstrument, known_names

_DUMP_HINT: Final = f"--dump-ir, DumpIR or {knobs.DUMP_DIR.variable} has to name a folder that can be written to"


@final
class PassTimingInstrument(PassInstrument):
    """Notes how long each pass takes: `rows` are (pass name, nanoseconds, modified), in order."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, bool]] = []

    def run_after_pass(self, graph: Graph, info: PassInfo) -> None:
        """Note the time."""
        del graph
        self.rows.append((info.name, info.duration_ns, info.modified))

    def render(self) -> str:
        """A table, one pass per line, and the sum."""
        width = max((len(name) for name, _, _ in self.rows), default=5)
        lines = [
            f"{name:{width}}  {format_duration(time):>10}{'' if modified else '  (no change)'}"
            for name, time, modified in self.rows
        ]
        total = sum(time for _, time, _ in self.rows)
        return "\n".join([*lines, f"{'total':{width}}  {format_duration(total):>10}"])


class _Printing(PassInstrument):
    """Prints graphs: on standard error, unless another stream is given."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream: TextIO | None = stream
        self._hashes: ArrayHashes = ArrayHashes()

    def _print(self, when: str, info: PassInfo, graph: Graph) -> None:
        write = say if self._stream is None else self._stream.write
        text = to_text(graph, locations=True, hashes=self._hashes)
        write(f"// ----- {when} {info.text} -----\n{text}\n")


@final
class PassPrintingInstrument(_Printing):
    """Prints the graph before and after the passes that are named.

    Args:
        print_before_pass_names, print_after_pass_names: names of passes.
        stream: where to; default: standard error.

    Raises: UserError for a pass that there is not.
    """

    def __init__(
        self,
        print_before_pass_names: Sequence[str] = (),
        print_after_pass_names: Sequence[str] = (),
        stream: TextIO | None = None,
    ) -> None:
        super().__init__(stream)
        before = known_names("print_before_pass_names", print_before_pass_names)
        after = known_names("print_after_pass_names", print_after_pass_names)
        self._before: frozenset[str] = frozenset(before)
        self._after: frozenset[str] = frozenset(after)

    def run_before_pass(self, graph: Graph, info: PassInfo) -> None:
        """Print, where the pass is one of those."""
        if info.name in self._before:
            self._print("before", info, graph)

    def run_after_pass(self, graph: Graph, info: PassInfo) -> None:
        """Print, where the pass is one of those."""
        if info.name in self._after:
            self._print("after", info, graph)


@final
class PrintBeforeAll(_Printing):
    """Prints the graph before every pass."""

    def run_before_pass(self, graph: Graph, info: PassInfo) -> None:
        """Print."""
        self._print("before", info, graph)


@final
class PrintAfterAll(_Printing):
    """Prints the graph after every pass."""

    def run_after_pass(self, graph: Graph, info: PassInfo) -> None:
        """Print."""
        self._print("after", info, graph)


@final
class DumpIR(PassInstrument):
    """Writes the graph as text before the first and after every pass that changed it.

    Files are `000-input.twir`, `001-fold-constants.twir` ...  `last` is the one written last.

    Args:
        dump_dir: the folder, which is made.
        refresh: begin by removing the dumps that are there.
    """

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self.folder: Path = Path(dump_dir)
        self.last: Path | None = None
        self._count: int = 0
        self._graph: Graph | None = None
        self._hashes: ArrayHashes = ArrayHashes()
        if refresh:
            for path in self.folder.glob("[0-9][0-9][0-9]-*.twir"):
                path.unlink()

    def run_before_pass(self, graph: Graph, info: PassInfo) -> None:
        """Write what comes in: another graph than the one before."""
        del info
        if self._graph is not graph:
            self._graph = graph
            self._write("input", graph)

    def run_after_pass(self, graph: Graph, info: PassInfo) -> None:
        """Write what the pass made."""
        self._count += 1
        if info.modified:
            self._write(info.name, graph)

    def _write(self, subject: str, graph: Graph) -> None:
        path = self.folder / f"{self._count:03}-{subject}.twir"
        try:
            make_output_folder(self.folder)
            write_text_output(path, to_text(graph, locations=True, hashes=self._hashes))
        except UserError as error:
            error.hint = _DUMP_HINT
            raise
        self.last = path


@final
class VerifyInstrument(PassInstrument):
    """Verifies the graph before the first pass and after every pass that changed it."""

    def __init__(self) -> None:
        self._graph: Graph | None = None

    def run_before_pass(self, graph: Graph, info: PassInfo) -> None:
        """Verify what comes in: another graph than the one before."""
        del info
        if self._graph is not graph:
            self._graph = graph
            verify(graph)

    def run_after_pass(self, graph: Graph, info: PassInfo) -> None:
        """Verify what the pass made."""
        if info.modified:
            verify(graph)


@final
class PrintTimes(PassInstrument):
    """Writes the time of every pass to standard error as it ends."""

    def run_after_pass(self, graph: Graph, info: PassInfo) -> None:
        """Write one line."""
        del graph
        note = "" if info.modified else "  (no change)"
        time = format_duration(info.duration_ns)
        say(f"{info.name:24}  {time:>10}{note}\n")


def instruments_of_knobs() -> tuple[PassInstrument, ...]:
    """The watchers that `TILEWRIGHT_DUMP_DIR`, `_VERIFY` and `_TIMING` ask for."""
    folder = knobs.DUMP_DIR.get()
    found: list[PassInstrument] = [] if folder is None else [DumpIR(folder)]
    if knobs.VERIFY.get():
        found.append(VerifyInstrument())
    if knobs.TIMING.get():
        found.append(PrintTimes())
    return tuple(found)
