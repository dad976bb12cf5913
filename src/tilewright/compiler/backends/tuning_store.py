"""Decisions that were measured to be fast, on disk: an SQLite file that compilations consult and tuners write.

A row is found by the key of a kernel request: naive loops, target, threads and this compiler's sources, so that nothing
is believed that another machine or another state of the rules measured.  What it says is text from outside: it is only
taken as a point of the kernel's space, of which every one computes the same.  Not here: what to try (`tuning`).

Reading never fails a compilation: a file that is none, is locked or has another layout is passed over, with a line
in the log.  Writing says what is wrong, before anything is measured.  Any number of processes may do both.  A file whose
tables were not made here, word for word, is none: it could have others compute whatever a schema can.

Source: SQLite, "Defense Against The Dark Arts" (https://sqlite.org/security.html) for files of strangers.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, final

from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import ScheduleError, UserError
from tilewright.base.fork_locks import LATE_IMPORTS
from tilewright.base.input_file import is_stream, is_there
from tilewright.base.log import Log
from tilewright.base.record import record
from tilewright.compiler.schedule.rules import Decisions

if TYPE_CHECKING:
    import sqlite3

_LOG: Final = Log("compiler")
_NAME: Final = "tuning.sqlite"
_LAYOUT: Final = 1
"""Of the tables; a file of another layout is not read."""
_LONGEST: Final = 1 << 14
_MOST_BYTES: Final = 1 << 20
"""Of a value or a row: nothing that was written here comes near it."""
_PRIMARY: Final = 0xFF
"""Of an error code of SQLite: its kind."""
_IN_USE: Final = (5, 6)
"""SQLITE_BUSY, SQLITE_LOCKED."""
_NOT_WRITTEN: Final = (8, 10, 13)
"""SQLITE_READONLY, SQLITE_IOERR, SQLITE_FULL."""
_LOCKED: Final = "begin immediate"
_READ_WAIT_S: Final = 2.0
_WRITE_WAIT_S: Final = 30.0
_TABLES: Final = f"""
begin immediate;
create table if not exists best (
    key text primary key, kernel text not null, decisions text not null, before_ns real not null,
    after_ns real not null, at real not null, checked integer not null);
create table if not exists tried (
    key text not null, decisions text not null, ratio real not null, primary key (key, decisions));
