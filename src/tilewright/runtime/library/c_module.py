"""Sources of C as a module: kind `c`.

The functions are packed functions written in C: `int __tvm_ffi_<name>(void* self, const TVMFFIAny* args, int32_t
count, TVMFFIAny* result)`.  To be called, the source is compiled and linked in a folder of its own; to be
exported, it goes to the linker of the library; as bytes it travels as text.

Source: TVM's `CSourceModule`, `src/target/source/source_module.cc`; the calling convention is tvm-ffi's.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast, final

from tilewright.base.c_compiler.toolchain import find_toolchain, working_folder
from tilewright.base.errors import ArchiveError, InputError
from tilewright.base.fork_locks import Rank, fork_lock
from tilewright.base.json_text import read_json, what_is_wrong
from tilewright.base.output_file import write_text_output
from tilewright.runtime.packed.ffi import tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction
from tilewright.runtime.packed.genuine import as_module
from tilewright.runtime.packed.module import Module, ModuleProperties

_SYMBOL: Final = "__tvm_ffi_{}"
_FORMATS: Final = ("c", "o")


@final
class CSourceModule(Module):
    """Packed functions in C.

    Args:
        source: the text; `tvm/ffi/c_api.h` and `dlpack/dlpack.h` are on its path.
        function_names: the functions in it.
        options: further words for the compiler.
    """

    kind = "c"
    properties = (
        ModuleProperties.BINARY_SERIALIZABLE
        | ModuleProperties.RUNNABLE
        | ModuleProperties.COMPILATION_EXPORTABLE
    )

    def __init__(
        self, source: str, function_names: Sequence[str], options: Sequence[str] = ()
    ) -> None:
        super().__init__()
        missing = [n for n in function_names if _SYMBOL.format(n) not in source]
        if missing:
            raise InputError(
                f"the source does not define '{_SYMBOL.format(missing[0])}'",
                location=f"module of kind '{self.kind}'",
            )
        self._source: str = source
        self._names: tuple[str, ...] = tuple(function_names)
        self._options: tuple[str, ...] = tuple(options)
        self._lock: threading.RLock = fork_lock(Rank.IMPORT)
        self._library: Module | None = None

    def find_function(self, name: str) -> PackedFunction | None:
        """The function, compiled at the first look.  Raises: UserError with what the compiler said."""
        if name not in self._names:
            return None
        with self._lock:
            if self._library is None:
                self._library = self._compiled()
        return self._library.get_function(name)

    def function_names(self) -> Sequence[str]:
        return self._names

    def get_write_formats(self) -> Sequence[str]:
        return _FORMATS

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        """Write the source (`c`) or an object (`o`).

        Raises: InputError for another format; UserError as the compiler.
        """
        chosen = fmt or Path(file_name).suffix[1:] or _FORMATS[0]
        if chosen not in _FORMATS:
            raise InputError(
                f"sources of C are not written as '{chosen}'",
                location=str(file_name),
                hint=f"formats: {' '.join(_FORMATS)}",
            )
        if chosen == "c":
            write_text_output(file_name, self._source)
            return
        with working_folder() as folder:
            toolchain = find_toolchain()
            toolchain.merge(
                file_name, toolchain.compile(self._written(folder), folder, self._words)
            )

    def inspect_source(self, fmt: str = "") -> str:
        """The source."""
        return self._source if fmt in ("", "c") else ""

    def save_to_bytes(self) -> bytes:
        members = {
            "source": self._source,
            "functions": list(self._names),
            "options": list(self._options),
        }
        return json.dumps(members, sort_keys=True).encode()

    @property
    def _words(self) -> tuple[str, ...]:
        paths = tvm_ffi.libinfo.include_paths()
        return (*(f"-I{path}" for path in paths), *self._options)

    def _written(self, folder: Path) -> list[Path]:
        path = folder / "module.c"
        path.write_text(self._source, encoding="utf-8")
        return [path]

    def _compiled(self) -> Module:
        with working_folder() as folder:
            toolchain = find_toolchain()
            objects = toolchain.compile(self._written(folder), folder, self._words)
            library = folder / "module.so"
            toolchain.link_shared(library, objects)
            # The file may go once it is mapped.
            return as_module(tvm_ffi.load_module(str(library)))


def load_c_module(data: bytes) -> CSourceModule:
    """The module of the bytes that `save_to_bytes` gave; nothing is compiled yet.

    Raises: ArchiveError for other bytes.
    """
    try:
        members = cast("dict[str, object]", read_json(data))
        source, names, options = (members[k] for k in ("source", "functions", "options"))
        if not isinstance(source, str) or not _are_texts(names) or not _are_texts(options):
            raise TypeError
        return CSourceModule(source, cast("list[str]", names), cast("list[str]", options))
    except (ValueError, KeyError, TypeError, RecursionError, InputError) as error:
        raise ArchiveError(
            f"malformed module of kind 'c': {what_is_wrong(error)}"
        ) from error


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(v, str) for v in cast("list[object]", values)
    )
