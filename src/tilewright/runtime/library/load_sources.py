"""Sources as they are loaded: a file of C, assembly or LLVM IR to objects that a linker takes.

    .c, with `<stem>.library` beside it     what `export_library("net.c")` writes: all of both is compiled
    .c alone, .s, .ll                       one unit, which must have packed functions

Everything is copied to a working folder first and compiled there, so nothing is written beside the user's files.
Not here: which file is a source, linking and loading (`load`); how exports write them (`export_sources`).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tilewright.base.c_compiler.toolchain import (
    TRIPLE_ARCHITECTURES,
    Toolchain,
    find_ir_toolchain,
    find_toolchain,
)
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import ArchiveError, UserError
from tilewright.base.host import architecture
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.runtime.packed.ffi import tvm_ffi

_TOOLCHAINS: Final[Mapping[str, Callable[[], Toolchain]]] = {
    ".c": find_toolchain, ".s": find_toolchain, ".ll": find_ir_toolchain,
}  # fmt: skip
SOURCES: Final = tuple(_TOOLCHAINS)

_FUNCTION: Final = b"__tvm_ffi_"
_UNITS: Final = (".c", ".S", ".s")
_EXPORT_FLAGS: Final = (
    "-I.", "-std=c11", "-fvisibility=hidden", "-fno-strict-aliasing", "-D_GNU_SOURCE",
    # Kernels: the bits that machine code of ours computes, and no calls for roots.
    "-ffp-contract=off", "-fno-math-errno", "-Wno-psabi",
)  # fmt: skip
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")
"""A name that no compiler takes for an option or a list of options."""
_IR_MACHINE: Final = re.compile(rb'^target triple = "([A-Za-z0-9_]+)', re.MULTILINE)
EXPORT_INSTEAD: Final = (
    "export the model as .so to load it (.o, .a, .tar and .c are linked first)"
)


def is_source(data: Buffer, location: str) -> bool:
    """Whether a file is called as a source, and is text."""
    begin = bytes(view_bytes(data)[:512])
    return Path(location).suffix.lower() in SOURCES and begin != b"" and b"\0" not in begin


def compile_sources(
    data: Buffer, location: str, folder: Path, *, is_signed: bool
) -> list[Path]:
    """The objects of a source, and of the folder that its export wrote beside it.

    Args:
        data: the source.
        location: its file, as the user calls it.
        folder: an empty one, where everything is made.
        is_signed: whether the user asked for a signature, which `data` has: then the folder, which has
            none, is not taken.

    Raises: ArchiveError for a source without functions or for another machine, and for a folder with
    anything but plain files; UserError when it cannot be compiled, with what the compiler said.
    """
    path = Path(location)
    suffix = path.suffix.lower()
    source = folder / f"source{suffix}"
    source.write_bytes(bytes(view_bytes(data)))
    beside = path.with_name(f"{path.stem}.library")
    is_export = suffix == ".c" and os.path.lexists(beside)
    if is_export:
        if is_signed:
            raise ArchiveError(
                f"needs the folder '{beside.name}', which the signature does not cover",
                location=location,
                hint="export, sign and load a library in one file: .so",
            )
        _copy_folder(beside, folder / beside.name)
    else:
        _check_alone(bytes(view_bytes(data)), suffix, location)
    try:
        if is_export:
            return _compile_export(source, folder / beside.name)
        include = tuple(f"-I{path}" for path in tvm_ffi.libinfo.include_paths())
        words = include if suffix == ".c" else ()
        return _TOOLCHAINS[suffix]().compile([source], folder, words)
    except UserError as error:
        raise UserError(
            f"cannot be compiled: {error.message}", location=location, hint=error.hint
        ) from error


def _check_alone(text: bytes, suffix: str, location: str) -> None:
    if _FUNCTION not in text:
        problem = (
            "has no packed function (__tvm_ffi_<name>), and no folder "
            f"'{Path(location).stem}.library' lies beside it"
            if suffix == ".c"
            else "holds kernels without the host side that calls them: "
            "it has no packed function (__tvm_ffi_<name>)"
        )
        raise ArchiveError(problem, location=location, hint=EXPORT_INSTEAD)
    machine = _IR_MACHINE.search(text) if suffix == ".ll" else None
    if machine is None:
        return
    name = machine[1].decode()
    if TRIPLE_ARCHITECTURES.get(name, name) != architecture():
        raise ArchiveError(
            f"is LLVM IR for {name}, this machine is {architecture()}",
            location=location,
            hint="write it for this machine, or load it there",
        )


def _compile_export(source: Path, beside: Path) -> list[Path]:
    """The source, the units in its folder and one below, and the objects of its kernels."""
    toolchain, cache = find_toolchain(), CompilationCache.default()
    names = [name for name, _ in _plain_files(beside)]
    units = [f"./{name}" for name in names if Path(name).suffix in _UNITS]
    objects = [beside / name for name in names if Path(name).suffix == ".o"]
    return [
        *toolchain.compile([source], source.parent, _EXPORT_FLAGS, cache=cache),
        *toolchain.compile(units, beside, _EXPORT_FLAGS, cache=cache),
        *objects,
    ]


# --- the folder beside a source -----------------------------------------------------------------


def _copy_folder(source: Path, to: Path) -> None:
    if source.is_symlink() or not source.is_dir():
        raise ArchiveError(
            "is no folder, expected that of the source beside it", location=source
        )
    try:
        for name, file in _plain_files(source):
            made = to / name
            made.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(file, made)
    except OSError as error:
        if error.filename is None or not str(error.filename).startswith(str(source)):
            raise
        raise ArchiveError(
            f"cannot be read: {error.strerror or error}", location=error.filename
        ) from error


def _plain_files(folder: Path) -> Sequence[tuple[str, Path]]:
    """Names below a folder and in its folders, in order, with their files.

    Raises: ArchiveError for what is neither, or has a name that a compiler may misread.
    """
    return sorted(_walk(folder, "", depth=1))


def _walk(folder: Path, prefix: str, depth: int) -> Generator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            path = folder / entry.name
            if _PLAIN_NAME.fullmatch(entry.name) is None:
                raise _wrong_entry(path, "has a name that no export writes")
            if entry.is_file(follow_symlinks=False):
                yield f"{prefix}{entry.name}", path
            elif depth and entry.is_dir(follow_symlinks=False):
                yield from _walk(path, f"{prefix}{entry.name}/", depth - 1)
            else:
                raise _wrong_entry(path, "is no plain file")


def _copy_file(source: Path, to: Path) -> None:
    """Copy a file that is still a plain one when it is opened; nothing else is waited for."""
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    descriptor = os.open(source, flags)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _wrong_entry(source, "is no plain file")
        with to.open("xb") as made:
            shutil.copyfileobj(file, made, 1 << 20)


def _wrong_entry(path: Path, problem: str) -> ArchiveError:
    return ArchiveError(
        problem,
        location=ascii(str(path))[1:-1],
        hint="the folder of a source holds what its export wrote: export it again",
    )
