"""What a library is made of: generated C, the core's own, headers and weights.

Called by exports, which compile and link it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from tilewright.base.arena import align
from tilewright.base.errors import UserError
from tilewright.base.record import record
from tilewright.base.text import identifier
from tilewright.compiler.packaging.library.core_files import FOLDER as CORE
from tilewright.compiler.packaging.library.core_files import UNITS as CORE_UNITS
from tilewright.compiler.packaging.library.core_files import core_files
from tilewright.compiler.packaging.library.header import (
    fill,
    header_text,
    late_outputs,
)
from tilewright.compiler.packaging.library.interface import (
    CONTEXT_SYMBOL,
    PACKED_FUNCTIONS,
    entry_source,
    function_symbol,
    interface_source,
    weights_beside,
    weights_inside,
)
from tilewright.compiler.packaging.library.kernel_functions import (
    error_source,
    kernels_header,
    make_kernel_functions,
)
from tilewright.compiler.packaging.library.level import Level, refuse_host_steps
from tilewright.compiler.packaging.library.names import library_name
from tilewright.compiler.packaging.library.tables import level_source, scratch_bytes
from tilewright.compiler.packaging.library.weights import WeightsFile, place_inside
from tilewright.formats.byte_view import Buffer, view_bytes
from tilewright.formats.plan import Plan

DESCRIPTOR_SYMBOL: Final = "tilewright_model"
"""How a loader knows a library of ours: a function that returns its `<name>_interface` (see the header)."""

FLAGS: Final = (
    "-std=c11", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-strict-aliasing", "-D_GNU_SOURCE",
)  # fmt: skip
_CORE: Final = tuple(f"{CORE}/{unit}" for unit in CORE_UNITS)


@final
@record(kw_only=True)
class HostSources:
    """The host side of a model, in C11.

    All `files` go below one folder, where a compiler is started: each of `units` is compiled with `flags`
    (`.S` files are assembled by the C compiler) and linked with the kernels' objects and `link_flags`.

    Attributes:
        name: what every symbol begins with.
        files: contents by name.
        units: what every form of the library has.
        entry_units: also in shared libraries and executables; they define the names that do not begin
            with the model's (`tilewright_model`, `__tvm_ffi_main` …), of which a process has one each,
            so archives and objects that are linked with others go without.
        public: the headers for users of the library, also among `files`.
        exports: the symbols that a shared library shows (all else is hidden already).
        functions: the symbols of packed functions by their names.
        loader_symbols: further symbols that loaders look for.
    """

    name: str
    files: Mapping[str, Buffer]
    units: tuple[str, ...]
    entry_units: tuple[str, ...]
    public: tuple[str, ...]
    exports: tuple[str, ...]
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    functions: Mapping[str, str]
    loader_symbols: tuple[str, ...] = ()

    def closed(self) -> HostSources:
        """The same for a file that is linked once and for all, where no other linker sees the core's names.

        They need not be the library's, so the core's objects are those of every other such file.
        """
        return replace(self, files={**self.files, **core_files(None)})


def make_host_sources(
    levels: Sequence[Level],
    constants: Sequence[Buffer],
    name: str,
    *,
    weights: WeightsFile | None = None,
    kernel_functions: bool = False,
    symbol_prefix: str = "",
    texts: Mapping[str, str] | None = None,
) -> HostSources:
    """The host side of a library that chooses among `levels` by the processor it runs on.

    Args:
        levels: the code for each kind of processor, of one architecture and one model.
        constants: the contents of the constants of all levels, in the order that levels count them in.
        name: made a name of C (`library_name`).
        weights: where the constants lie outside of the library; None: inside.
        kernel_functions: also let each kernel be called alone.
        symbol_prefix: what the names of packed functions begin with, after tvm-ffi's own prefix.
        texts: what the library says of itself, by symbol; nothing reads it at run time.

    Raises: UserError for ops that run in Python, and for more weights than a library holds.
    """
    for level in levels:
        refuse_host_steps(level.plan)
    ordered = _in_order(levels)
    name = library_name(name)
    plan = ordered[0].plan
    context = f"{symbol_prefix}{CONTEXT_SYMBOL}"
    offsets, lines, stored = _weights(constants, name, weights)
    tables = _tables(ordered, name, context, offsets)
    interface = _interface(ordered, name, lines)
    units = {**tables, f"{name}.c": interface}
    kernels = make_kernel_functions(
        ordered if kernel_functions else (), name, symbol_prefix
    )
    functions = {n: function_symbol(n, symbol_prefix) for n in PACKED_FUNCTIONS}
    functions |= kernels.functions
    entries = {
        f"{name}_entry.c": entry_source(name, symbol_prefix).encode(),
        **kernels.entry_units,
        **_texts(texts, name),
    }
    public = _headers(ordered, name)
    assembled = [file for file in stored if file.endswith(".S")]
    sources = {**kernels.units, **units}
    return HostSources(
        name=name,
        files={**core_files(name), **stored, **sources, **entries, **public},
        units=(*_CORE, *assembled, *sources),
        entry_units=tuple(entries),
        public=tuple(public),
        exports=(*_exports(plan, name), *functions.values(), context, *(texts or ())),
        flags=FLAGS,
        link_flags=("-pthread",),
        functions=functions,
        loader_symbols=(context,),
    )


def make_kernel_sources(
    levels: Sequence[Level],
    title: str,
    name: str,
    *,
    symbol_prefix: str = "",
    texts: Mapping[str, str] | None = None,
) -> HostSources:
    """The host side of a library of kernels alone: packed functions of their tensors, and no model.

    Args:
        levels: as for `make_host_sources`; ops that run in Python do not matter.
        title: what the header calls the model.
        name: as for `make_host_sources`.
        symbol_prefix: likewise.
        texts: likewise.

    Raises: UserError where no kernel's tensors tell its sizes.
    """
    ordered = _in_order(levels)
    name = library_name(name)
    kernels = make_kernel_functions(ordered, name, symbol_prefix)
    if not kernels.plans:
        raise UserError(
            "no kernel can be called alone: the sizes of their tensors do not tell those of the model",
            location=title,
            hint="export the whole model, or compile it for fixed shapes",
        )
    told = _texts(texts, name)
    files: dict[str, Buffer] = {
        **core_files(name),
        **kernels.units,
        **kernels.entry_units,
        **told,
        f"{name}.c": error_source(name).encode(),
        f"{name}.h": kernels_header(kernels, title, name).encode(),
    }
    return HostSources(
        name=name,
        files=files,
        units=(*_CORE, *kernels.units, f"{name}.c"),
        entry_units=(*kernels.entry_units, *told),
        public=(f"{name}.h",),
        exports=(*kernels.functions.values(), f"{name}_error", *(texts or ())),
        flags=FLAGS,
        link_flags=("-pthread",),
        functions=kernels.functions,
    )


def _headers(levels: Sequence[Level], name: str) -> Mapping[str, bytes]:
    """The interface in C, and the class for C++."""
    labels = [level.label for level in levels]
    arena = max(align(max(level.plan.arena_bytes, 0)) for level in levels)
    scratch = max(scratch_bytes(level) for level in levels)
    words = {"NAME": name, "UPPER": name.upper()}
    return {
        f"{name}.h": header_text(levels[0].plan, name, labels, arena, scratch).encode(),
        f"{name}.hpp": fill("model.hpp", words).encode(),
    }


def _program_symbol(level: Level, name: str) -> str:
    return f"{name}_program_{identifier(level.label)}"


def _tables(
    levels: Sequence[Level],
    name: str,
    context: str,
    offsets: Sequence[int],
) -> Mapping[str, bytes]:
    """The tables of every level, a file each."""
    found: dict[str, bytes] = {}
    for level in levels:
        symbol = _program_symbol(level, name)
        text = level_source(level, symbol, context, offsets)
        found[f"{symbol}.c"] = text.encode()
    return found


def _interface(levels: Sequence[Level], name: str, weights: Sequence[str]) -> bytes:
    """The functions of the header."""
    rows = [(_program_symbol(level, name), level.label) for level in levels]
    return interface_source(levels[0].plan, name, rows, weights).encode()


def _texts(texts: Mapping[str, str] | None, name: str) -> Mapping[str, bytes]:
    """The file with what a library says of itself, if it says anything."""
    return {f"{name}_texts.c": _texts_source(texts).encode()} if texts else {}


def _texts_source(texts: Mapping[str, str]) -> str:
    """Texts as exported arrays; as numbers, since C bounds the length of strings."""
    lines = [f'#include "{CORE}/tw_packed.h"', ""]
    for symbol, text in texts.items():
        numbers = ", ".join(map(str, (*text.encode(), 0)))
        lines.append(f"TW_EXPORT const char {symbol}[] = {{{numbers}}};")
    return "\n".join(lines) + "\n"


def _in_order(levels: Sequence[Level]) -> list[Level]:
    """Levels that can be one library, best first.  Raises: UserError."""
    if not levels or len({level.arch for level in levels}) != 1:
        raise UserError("a library has code for one architecture")
    labels = [level.label for level in levels]
    if len({identifier(label) for label in labels}) != len(labels):
        raise UserError(f"two levels of a library have one name: {', '.join(labels)}")
    return sorted(levels, key=lambda level: len(level.features), reverse=True)


def _weights(
    constants: Sequence[Buffer], name: str, file: WeightsFile | None
) -> tuple[Sequence[int], list[str], dict[str, Buffer]]:
    """Where each constant begins, the lines of C that say in which bytes, and the files with those."""
    if file is not None:
        if len(file.offsets) != len(constants):
            raise UserError(
                f"the file has {len(file.offsets)} weights, the model {len(constants)}",
                location=file.name,
            )
        return file.offsets, weights_beside(file), {}
    offsets, size = place_inside(constants)
    lines = weights_inside(name, size)
    if not size:
        return offsets, lines, {}
    data = bytearray(size)
    for offset, constant in zip(offsets, constants, strict=True):
        view = view_bytes(constant)
        data[offset : offset + view.nbytes] = view
    assembly = fill("weights.S", {"NAME": name}).encode()
    return offsets, lines, {f"{name}_weights.S": assembly, f"{name}_weights.bin": data}


def _exports(plan: Plan, name: str) -> tuple[str, ...]:
    dynamic = ("prepare", "input_shape", "output_shape", "workspace_bytes")
    by_address = () if late_outputs(plan) else ("run_dims" if plan.dims else "run",)
    functions = (
        *("get_interface", "create", "destroy", "run_tensors", "run_allocating"),
        *("level", "error", *by_address, *(dynamic if plan.dims else ())),
    )
    return (
        *(f"{name}_{function}" for function in functions),
        DESCRIPTOR_SYMBOL,
    )
