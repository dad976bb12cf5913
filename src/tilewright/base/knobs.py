"""Knobs: every setting that comes from outside the program, in one typed table.

The only module that reads environment variables.  A knob has a name, a variable
`TILEWRIGHT_<NAME>`, a type, a default and one sentence; reading it parses the variable afresh, so
a change shows at the next read.  Not for compile options (those are records passed along);
knobs give their defaults.  Read by every room, listed by the CLI.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Generic, TypeVar, final

from tilewright.base.errors import UserError
from tilewright.base.record import record
from tilewright.base.text import did_you_mean, whole_number

T_co = TypeVar("T_co", covariant=True)

PREFIX: Final = "TILEWRIGHT_"
_TRUE: Final = ("1", "true", "yes", "on")
_FALSE: Final = ("0", "false", "no", "off", "")
_SIZE_SCALE: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _parse_bool(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise ValueError("one of " + " ".join(_TRUE[:-1] + _FALSE[:-1]))
    return word in _TRUE


_DIGITS: Final = "[0-9]{1,18}"  # more are no number that anything here counts


def _count(text: str, digits: str = _DIGITS) -> int | None:
    """The number that digits stand for; None for anything else, as in C (MIRROR COUNT: `native/src/library/place.c`)."""
    # In ASCII: Python knows blanks and digits of many scripts, and `int` not all of those blanks.
    return int(text) if re.fullmatch(rf"\s*{digits}\s*", text, re.ASCII) else None


def _parse_count(text: str) -> int:
    count = _count(text)
    if count is None:
        raise ValueError("a number that is not negative")
    return count


THREAD_LIMIT: Final = 4096  # of a pool of workers, as the C core has it


def _parse_threads(text: str) -> int:
    count = _count(text)
    if count is None or count > THREAD_LIMIT:
        raise ValueError(f"a number from 0 to {THREAD_LIMIT}")
    return count


def parse_size(text: str) -> int:
    """A size in bytes: `512M`.  Raises: ValueError that says what is expected."""
    form = rf"\s*({_DIGITS})\s*([KMG]?)(i?B)?\s*"
    match = re.fullmatch(form, text, re.IGNORECASE | re.ASCII)
    if match is None:
        raise ValueError("a size like 4096, 512M or 2G")
    return int(match[1]) * _SIZE_SCALE[match[2].upper()]


def _parse_epoch(text: str) -> int | None:
    if not text.strip():
        return None
    seconds = _count(text, "[0-9]{1,11}")
    if seconds is None:
        raise ValueError("seconds since 1970")
    return seconds


def _epoch_of_system() -> int | None:
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    try:
        return _parse_epoch(text)
    except ValueError as error:
        raise UserError(
            f"got '{text}', expected {error}", location="SOURCE_DATE_EPOCH"
        ) from error


def _parse_path(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:  # of somebody who is not known here
        raise ValueError("a path, whose '~' is a folder") from error


def _parse_folder(text: str) -> Path | None:
    return _parse_path(text) if text else None


@final
@record(eq=False)
class Knob(Generic[T_co]):
    """One setting.  `parse` raises ValueError whose text says what is expected."""

    name: str
    parse: Callable[[str], T_co]
    default: Callable[[], T_co]
    summary: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.name.upper()

    @property
    def is_set(self) -> bool:
        """Whether the variable or an override gives the value."""
        return self.name in _OVERRIDES or self.variable in os.environ

    def get(self) -> T_co:
        """The value now: the innermost override, else the variable, else the default.

        Raises: UserError when the variable does not parse.
        """
        text = _OVERRIDES.get(self.name, os.environ.get(self.variable))
        if text is None:
            return self.default()
        try:
            return self.parse(text)
        except ValueError as error:
            raise UserError(
                f"got '{text}', expected {error}",
                location=self.variable,
                hint=f"unset {self.variable} for the default: {self.summary}",
            ) from error


def _cache_home() -> Path:
    configured = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if configured.is_absolute():  # any other path is to be ignored, says its specification
        return configured / "tilewright"
    try:
        return Path("~/.cache").expanduser() / "tilewright"
    except RuntimeError:  # a user without a home, as containers have them
        return (
            Path(os.environ.get("TMPDIR") or "/tmp")
            / f"tilewright-{getattr(os, 'getuid', int)()}"
        )


def _parse_cache_dir(text: str) -> Path:
    return _parse_path(text) if text else _cache_home()


def _parse_collectives(text: str) -> str:
    if text not in ("process", "mpi"):
        raise ValueError("process or mpi")
    return text


def numpy_is_told() -> bool:
    """Whether numpy's own settings say which features of the CPU it is to use."""
    names = ("NPY_DISABLE_CPU_FEATURES", "NPY_ENABLE_CPU_FEATURES")
    return any(name in os.environ for name in names)


