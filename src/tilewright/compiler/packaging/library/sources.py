"""What a library is made of: generated C, the core's own, headers and weights.

Called by exports, which compile and link it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

from tilewright.base.errors import UserError
from tilewright.base.record import record
from tilewright.compiler.packaging.library.level import Level, refuse_host_steps
from tilewright.compiler.packaging.library.names import library_name
from tilewright.compiler.packaging.library.weights import WeightsFile
from tilewright.formats.byte_view import Buffer

DESCRIPTOR_SYMBOL: Final = "tilewright_model"
"""The symbol by which a loader knows a library of ours: a `<name>_interface` (see the header)."""


@final
@record(kw_only=True)
class HostSources:
    """The host side of a model, in C11.

    All `files` go into one folder, which is the include path.  Each of `units` is compiled with `flags`
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
    """

    name: str
    files: Mapping[str, Buffer]
    units: tuple[str, ...]
    entry_units: tuple[str, ...]
    public: tuple[str, ...]
    exports: tuple[str, ...]
    flags: tuple[str, ...]
    link_flags: tuple[str, ...]


def make_host_sources(
    levels: Sequence[Level],
    constants: Sequence[Buffer],
    name: str,
    *,
    weights: WeightsFile | None = None,
    graph_json: bool = True,
) -> HostSources:
    """The host side of a library that chooses among `levels` by the processor it runs on.

    Args:
        levels: the code for each kind of processor, of one architecture and one model.
        constants: the contents of the plans' constants, in order, the same for all levels.
        name: made a name of C (`library_name`).
        weights: where the constants lie outside of the library; None: inside.
        graph_json: also keep the plans in their file form, for `get_graph_json`.

    Raises: UserError for ops that run in Python, and for more weights than a library holds.
    """
    if not levels or len({level.arch for level in levels}) != 1:
        raise UserError("a library has code for one architecture")
    for level in levels:
        refuse_host_steps(level.plan)
    raise NotImplementedError(library_name(name), constants, weights, graph_json)
