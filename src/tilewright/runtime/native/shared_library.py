"""Shared libraries of the system: the way to `dlopen`.

Not here: what the libraries mean.  Called by `loaders`, and by those that call libraries of vendors.
"""

from __future__ import annotations

import _ctypes
import ctypes
import itertools
import os
import sys
import tempfile
import weakref
from collections.abc import Sequence
from typing import Final, final

from tilewright.base.input_file import STREAM, is_stream
from tilewright.base.status import StatusCode, failure
from tilewright.runtime.native.foreign_functions import address_of


@final
class SharedLibrary:
    """A library that was opened from its bytes.

    The bytes go to an anonymous file in memory (a temporary one where there is none), so that
    debuggers and profilers see them.

    Ownership: closed when nobody holds it any more; not at the end of the process.
    Raises: OSError with the system's reason.
    """

    def __init__(self, data: memoryview) -> None:
        file = _anonymous_file()
        try:
            done = 0
            while done < len(data):
                done += os.write(file, data[done:])
            folder = "/proc/self/fd" if sys.platform == "linux" else "/dev/fd"
            self._library: ctypes.CDLL = ctypes.CDLL(new_spelling(f"{folder}/{file}"))
        except UnicodeDecodeError as error:
            raise _no_text(error) from error
        finally:
            os.close(file)
        close = getattr(_ctypes, "dlclose")  # noqa: B009 - not in the stubs
        handle = self._library._handle  # pyright: ignore[reportPrivateUsage]
        weakref.finalize(self, close, handle).atexit = False

    def address(self, symbol: str) -> int:
        """Where a symbol is; 0 where there is none."""
        try:
            return address_of(getattr(self._library, symbol))
        except AttributeError:
            return 0


def open_first(
    names: Sequence[str], location: str, lacking: str, hint: str
) -> tuple[ctypes.CDLL, str]:
    """The first library that there is, and its name.

    Raises: DeviceError (UNAVAILABLE), beginning with what is `lacking`, where there is none.
    """
    problems: list[str] = []
    for name in names:
        if "/" in name and is_stream(name):  # which the system's loader would wait for
            problems.append(f"{name} {STREAM}")
            continue
        try:
            return ctypes.CDLL(name), name
        except UnicodeDecodeError as error:
            problems.append(str(_no_text(error)))
        except OSError as error:
            problems.append(str(error))
    text = f"{lacking}: {problems[0]}"
    raise failure(StatusCode.UNAVAILABLE, text, location=location, hint=hint)


def _no_text(error: UnicodeDecodeError) -> OSError:
    """The system's reason, where it names a symbol that is no text."""
    return OSError(error.object.decode(errors="backslashreplace"))


_SPELLINGS: Final = itertools.count(2)


def new_spelling(path: str) -> str:
    """The path of a file in letters that no library was opened by yet.

    The system takes a path that it has seen for the library that it has, whatever the file has become
    since; it knows the same file by another spelling.
    """
    folder, _, name = path.rpartition("/")
    bits = f"{next(_SPELLINGS):b}"
    return f"{folder}/{''.join('./' if bit == '1' else '/' for bit in bits)}{name}"


@final
class PathLibrary:
    """A library that was opened where it lies, all its symbols found; closed by `with`.

    Raises: OSError with the system's reason.
    """

    def __init__(self, path: str) -> None:
        try:
            self._library: ctypes.CDLL = ctypes.CDLL(path)
        except UnicodeDecodeError as error:
            raise _no_text(error) from error

    def __enter__(self) -> ctypes.CDLL:
        return self._library

    def __exit__(self, *error: object) -> None:
        close = getattr(_ctypes, "dlclose")  # noqa: B009 - not in the stubs
        close(self._library._handle)  # pyright: ignore[reportPrivateUsage]


def _anonymous_file() -> int:
    create = getattr(os, "memfd_create", None)
    if create is not None:
        return create("tilewright-executable")
    file, path = tempfile.mkstemp(prefix="tilewright-", suffix=".so")
    os.unlink(path)  # noqa: PTH108 - reached by its descriptor only
    return file