def _collectives_of_launcher() -> str:
    """Where participants are by default: a launcher of MPI says how many processes it started."""
    sizes = (os.environ.get(name, "") for name in ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE"))
    return "mpi" if any((whole_number(size) or 0) > 1 for size in sizes) else "process"


CACHE_DIR: Final = Knob(
    "cache_dir",
    _parse_cache_dir,
    _cache_home,
    "folder of compiled kernels kept between runs",
)
CACHE: Final = Knob("cache", _parse_bool, lambda: True, "keep compiled kernels on disk")
CACHE_LIMIT: Final = Knob(
    "cache_limit", parse_size, lambda: 2 << 30, "size at which the oldest kernels go"
)
JOBS: Final = Knob(
    "jobs", _parse_count, lambda: 0, "processes that compile kernels; 0 = one per core"
)
THREADS: Final = Knob(
    "threads", _parse_threads, lambda: 0, "threads that run kernels; 0 = one per core"
)
SPIN_US: Final = Knob(
    "spin_us",
    _parse_count,
    lambda: 100,
    "microseconds an idle worker spins before sleeping",
)
TARGET: Final = Knob("target", str, lambda: "host", "target when none is given")
VERIFY: Final = Knob("verify", _parse_bool, lambda: False, "verify the IR after every pass")
DUMP_DIR: Final = Knob(
    "dump_dir", _parse_folder, lambda: None, "folder for the IR before and after every pass"
)
TIMING: Final = Knob("timing", _parse_bool, lambda: False, "print the time of every pass")
CUDA_LIBRARY: Final = Knob(
    "cuda_library", str, lambda: "", "NVIDIA's driver library; none = the system's"
)
NCCL_LIBRARY: Final = Knob(
    "nccl_library", str, lambda: "", "NCCL, for collectives of GPUs; none = the system's"
)
COLLECTIVES: Final = Knob(
    "collectives",
    _parse_collectives,
    _collectives_of_launcher,
    "where devices meet for collectives: process or mpi; mpi where mpiexec started several",
)
CHECK_INDICES: Final = Knob(
    "check_indices",
    _parse_bool,
    lambda: True,
    "compile models whose calls fail for an index that is out of range; else it is clamped",
)
SOURCE_DATE_EPOCH: Final = Knob(
    "source_date_epoch",
    _parse_epoch,
    _epoch_of_system,
    "the time that artifacts say they were made at, in seconds since 1970; default: "
    "SOURCE_DATE_EPOCH, else they say none",
)
CC: Final = Knob(
    "cc",
    str,
    lambda: os.environ.get("CC", ""),
    "compiler that links exported libraries; default: CC, else cc, else Zig's",
)
NATIVE: Final = Knob("native", _parse_bool, lambda: True, "use the native core where built")
DEBUG: Final = Knob("debug", _parse_bool, lambda: False, "show tracebacks of user errors")

TABLE: Final[Mapping[str, Knob[object]]] = MappingProxyType(
    {
        knob.name: knob
        for knob in (
            CACHE_DIR, CACHE, CACHE_LIMIT, JOBS, THREADS, SPIN_US, TARGET, VERIFY, DUMP_DIR,
            TIMING, CUDA_LIBRARY, NCCL_LIBRARY, COLLECTIVES, CHECK_INDICES,
            SOURCE_DATE_EPOCH, CC, NATIVE, DEBUG,
        )
    }
)  # fmt: skip

_OVERRIDES: Final[dict[str, str]] = {}


@contextlib.contextmanager
def override(**values: object) -> Generator[None]:
    """Set knobs by name for the duration of a `with` block (tests, CLI flags).

    Raises: UserError for a name that is not in the table.
    """
    for name in values:
        if name not in TABLE:
            raise UserError(f"unknown knob '{name}'", hint=did_you_mean(name, TABLE))
    saved = dict(_OVERRIDES)
    _OVERRIDES.update({name: str(value) for name, value in values.items()})
    try:
        yield
    finally:
        _OVERRIDES.clear()
        _OVERRIDES.update(saved)


def environment_with(**variables: str) -> dict[str, str]:
    """The environment of this process with some variables set: for a program that it starts."""
    return {**os.environ, **variables}


def unknown_variables() -> tuple[str, ...]:
    """Variables that start with `TILEWRIGHT_` but name no knob, each with a suggestion.

    `TILEWRIGHT_TEST_…` belongs to the tests.
    """
    known = {knob.variable for knob in TABLE.values()}
    found: list[str] = []
    for variable in sorted(os.environ):
        ours = variable.startswith(PREFIX) and not variable.startswith(f"{PREFIX}TEST_")
        if ours and variable not in known:
            hint = did_you_mean(variable, known)
            found.append(variable if hint is None else f"{variable} ({hint})")
    return tuple(found)
