"""The module tree: what has functions by name, imports others, and can be written down.

What it is: the base class of every kind, ours and users'.  A kind overrides what it has: `find_function`
and `function_names` to be run, `save_to_bytes` to go into a library as bytes, `write_to_file` to be
compiled and linked into one.  What a kind can do stands in `properties`.
What it is not: a registry of kinds (`module_kinds`) or tvm-ffi's own modules (`genuine`).

Source: the names and the meaning of the properties are those of tvm-ffi 0.1.15, `ffi.Module`.
"""

from __future__ import annotations

import enum
import importlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from tilewright.base.errors import InputError
from tilewright.base.options import text_option, wrong
from tilewright.base.text import did_you_mean
from tilewright.runtime.packed.ffi import opaque, tvm_ffi
from tilewright.runtime.packed.functions import PackedFunction, get_global_func
from tilewright.runtime.packed.kernel_function import RecordableKernel
from tilewright.runtime.packed.time_evaluator import BenchmarkResult, TimeEvaluator

_NAMES_SHOWN = 12


class ModuleProperties(enum.IntFlag):
    """What a kind of module can do; the bits are tvm-ffi's."""

    BINARY_SERIALIZABLE = 1
    """`save_to_bytes` gives bytes that the loader of its kind makes the same module of."""
    RUNNABLE = 2
    """`get_function` gives functions that can be called."""
    COMPILATION_EXPORTABLE = 4
    """`write_to_file` writes an object or source that is linked into a library."""


