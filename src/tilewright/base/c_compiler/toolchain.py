"""Compilers and linkers of the system: sources and objects to one file.

What exported libraries and kernels in C need, and nothing else in this house.  A `Toolchain` is one driver in
the manner of `cc`, for one machine: the one that was asked for, that of `$CC`, the system's `cc`, or
Zig's (`pip install tilewright[cross]`), which links for every machine.  Everything it writes is made
in a temporary folder and moved to its place when it is complete.

Not here: what is linked (`runtime.library.export`), how commands are run (`commands`), and the functions under the names
that users of TVM know (`runtime.library.cc`).
"""

from __future__ import annotations

import errno
import functools
import importlib.util
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from tilewright.base import knobs
from tilewright.base.c_compiler.commands import (
    COMPILER_HINT,
    TEMPORARY,
    output_of,
    run,
    run_all,
)
from tilewright.base.c_compiler.object_store import ObjectStore, Step
from tilewright.base.compilation_cache import CompilationCache
from tilewright.base.errors import UserError
from tilewright.base.host_thread import NO_FILES
from tilewright.base.options import path_option, text_option, wrong
from tilewright.base.output_file import check_output, open_output
from tilewright.base.record import record
from tilewright.base.target import Target

_IR_SINCE: Final = 15
"""The first version of clang whose pointers have one type in LLVM IR."""
_ZIG_SYSTEMS: Final = {"linux": "linux-gnu", "macos": "macos", "windows": "windows-gnu"}
TRIPLE_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""What triples call an architecture, where that is not its name in a `Target`."""
_TRIPLE_SYSTEMS: Final = {
    "darwin": "macos", "apple": "macos", "windows": "windows", "mingw": "windows",
}  # fmt: skip


@final
@record(kw_only=True)
class Toolchain:
    """A driver in the manner of `cc` that makes code for `arch` and `os`.

    Attributes:
        command: the words it is called with.
        arch, os: as in a `Target`.
    """

    command: tuple[str, ...]
    arch: str
    os: str

    @property
    def is_zig(self) -> bool:
        """Whether it is the driver in Zig."""
        return "ziglang" in self.command or Path(self.command[0]).stem == "zig"

    @property
    def _optimized(self) -> tuple[str, ...]:
        """What is said of optimization where files are linked.

        Without a word Zig links what its sanitizers call, and compiles that first: most of a minute of a processor.
        """
        return ("-O2",) if self.is_zig else ()

    def compile(
        self,
        sources: Sequence[str | Path],
        folder: Path,
        options: Sequence[str] = (),
        *,
        cache: CompilationCache | None = None,
    ) -> list[Path]:
        """One position-independent object per source of C or assembly, in `folder`.

        The compiler is started there, so sources and what they include may be named from there.  With a
        `cache`, objects of C that it has are taken from there, and others are kept.

        Raises: UserError with the command and what it said.
        """
        pic = () if self.os == "windows" else ("-fPIC",)
        # Zig adds what debuggers read unasked: four fifths of a small library, and the names of our folders.
        plain = ("-g0",) if self.is_zig else ()
        made: list[Path] = []
        for source in map(Path, sources):
            name = (source.stem,) if source.is_absolute() else source.with_suffix("").parts
            made.append(folder / f"{'_'.join(name)}.o")
        words = ["-O2", *pic, *plain, *options]
        steps = [
            Step(str(source), path) for source, path in zip(sources, made, strict=True)
        ]
        store = None
        if cache is not None and not self.is_zig:
            store = ObjectStore(cache, self.command, words, folder)
            steps = store.take(steps)
        commands = [
            [*self.command, "-c", *words, "-o", str(step.made), step.source]
            for step in steps
        ]
        run_all(commands, cwd=str(folder))
        if store is not None:
            store.keep(steps)
        return made

    def link_shared(
        self,
        output: str | Path,
        inputs: Sequence[str | Path],
        options: Sequence[str] = (),
        *,
        cwd: str | None = None,
    ) -> None:
        """A shared library of objects, sources and archives.

        Raises: UserError as `compile`, and when the file cannot be written.
        """
        flags = ["-shared", *self._optimized]
        if self.os != "windows":
            flags.append("-fPIC")
        if self.os == "macos":
            # Names of tvm-ffi are looked up in the process that loads the library.
            flags += ["-undefined", "dynamic_lookup"]
            flags.append(f"-Wl,-install_name,@rpath/{Path(output).name}")
        self._make(output, flags, inputs, options, cwd=cwd, executable=True)

    def link_executable(
        self,
        output: str | Path,
        inputs: Sequence[str | Path],
        options: Sequence[str] = (),
        *,
        cwd: str | None = None,
    ) -> None:
        """A program.  Raises: UserError as `link_shared`."""
        flags = self._optimized
        self._make(output, flags, inputs, options, cwd=cwd, executable=True)

    def merge(self, output: str | Path, inputs: Sequence[str | Path]) -> None:
        """One relocatable object of several.  Raises: UserError as `link_shared`."""
        if self.os == "windows":
            raise UserError(
                "objects for Windows cannot be joined into one",
                location=output,
                hint="write an archive: .a",
            )
        self._make(output, ["-r", "-nostdlib"], inputs, ())

    def archive(self, output: str | Path, inputs: Sequence[str | Path]) -> None:
        """A static library.  Raises: UserError as `link_shared`."""
        with _made(output) as made:
            run([*self._archiver(), "rcsD", str(made), *map(str, inputs)])

    def _archiver(self) -> list[str]:
        if self.is_zig:
            return [*self.command[: self.command.index("cc")], "ar"]
        found = output_of([*self.command, "-print-prog-name=ar"]).strip()
        return [found or "ar"]

    def _make(
        self,
        output: str | Path,
        flags: Sequence[str],
        inputs: Sequence[str | Path],
        options: Sequence[str],
        *,
        cwd: str | None = None,
        executable: bool = False,
    ) -> None:
        with _made(output, executable=executable) as made:
            words = [*flags, "-o", str(made), *map(str, inputs), *options]
            self._run(*words, cwd=cwd)

    def _run(self, *words: str, cwd: str | None = None) -> None:
        run([*self.command, *words], cwd=cwd)


def find_toolchain(target: Target | None = None, *, cc: str | None = None) -> Toolchain:
    """The driver for a machine.

    Args:
        target: the machine; default: this one.
        cc: the driver, taken as it is; default: `TILEWRIGHT_CC`, `CC` or `cc` where that makes code
            for the machine, else Zig's.

    Raises: UserError when there is none, with a hint how to get one.
    """
    machine = Target.host() if target is None else target
    if cc is not None:
        if not (words := _words(cc)):
            raise wrong("cc", cc, "the words that call a compiler")
        return Toolchain(command=words, arch=machine.arch, os=machine.os)
    named = _words(knobs.CC.get())
    for words in filter(None, (named, ("cc",), ("gcc",), ("clang",))):
        if shutil.which(words[0]) is None:
            if words == named:
                raise UserError(
                    f"there is no compiler '{words[0]}'",
                    location=knobs.CC.variable if knobs.CC.is_set else "CC",
                    hint=COMPILER_HINT,
                )
            continue
        # A compiler that was named and does not say for which machine it is was meant for this one.
        is_silent = words == named and _machine_of(words) is None
        if _makes_code_for(words, machine) or (is_silent and _is_host(machine)):
            return Toolchain(command=words, arch=machine.arch, os=machine.os)
    return _zig(machine)


def _zig(machine: Target) -> Toolchain:
    if importlib.util.find_spec("ziglang") is None:
        name = machine.arch if machine.os == "linux" else f"{machine.arch}-{machine.os}"
        raise UserError(f"there is no C compiler for '{name}'", hint=COMPILER_HINT)
    triple = f"{machine.arch}-{_ZIG_SYSTEMS[machine.os]}"
    # -P: whatever lies in the current folder is no module of Python.
    command = (sys.executable, "-P", "-m", "ziglang", "cc", "-target", triple)
    return Toolchain(command=command, arch=machine.arch, os=machine.os)


def find_ir_toolchain() -> Toolchain:
    """A driver for this machine that takes LLVM IR, too: that of `find_toolchain`, clang, or Zig's.

    Raises: UserError when there is none, with a hint how to get one.
    """
    machine = Target.host()
    try:
        default = find_toolchain()
    except UserError:
        default = None
    if default is not None and (default.is_zig or _takes_ir(default.command)):
        return default
    clang = ("clang",)
    is_there = shutil.which(clang[0]) is not None
    if is_there and _makes_code_for(clang, machine) and _takes_ir(clang):
        return Toolchain(command=clang, arch=machine.arch, os=machine.os)
    if importlib.util.find_spec("ziglang") is None:
        raise UserError(
            "there is no compiler that takes LLVM IR",
            hint=f"install clang {_IR_SINCE} or later, or: pip install 'tilewright[cross]'",
        )
    return _zig(machine)


def _takes_ir(words: tuple[str, ...]) -> bool:
    """Whether a compiler is a clang that reads LLVM IR as it is written today, with pointers of one type."""
    version = re.search(r"\bclang version (\d+)", output_of([*words, "--version"]))
    return version is not None and int(version[1]) >= _IR_SINCE


def named_toolchain(cc: str) -> Toolchain:
    """The driver that is called by these words, for the machine that it says itself."""
    words = _words(cc)
    arch, system = _machine_of(words) or (Target.host().arch, Target.host().os)
    return Toolchain(command=words, arch=arch, os=system)


def _words(cc: str) -> tuple[str, ...]:
    expected = "the words that call a compiler"
    try:
        return tuple(shlex.split(text_option("cc", cc, expected)))
    except ValueError as error:
        raise wrong("cc", cc, expected) from error


def _makes_code_for(words: tuple[str, ...], machine: Target) -> bool:
    return _machine_of(words) == (machine.arch, machine.os)


def _is_host(machine: Target) -> bool:
    host = Target.host()
    return (machine.arch, machine.os) == (host.arch, host.os)


def _machine_of(words: tuple[str, ...]) -> tuple[str, str] | None:
    """Architecture and system that a driver makes code for; None where it does not say."""
    arch, _, rest = target_triple(words).partition("-")
    if not rest:
        return None
    system = next((os for word, os in _TRIPLE_SYSTEMS.items() if word in rest), "linux")
    return TRIPLE_ARCHITECTURES.get(arch, arch), system


@functools.cache
def target_triple(words: tuple[str, ...]) -> str:
    """What a driver says that it makes code for (`x86_64-linux-gnu`); empty where it says nothing."""
    return output_of([*words, "-dumpmachine"]).strip()


@contextmanager
def _made(output: str | Path, *, executable: bool = False) -> Generator[Path]:
    """A place to write `output` to, which is moved there when the block ends without an error."""
    path = Path(path_option("path", output))
    check_output(path)
    with working_folder() as folder:
        made = folder / (path.name or "output")
        yield made
        if not made.is_file():
            raise UserError(
                "the compiler ended without an error and wrote no file",
                location=path,
                hint=COMPILER_HINT,
            )
        with made.open("rb") as source, open_output(path, executable=executable) as file:
            shutil.copyfileobj(source, file, 1 << 20)


@contextmanager
def working_folder(path: str | Path | None = None) -> Generator[Path]:
    """A folder for what is made on the way: a temporary one that goes away, or the user's.

    Raises: UserError when there is no such folder, or none can be made.
    """
    if path is not None:
        folder = Path(path_option("workspace_dir", path))
        if not folder.is_dir():
            raise UserError("no such folder", location=folder)
        yield folder
        return
    with temporary_files(), tempfile.TemporaryDirectory(prefix=TEMPORARY) as name:
        yield Path(name)


_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@contextmanager
def temporary_files() -> Generator[None]:
    """Say of errors where temporary files lie and how they get another place.

    Raises: UserError for a place that is full or takes no files.
    """
    try:
        yield
    except OSError as error:
        place = tempfile.gettempdir() if tempfile.tempdir else None
        is_ours = place is None or str(error.filename).startswith(f"{place}/{TEMPORARY}")
        if error.errno in NO_FILES or (error.errno not in _NO_ROOM and not is_ours):
            raise
        raise UserError(
            f"cannot write temporary files: {error.strerror or error}",
            location=place,
            hint="name a folder with room: TMPDIR",
        ) from error
