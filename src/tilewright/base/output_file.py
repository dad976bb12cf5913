"""Files that are written: whole or not at all, and never over what must stay.

The one way in which this house writes what a user asked for.  A regular file is made beside its
place, without a name where the system can do that, so that a process that is killed leaves
nothing, and moved there when it is complete, with the mode (and owner, where allowed) of the one it
replaces; links are followed, so what they name is replaced and they stay.  Whatever else has a
name (a device, a FIFO, `/dev/stdout`) is written to as it is, and so is standard output, `-`.
A file that is also an input is refused.  Not for the cache, whose entries may get lost.  Called
by writers of archives, results, traces and dumps.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import sys
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, cast

from tilewright.base.errors import UserError

STANDARD_OUTPUT: Final = "-"
_DESCRIPTORS: Final = re.compile(r"/proc/(\d+)(?:/task/\d+)?/fd")
_OPEN_FILES: Final = "/proc/self/fd"
_READABLE: Final = 0o444
_LINK_LIMIT: Final = 40  # of the kernel, too
_BROKEN_LINKS: Final = "its links lead nowhere"


def check_output(path: str | Path, *, inputs: Iterable[str | Path] = ()) -> None:
    """Say before the work what would go wrong after it.

    Args:
        path: where something is to be written; `-` is standard output.
        inputs: files that are read, which must stay as they are.

    Raises: UserError when there is no such folder, `path` is a folder or not to be written, or is
        one of `inputs`, also by another name.
    """
    if str(path) == STANDARD_OUTPUT:
        return
    status = _status(path)
    if status is None:
        folder = _resolved(path).parent
        if not folder.is_dir():
            raise UserError("no such folder", location=folder)
        return
    if stat.S_ISDIR(status.st_mode):
        raise UserError("is a folder, expected a file", location=path)
    if not os.access(path, os.W_OK):
        raise UserError("cannot write the file: it is read-only", location=path)
    keeps_data = stat.S_ISREG(status.st_mode) or stat.S_ISBLK(status.st_mode)
    if keeps_data and any(_is_file(source, status) for source in inputs):
        raise UserError(
            "is an input, which writing there would destroy",
            location=path,
            hint="give another name for the output",
        )


@contextmanager
def open_output(
    path: str | Path,
    *,
    inputs: Iterable[str | Path] = (),
    append: bool = False,
    executable: bool = False,
) -> Generator[BinaryIO]:
    """A file to write to; it stands under its name when the block ends without an error.

    After an error, an old file is as it was and a new one is not there.

    Args:
        path: where; `-` is standard output.
        inputs: files that must stay as they are.
        append: go on at the end of what is there.
        executable: whoever may read a new file may run it, too.

    Raises: UserError as `check_output`, and when the system refuses (a full disk).
    """
    check_output(path, inputs=inputs)
    if str(path) == STANDARD_OUTPUT:
        yield from _standard_output()
        return
    status = _status(path)
    try:
        with _opened(Path(path), status, append=append, executable=executable) as file:
            yield file
    except OSError as error:
        raise UserError(
            f"cannot write the file: {error.strerror or error}", location=path
        ) from error


def write_text_output(
    path: str | Path, text: str, *, inputs: Iterable[str | Path] = ()
) -> None:
    """Write UTF-8 text.  Raises: UserError as `open_output`."""
    with open_output(path, inputs=inputs) as file:
        file.write(text.encode())


def make_output_folder(path: Path) -> None:
    """Have a folder and those above it.  Raises: UserError when the system refuses."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"cannot make the folder: {error.strerror or error}", location=path
        ) from error


def is_regular_output(path: str | Path) -> bool:
    """Whether `path` is, or becomes, a regular file: whether its suffix says what is in it."""
    if str(path) == STANDARD_OUTPUT:
        return False
    status = _status(path)
    is_regular = status is None or stat.S_ISREG(status.st_mode)
    return is_regular and _descriptor(Path(path)) is None


def _status(path: str | Path) -> os.stat_result | None:
    """What is there, links followed; None for nothing.  Raises: UserError."""
    try:
        return Path(path).stat()
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise UserError("no such folder", location=Path(path).parent) from error
    except OSError as error:
        raise UserError(
            f"cannot write the file: {error.strerror or error}", location=path
        ) from error
    except ValueError as error:  # a zero byte
        raise UserError("is no name of a file", location=repr(str(path))) from error


