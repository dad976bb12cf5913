"""The kernels of a model as a module: kind `llvm`.

What whoever compiled them knows (objects for a linker, LLVM IR, assembly, loops) is handed in as functions,
because the runtime knows no compiler.  Made by `api.build`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

from tilewright.base.errors import InputError
from tilewright.base.output_file import write_text_output
from tilewright.base.record import record
from tilewright.base.target import Target
from tilewright.base.text import did_you_mean
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.runtime.library.toolchain import find_toolchain, working_folder
from tilewright.runtime.packed.module import Module, ModuleProperties

_OBJECT: Final = "o"
_SPELLINGS: Final = {"": "ll", "asm": "s"}


@final
@record(kw_only=True)
class Code:
    """What a compiler knows of a model's kernels.

    Attributes:
        target: the machine; of several levels the first.
        objects: relocatable objects by file name, for the linker of the target's system.
        text: all kernels in one of `text_formats`.
        text_formats: `ll` LLVM IR, `s` assembly, `kernel` loops.
    """

    target: Target
    objects: Callable[[], Mapping[str, Buffer]]
    text: Callable[[str], str]
    text_formats: tuple[str, ...] = ("ll", "s", "kernel")


@final
class CodeModule(Module):
    """The kernels of a model.

    Args:
        code: what its compiler knows of them; None for code that was loaded.
    """

    kind = "llvm"
    properties = ModuleProperties.COMPILATION_EXPORTABLE

    def __init__(self, code: Code | None) -> None:
        super().__init__()
        self._code: Code | None = code

    def get_write_formats(self) -> Sequence[str]:
        if self._code is None:
            return ()
        return (_OBJECT, *(fmt for fmt in self._code.text_formats if fmt in ("ll", "s")))

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        """Write one relocatable object, LLVM IR or assembly.

        Raises: InputError for another format; UserError when there is no linker to join objects.
        """
        known = self.get_write_formats()
        chosen = fmt or Path(file_name).suffix[1:] or _OBJECT
        if chosen not in known:
            raise InputError(
                f"kernels are not written as '{chosen}'",
                location=str(file_name),
                hint=did_you_mean(chosen, known) or f"formats: {' '.join(known) or 'none'}",
            )
        if chosen == _OBJECT:
            self._write_object(file_name)
        else:
            write_text_output(file_name, self.inspect_source(chosen))

    def _write_object(self, file_name: str | Path) -> None:
        assert self._code is not None, "only such code has formats"
        with working_folder() as folder:
            files: list[Path] = []
            for name, data in self._code.objects().items():
                files.append(folder / name)
                files[-1].write_bytes(view_bytes(data))
            find_toolchain(self._code.target).merge(file_name, files)

    def inspect_source(self, fmt: str = "") -> str:
        """All kernels as `ll` (LLVM IR), `s` or `asm` (assembly), or `kernel` (loops).

        Raises: InputError for another format, or for kernels that were loaded.
        """
        chosen = _SPELLINGS.get(fmt, fmt)
        known = () if self._code is None else self._code.text_formats
        if self._code is None or chosen not in known:
            raise InputError(
                f"kernels have no text '{chosen}'",
                hint=did_you_mean(chosen, known) or f"texts: {' '.join(known) or 'none'}",
            )
        return self._code.text(chosen)