class Module:
    """A module: functions by name, and the modules it imports.

    A kind is a subclass that sets `kind` and `properties` and overrides what they promise.  Given to a
    packed function, a module arrives as itself.

    Thread-safety: reading is; a tree is built by one thread.
    """

    kind: str = ""
    properties: ModuleProperties = ModuleProperties.RUNNABLE
    entry_name: ClassVar[str] = "main"

    def __init__(self) -> None:
        self._imports: list[Module] = []

    # --- what a kind overrides

    def find_function(self, name: str) -> PackedFunction | None:
        """The function of this very module, imports left aside; None when it has none of the name."""
        del name
        return None

    def find_kernel(self, name: str) -> RecordableKernel | None:
        """The kernel of the name, for those who record it into a list of their own; None: no kernel.

        A module that has kernels offers them as packed functions as well.
        """
        del name
        return None

    def function_names(self) -> Sequence[str]:
        """All functions of this very module, for messages and for compiled code that imports it."""
        return ()

    def get_write_formats(self) -> Sequence[str]:
        """What `write_to_file` can write, the default first: `o`, `c`, ..."""
        return ()

    def write_to_file(self, file_name: str | Path, fmt: str = "") -> None:
        """Write what a linker or compiler takes.

        Args:
            file_name: where to.
            fmt: one of `get_write_formats()`; empty: by the suffix, else the first.
        Raises: InputError for a kind or a format that cannot be written.
        """
        del fmt
        raise InputError(
            f"a module of kind '{self.kind}' cannot be written for a linker",
            location=str(file_name),
        )

    def save_to_bytes(self) -> bytes:
        """What the loader of this kind makes the same module of.

        Raises: InputError for a kind that has no bytes.
        """
        raise InputError(f"a module of kind '{self.kind}' cannot be saved as bytes")

    def inspect_source(self, fmt: str = "") -> str:
        """Text to look at (`ll`, `asm`, `json`, ...); empty when there is none."""
        del fmt
        return ""

    def export_library(
        self,
        file_name: str | Path,
        fcompile: Callable[..., Any] | None = None,
        addons: Sequence[str] | None = None,
        workspace_dir: str | Path | None = None,
        fpack_imports: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Write this module and all that it imports as one file; the suffix says what it becomes.

        `.so` `.dylib` `.dll` `.o` `.a` `.tar` (objects, linked at load) `.c` (sources, and the kernels as
        objects) `.ll` `.s` (the kernels) `.vmfb`, or a program (no suffix, or `.exe`).

        Args:
            file_name: the file; it appears when it is complete.
            fcompile: links instead: `fcompile(file, objects, **kwargs)`; `runtime.library.cc` makes such
                functions.  Its attribute `object_format` (`o`, `obj`) says how objects are called,
                `need_system_lib` that it makes nothing but system libraries.
            addons: further objects, sources and archives.
            workspace_dir: a folder for what is made on the way, which stays there; default: a
                temporary one.
            fpack_imports: packs the modules that no linker takes, instead of a blob:
                `fpack_imports(module, is_system_lib, c_symbol_prefix, folder)` gives the name of an
                object or a source.
            kwargs: `name`, what the names of the C interface begin with (default: the file's);
                `header`, a file for it; `weights`, a file for the weights; `cc`, the compiler;
                `options`, further words for it; `kernel_functions=True`, a packed function for each
                kernel of a model, too (that of kernels alone has them always); `system_lib=True`, enter
                the functions into tvm-ffi's table when the program starts (`tvm_ffi.system_lib`), under
                names that begin with `c_symbol_prefix`.  With `fcompile` what is no such word is its own.

        Returns: what `fcompile` returns, else None.
        Raises: UserError for a suffix that nothing has, an option that the form has no use for, for what
            cannot be linked, and when there is no compiler or it fails.
        """
        # By name: exports stand above all kinds of modules, and few processes need one.
        exports = importlib.import_module("tilewright.runtime.library.export")
        return exports.export_library(
            self,
            file_name,
            fcompile=fcompile,
            addons=addons,
            workspace_dir=workspace_dir,
            fpack_imports=fpack_imports,
            **kwargs,
        )

    # --- functions

    def get_function(self, name: str, query_imports: bool = False) -> PackedFunction | None:
        """The function `name`, or None.

        Args:
            name: of the function.
            query_imports: look into the imported modules, too, depth first.
        """
        for module in self.walk() if query_imports else (self,):
            found = module.find_function(name)
            if found is not None:
                return found
        return None

    def get_kernel(self, name: str) -> RecordableKernel | None:
        """The kernel `name` of this module or of one that it imports, depth first; None: nobody has it.

        A function of the name that comes first hides it.
        """
        for module in self.walk():
            kernel = module.find_kernel(name)
            if kernel is not None or module.find_function(name) is not None:
                return kernel
        return None

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether `get_function` finds one."""
        return self.get_function(name, query_imports) is not None

    def __getitem__(self, name: str) -> PackedFunction:
        """The function `name` of this very module.

        Raises: InputError with the functions there are.
        """
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"got {type(name).__name__}, expected the name of a function")
        found = self.get_function(name)
        if found is None:
            raise InputError(
                f"a module of kind '{self.kind}' has no function '{name}'",
                hint=self._what_there_is(name),
            )
        return found

    def __getattr__(self, name: str) -> PackedFunction:
        """`module.add` is `module["add"]`."""
        found = None if name.startswith("_") else self.get_function(name)
        if found is None:
            raise AttributeError(f"'{type(self).__name__}' has no attribute '{name}'")
        return found

    def __call__(self, *args: Any) -> Any:
        """Call the entry function, `main`."""
        return self[self.entry_name](*args)

    def time_evaluator(  # noqa: PLR0913 - TVM's parameters
        self,
        func_name: str,
        dev: object = None,
        number: int = 10,
        repeat: int = 1,
        min_repeat_ms: float = 0,
        limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        cache_flush_bytes: int = 0,
        f_preproc: str | Callable[..., object] = "",
    ) -> Callable[..., BenchmarkResult]:
        """What measures a function: call it with the function's arguments.

        Args:
            func_name: the function.
            dev: for TVM's sake; the function runs where it runs.
            number: calls of a repeat, whose mean is one result.
            repeat: how many results there are.
            min_repeat_ms: how long a repeat lasts at least; it gets more calls until it does.
            limit_zero_time_iterations: repeats in which no time passed at all, after which it gets no more.
            cooldown_interval_ms: how long to rest.
            repeats_to_cooldown: after how many repeats.
            cache_flush_bytes: bytes that are written before each repeat.
            f_preproc: a function, or the name of a global one, that is called before each repeat.

        Returns: a callable that returns a `BenchmarkResult`: seconds, and a table as text.
        Raises: InputError for a function that there is not; UserError for an option that makes no sense.
        """
        del dev
        if isinstance(f_preproc, str):
            preprocess = get_global_func(f_preproc) if f_preproc else None
        elif callable(f_preproc):
            preprocess = f_preproc
        else:
            raise wrong("f_preproc", f_preproc, "a function or the name of a global one")
        return TimeEvaluator(
            self[text_option("func_name", func_name, "the name of a function")],
            number=number,
            repeat=repeat,
            min_repeat_ms=min_repeat_ms,
            limit_zero_time_iterations=limit_zero_time_iterations,
            cooldown_interval_ms=cooldown_interval_ms,
            repeats_to_cooldown=repeats_to_cooldown,
            cache_flush_bytes=cache_flush_bytes,
            preprocess=preprocess,
        )

    def _what_there_is(self, wanted: str) -> str:
        """Functions here, and which imported module has the one that was wanted."""
        for module in self.walk():
            if module is not self and module.implements_function(wanted):
                return (
                    f"its import of kind '{module.kind}' has it: "
                    f"get_function('{wanted}', query_imports=True)"
                )
        names = sorted(self.function_names())
        if not names:
            return "it lists no functions"
        more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
        listing = "it has " + ", ".join(names[:_NAMES_SHOWN]) + more
        close = did_you_mean(wanted, names)
        return f"{close}; {listing}" if close else listing

    # --- the tree

    @property
    def imports(self) -> tuple[Module, ...]:
        """The modules that this one imports."""
        return tuple(self._imports)

    def walk(self) -> Iterator[Module]:
        """This module and all that it imports, depth first, each once."""
        seen: set[Hashable] = set()
        waiting: list[Module] = [self]
        while waiting:
            module = waiting.pop()
            if module.identity() in seen:
                continue
            seen.add(module.identity())
            yield module
            waiting.extend(reversed(module.imports))

    def identity(self) -> Hashable:
        """What two objects that stand for one module have in common."""
        return id(self)

    def import_module(self, module: Module) -> None:
        """Add a module to the imports.

        Raises: InputError for a module that imports this one, directly or not.
        """
        if not isinstance(module, Module):
            raise InputError(
                f"'{type(module).__name__}' is no module",
                hint="wrap a tvm_ffi.Module: tilewright.runtime.packed.genuine.as_module(it)",
            )
        if any(one.identity() == self.identity() for one in module.walk()):
            raise InputError(
                f"a module of kind '{self.kind}' cannot import one of kind '{module.kind}', "
                "which imports it"
            )
        self._add_import(module)

    def _add_import(self, module: Module) -> None:
        self._imports.append(module)

    def clear_imports(self) -> None:
        """Import nothing any more."""
        self._imports.clear()

    # --- properties

    def get_property_mask(self) -> int:
        """`properties` as a number."""
        return int(self.properties)

    def is_binary_serializable(self) -> bool:
        """Whether `save_to_bytes` works."""
        return bool(self.properties & ModuleProperties.BINARY_SERIALIZABLE)

    def is_runnable(self) -> bool:
        """Whether functions of it can be called."""
        return bool(self.properties & ModuleProperties.RUNNABLE)

    def is_compilation_exportable(self) -> bool:
        """Whether `write_to_file` works."""
        return bool(self.properties & ModuleProperties.COMPILATION_EXPORTABLE)

    @property
    def is_dso_exportable(self) -> bool:
        """The same under its name in TVM up to 0.19."""
        return self.is_compilation_exportable()

    # --- crossing the border

    def __tvm_ffi_object__(self) -> tvm_ffi.Object:
        """How tvm-ffi passes a module on: a Python object that comes out as it went in."""
        return opaque(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of kind '{self.kind}', {len(self.imports)} imports>"