pragma user_version = {_LAYOUT};
commit;
"""
"""All at once: another process must not find tables without their layout."""


class DecisionSource(Protocol):
    """Where a compilation asks for decisions: a store, or whoever tries some out."""

    def decisions(self, keys: Iterable[str]) -> Mapping[str, Decisions]:
        """Those known for the keys of kernel requests."""
        ...


@final
@record
class Finding:
    """The fastest decisions known for a kernel.

    Units: nanoseconds of one run, with the cost model's decisions and with these, side by side.

    Attributes:
        is_checked: a model with it was measured not to be slower; compilations take no other.
    """

    kernel: str
    decisions: str
    before_ns: float
    after_ns: float
    is_checked: bool = False


@final
@record
class TuningStore:
    """A file of decisions.  Thread-safe: every call opens the file anew."""

    path: Path

    @staticmethod
    def beside(cache: CompilationCache) -> TuningStore:
        """The store of a cache of kernels: in its folder, which is its user's alone."""
        return TuningStore(cache.folder / _NAME)

    @staticmethod
    def named(path: Path) -> TuningStore:
        """A store that the user names, who wants what is in it.

        Raises: UserError where there is none, or one that cannot be read.
        """
        store = TuningStore(path)
        try:
            is_found, is_empty = is_there(path), store._is_empty()
        except OSError as error:  # of a folder that may not be looked into, of a name
            raise store._refusal(error) from error
        if not is_found:
            raise UserError(
                "there is no such store of tuned decisions",
                location=path,
                hint="tilewright tune MODEL --store PATH makes it",
            )
        if is_empty:
            return store
        with store._opened() as base:
            (found,) = base.execute("pragma quick_check(1)").fetchone()
        if found != "ok":
            raise UserError(
                f"is damaged: {found}",
                location=path,
                hint="delete it, or name another file: --store",
            )
        return store

    def decisions(self, keys: Iterable[str]) -> dict[str, Decisions]:
        """What was found for each of the keys, as far as it is understood; nothing in a file of no bytes, or without one."""
        try:
            if self._is_empty():
                return {}
            with self._opened() as base:
                rows = _select(base, "checked = 1", keys)
        except (UserError, OSError) as error:
            _LOG.warning("tuned decisions are not used: %s", error)
            return {}
        found: dict[str, Decisions] = {}
        for key, finding in rows.items():
            try:
                found[key] = Decisions.parse(finding.decisions)
            except ScheduleError as error:
                _LOG.warning(
                    "kernel '%s': decisions of '%s' are not used: %s",
                    finding.kernel,
                    self.path,
                    error,
                )
        return found

    def _is_empty(self) -> bool:
        return not self.path.exists() or (
            self.path.is_file() and not self.path.stat().st_size
        )

    def findings(self, keys: Iterable[str]) -> dict[str, Finding]:
        """The best that is known of each key, checked with a model or not.  Raises: UserError."""
        with self._opened(writes=True) as base:
            return _select(base, "1", keys)

    def tried(self, key: str) -> dict[str, float]:
        """Every point that was tried, and its time over that of the cost model's.  Raises: UserError."""
        with self._opened(writes=True) as base:
            rows = base.execute("select decisions, ratio from tried where key = ?", (key,))
            return {
                text: ratio
                for text, ratio in rows
                if isinstance(text, str) and len(text) <= _LONGEST and _is_time(ratio)
            }

    def note_tried(self, key: str, ratios: Mapping[str, float]) -> None:
        """Keep what was tried.  Raises: UserError where nothing can be written."""
        with self._opened(writes=True) as base:
            base.executemany(
                "insert or replace into tried values (?, ?, ?)",
                [(key, text, ratio) for text, ratio in ratios.items()],
            )

    def note_best(self, key: str, finding: Finding) -> None:
        """Keep the best of a kernel.  Raises: as `note_tried`."""
        row = (
            key,
            finding.kernel,
            finding.decisions,
            finding.before_ns,
            finding.after_ns,
            time.time(),
            int(finding.is_checked),
        )
        with self._opened(writes=True) as base:
            base.execute("insert or replace into best values (?, ?, ?, ?, ?, ?, ?)", row)

    def drop(self, keys: Iterable[str]) -> None:
        """Forget the best of some kernels, not what was tried.  Raises: as `note_tried`."""
        with self._opened(writes=True) as base:
            base.executemany("delete from best where key = ?", [(key,) for key in keys])

    @contextlib.contextmanager
    def _opened(self, *, writes: bool = False) -> Generator[sqlite3.Connection]:
        """The file as a data base whose changes are kept if nothing is raised.

        Raises: UserError that says what is wrong with it.
        """
        with LATE_IMPORTS:
            import sqlite3  # noqa: PLC0415 - most compilations have no store

        try:
            if is_stream(self.path):  # of which the mere opening may wait for ever
                raise UserError("is a device or a pipe", location=self.path)
            if "\0" in str(self.path):  # SQLite would take what stands before it
                raise UserError("is no name of a file", location=repr(str(self.path)))
            if writes:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with contextlib.closing(self._connected(writes=writes)) as base, base:
                base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
                base.execute("pragma trusted_schema = off")
                base.execute("pragma cell_size_check = on")
                self._check_layout(base, writes=writes)
                if writes:
                    base.execute(_LOCKED)  # what cannot be written is said now
                yield base
        # The words of SQLite repeat names of a damaged file, which Python decodes.
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise self._refusal(error) from error

    def _connected(self, *, writes: bool) -> sqlite3.Connection:
        """What opens the file: to read, the first way in which SQLite can.

        A writer that was killed leaves changes that the next one finishes or takes back, which is writing; where
        nobody may write, the file is taken as it is.
        """
        import sqlite3  # noqa: PLC0415 - as above

        def connect(mode: str, wait_s: float) -> sqlite3.Connection:
            uri = f"{self.path.absolute().as_uri()}?{mode}"
            return sqlite3.connect(
                uri, timeout=wait_s, uri=True, isolation_level="IMMEDIATE"
            )

        if writes:
            return connect("mode=rwc", _WRITE_WAIT_S)
        base = connect("mode=ro", _READ_WAIT_S)
        try:
            base.execute("pragma user_version").fetchone()
        except sqlite3.OperationalError as error:
            base.close()
            code = error.sqlite_errorcode & _PRIMARY
            if code not in {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}:
                raise
            may_write = all(os.access(p, os.W_OK) for p in (self.path, self.path.parent))
            return connect("mode=rw" if may_write else "immutable=1", _READ_WAIT_S)
        except BaseException:
            base.close()
            raise
        return base

    def _refusal(self, error: Exception) -> UserError:
        """What is said of a file that cannot be used."""
        reason = "it is damaged" if isinstance(error, UnicodeDecodeError) else error
        hint = "name another file (--store, --tuning-store), or delete one that is damaged"
        code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
        if code in _IN_USE:
            reason, hint = "another process uses it", "try again when that has ended"
        elif code in _NOT_WRITTEN:
            hint = "make room where it lies, let it be written, or name another file (--store, --tuning-store)"
        elif isinstance(error, OSError):
            reason = error.strerror or error
        return UserError(
            f"cannot be used as a store of tuned decisions: {reason}",
            location=self.path,
            hint=hint,
        )

    def _check_layout(self, base: sqlite3.Connection, *, writes: bool) -> None:
        (layout,) = base.execute("pragma user_version").fetchone()
        schema = _schema_of(base)
        if writes and layout == 0 and not schema:
            base.executescript(_TABLES)
        elif layout != _LAYOUT:
            raise UserError(
                f"is a store of layout {layout}, expected {_LAYOUT}",
                location=self.path,
                hint="delete it, or name another file: --store",
            )
        elif schema != _own_schema():
            raise UserError("is no store of tuned decisions", location=self.path)


def _schema_of(base: sqlite3.Connection) -> frozenset[tuple[str, ...]]:
    """Everything that a file declares."""
    return frozenset(base.execute("select type, name, tbl_name, sql from sqlite_schema"))


@functools.cache
def _own_schema() -> frozenset[tuple[str, ...]]:
    import sqlite3  # noqa: PLC0415 - as above

    with contextlib.closing(sqlite3.connect(":memory:")) as base:
        base.executescript(_TABLES)
        return _schema_of(base)


def _is_time(value: object) -> bool:
    """Whether a value can be a time, or one over another."""
    return isinstance(value, float) and math.isfinite(value) and value > 0


def _select(
    base: sqlite3.Connection, condition: str, keys: Iterable[str]
) -> dict[str, Finding]:
    """The rows of `best` that can be taken for what they should be."""
    found: dict[str, Finding] = {}
    query = f"select kernel, decisions, before_ns, after_ns, checked from best where {condition} and key = ?"
    for key in keys:
        row = base.execute(query, (key,)).fetchone()
        if row is None:
            continue
        kernel, decisions, before, after, checked = row
        times = _is_time(before) and _is_time(after)
        texts = isinstance(kernel, str) and isinstance(decisions, str)
        if times and texts and len(decisions) <= _LONGEST:
            found[key] = Finding(kernel, decisions, before, after, bool(checked))
    return found