def _resolved(path: str | Path) -> Path:
    try:
        return Path(path).resolve()
    except (
        FileNotFoundError
    ) as error:  # links may lead to what is not there, as new files do
        raise UserError(
            "no such folder: the current one was removed", location=path
        ) from error
    except (OSError, RuntimeError) as error:  # a loop of links
        raise UserError(f"cannot write the file: {_BROKEN_LINKS}", location=path) from error


def _is_file(source: str | Path, status: os.stat_result) -> bool:
    try:
        return os.path.samestat(Path(source).stat(), status)
    except (OSError, ValueError):  # not there, so nothing that could be lost
        return False


def _opened(
    path: Path, status: os.stat_result | None, *, append: bool, executable: bool
) -> AbstractContextManager[BinaryIO]:
    descriptor = _descriptor(path)
    if descriptor is not None:
        # Opened anew it would be cut to nothing, and begin at its beginning.
        with suppress(AttributeError, ValueError):
            sys.stdout.flush()
        return os.fdopen(os.dup(descriptor), "wb")
    if status is not None and not stat.S_ISREG(status.st_mode):
        return path.open("wb")
    target = _resolved(path)
    if append and status is not None:
        return _appended(target)
    return _replaced(target, status, executable=executable)


def _descriptor(path: Path) -> int | None:
    """The open file of this process that `path` names, as `/dev/stdout` does."""
    for _ in range(_LINK_LIMIT):
        match = _DESCRIPTORS.fullmatch(str(_resolved(path.parent)))
        if match is not None:
            is_ours = int(match[1]) == os.getpid() and path.name.isdecimal()
            return int(path.name) if is_ours else None
        if not path.is_symlink():
            return None
        path = path.parent / path.readlink()
    return None


@contextmanager
def _replaced(
    target: Path, old: os.stat_result | None, *, executable: bool
) -> Generator[BinaryIO]:
    made = target.with_name(f".tilewright-{secrets.token_hex(8)}")
    try:
        with _made(made) as file:
            yield file
        if old is not None:
            if hasattr(os, "chown"):
                with suppress(OSError):  # only root may give files away
                    os.chown(made, old.st_uid, old.st_gid)
            made.chmod(stat.S_IMODE(old.st_mode))
        if executable:
            mode = stat.S_IMODE(made.stat().st_mode)
            made.chmod(mode | (mode & _READABLE) >> 2)
        made.replace(target)
    except BaseException:
        with suppress(OSError):
            made.unlink()
        raise


@contextmanager
def _made(made: Path) -> Generator[BinaryIO]:
    """A new file that stands under its name when the block ends; until then it has none, if possible."""
    unnamed = _unnamed(made.parent)
    if unnamed is None:
        with made.open("x+b") as file:
            yield file
        return
    with unnamed as file:
        yield file
        file.flush()
        try:
            # With a descriptor, which an absolute path does not need, the link in /proc is followed.
            number = file.fileno()
            os.link(f"{_OPEN_FILES}/{number}", made, src_dir_fd=number)
        except OSError:
            file.seek(0)
            with made.open("xb") as named:
                shutil.copyfileobj(file, named)


def _unnamed(folder: Path) -> BinaryIO | None:
    """A file in `folder` that nobody sees and that goes with the process; None where there is no such thing."""
    flag: int = getattr(os, "O_TMPFILE", 0)
    if not flag or not Path(_OPEN_FILES).is_dir():
        return None
    try:
        descriptor = os.open(folder, flag | os.O_RDWR | os.O_CLOEXEC, 0o666)
    except (
        OSError
    ):  # a file system without; what else is wrong shows when a named one is opened
        return None
    return os.fdopen(descriptor, "w+b")


@contextmanager
def _appended(target: Path) -> Generator[BinaryIO]:
    file = target.open("ab")
    size = file.tell()
    try:
        with file:
            yield file
    except BaseException:
        os.truncate(target, size)
        raise


def _standard_output() -> Generator[BinaryIO]:
    """The bytes below `sys.stdout`; whoever reads them may leave at any time."""
    stream = cast("BinaryIO | None", getattr(sys.stdout, "buffer", None))
    if stream is None or sys.stdout.isatty():
        problem = (
            "takes no bytes"
            if stream is None
            else "is a terminal, expected a file or a pipe"
        )
        raise UserError(problem, location="standard output")
    sys.stdout.flush()
    yield stream
    stream.flush()
