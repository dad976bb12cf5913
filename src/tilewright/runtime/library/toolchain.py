"""Compilers and linkers of the system: sources and objects to one file.

What an exported library needs and nothing else in this house does.  A `Toolchain` is one driver in
the manner of `cc`, for one machine: the one that was asked for, that of `$CC`, the system's `cc`, or
Zig's (`pip install tilewright[cross]`), which links for every machine.  Everything it writes is made
in a temporary folder and moved to its place when it is complete.

Not here: what is linked (`export`), and the functions under the names that users of TVM know (`cc`).
"""

from __future__ import annotations

import functools
import importlib.util
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, final

from tilewright.base import knobs
from tilewright.base.errors import UserError
from tilewright.base.host import usable_cores
from tilewright.base.options import path_option, text_option, wrong
from tilewright.base.output_file import check_output, open_output
from tilewright.base.record import record
from tilewright.base.target import Target

_SHOWN_LINES: Final = 20
_SHOWN_COMMAND: Final = 400
_ZIG_SYSTEMS: Final = {"linux": "linux-gnu", "macos": "macos", "windows": "windows-gnu"}
_TRIPLE_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_TRIPLE_SYSTEMS: Final = {
    "darwin": "macos", "apple": "macos", "windows": "windows", "mingw": "windows",
}  # fmt: skip
_LINKER_HINT: Final = "install a C compiler, name one (cc=…, CC, TILEWRIGHT_CC), or: pip install 'tilewright[cross]'"


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

    def compile(
        self, sources: Sequence[str | Path], folder: Path, options: Sequence[str] = ()
    ) -> list[Path]:
        """One position-independent object per source of C or assembly, in `folder`.

        The compiler is started there, so sources and what they include may be named from there.

        Raises: UserError with the command and what it said.
        """
        pic = () if self.os == "windows" else ("-fPIC",)
        made: list[Path] = []
        commands: list[list[str]] = []
        for source in map(Path, sources):
            words = (source.stem,) if source.is_absolute() else source.with_suffix("").parts
            made.append(folder / f"{'_'.join(words)}.o")
            files = ("-o", str(made[-1]), str(source))
            commands.append([*self.command, "-c", "-O2", *pic, *options, *files])
        _call_all(commands, cwd=str(folder))
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
        flags = ["-shared"]
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
        self._make(output, [], inputs, options, cwd=cwd, executable=True)

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
            _call([*self._archiver(), "rcsD", str(made), *map(str, inputs)])

    def _archiver(self) -> list[str]:
        if self.is_zig:
            return [*self.command[: self.command.index("cc")], "ar"]
        found = _output([*self.command, "-print-prog-name=ar"]).strip()
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
        _call([*self.command, *words], cwd=cwd)


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
                    hint=_LINKER_HINT,
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
        raise UserError(f"there is no C compiler for '{name}'", hint=_LINKER_HINT)
    triple = f"{machine.arch}-{_ZIG_SYSTEMS[machine.os]}"
    # -P: whatever lies in the current folder is no module of Python.
    command = (sys.executable, "-P", "-m", "ziglang", "cc", "-target", triple)
    return Toolchain(command=command, arch=machine.arch, os=machine.os)


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
    return _TRIPLE_ARCHITECTURES.get(arch, arch), system


@functools.cache
def target_triple(words: tuple[str, ...]) -> str:
    """What a driver says that it makes code for (`x86_64-linux-gnu`); empty where it says nothing."""
    return _output([*words, "-dumpmachine"]).strip()


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


def _call(command: Sequence[str], *, cwd: str | None = None) -> None:
    """Run a command to its end.  Raises: UserError with the command and its last lines."""
    _call_all([command], cwd=cwd)


def _call_all(commands: Sequence[Sequence[str]], *, cwd: str | None = None) -> None:
    """Run commands, as many at a time as there are cores.

    Raises: UserError as `_call`, for the first of them that fails; the others are ended.
    """
    waiting = list(reversed(commands))
    running: list[tuple[Sequence[str], subprocess.Popen[str], IO[str]]] = []
    try:
        while waiting or running:
            while waiting and len(running) < usable_cores():
                running.append(_start(waiting.pop(), cwd))
            command, process, said = running.pop(0)
            try:
                status = process.wait()
            except BaseException:
                running.append((command, process, said))
                raise
            with said:
                said.seek(0)
                if status:
                    raise _failure(command, status, said.read())
    finally:
        for _, process, said in running:
            process.kill()
            process.wait()
            said.close()


def _start(
    command: Sequence[str], cwd: str | None
) -> tuple[Sequence[str], subprocess.Popen[str], IO[str]]:
    """A command that runs, and the file that gets what it says."""
    said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - whoever waits closes it
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=cwd,
        )
    except OSError as error:
        said.close()
        raise UserError(
            f"cannot run '{command[0]}': {error.strerror or error}", hint=_LINKER_HINT
        ) from error
    return command, process, said


def _failure(command: Sequence[str], status: int, said: str) -> UserError:
    text = shlex.join(command)
    if len(text) > _SHOWN_COMMAND:
        text = f"{text[: _SHOWN_COMMAND // 2]} … {text[-_SHOWN_COMMAND // 2 :]}"
    lines = said.strip().splitlines()
    shown = (
        "\n".join(f"  {line}" for line in lines[-_SHOWN_LINES:]) or "  (it said nothing)"
    )
    how = f"with status {status}" if status > 0 else f"by signal {-status}"
    return UserError(f"'{command[0]}' ended {how}:\n{shown}\n  command: {text}")


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
                hint=_LINKER_HINT,
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
    try:
        temporary = tempfile.TemporaryDirectory(prefix="tilewright-")
    except OSError as error:
        raise UserError(f"cannot make a temporary folder: {error.strerror}") from error
    with temporary as name:
        yield Path(name)
