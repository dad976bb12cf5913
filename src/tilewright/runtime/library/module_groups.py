"""Which modules of a tree go to the linker, and which into the library as bytes.

All that can be linked become one place of the tree, the library itself; every other module keeps its own,
as its kind and its bytes.  Called by `export`.

Source: tvm-ffi's order of modules; TVM 0.27, `ModuleSerializer` in `src/target/codegen.cc`.
"""

from __future__ import annotations

from collections.abc import Hashable
from graphlib import CycleError, TopologicalSorter
from typing import Final, cast, final

from tilewright.base.errors import UserError
from tilewright.base.record import record
from tilewright.formats.library_blob import LIBRARY_ITSELF, LibraryBlob, SavedModule
from tilewright.runtime.library.link_files import linkable
from tilewright.runtime.packed.module import Module

_LIBRARY: Final = "library"


@final
@record
class Groups:
    """What becomes of the modules of a tree.

    Attributes:
        linked: those that go to the linker, in depth-first order.
        blob: the others, and who imports whom; None where everything is linked.
    """

    linked: tuple[Module, ...]
    blob: LibraryBlob | None


def group_modules(root: Module) -> Groups:
    """Sort the modules of a tree.

    Raises: UserError for a module that can neither be linked nor saved, or where linking modules into
        one library would make it import itself.
    """
    modules = list(root.walk())
    models = [model for m in modules if (model := linkable(m)) is not None]
    linked = tuple(
        m
        for m in modules
        if m.is_compilation_exportable() or any(one.goes_along(m) for one in models)
    )
    saved = [m for m in modules if m not in linked]
    lost = next((m for m in saved if not m.is_binary_serializable()), None)
    if lost is not None:
        raise UserError(
            f"a module of kind '{lost.kind}' can neither be linked nor saved as bytes",
            hint="its class says what it can in `properties`, and overrides save_to_bytes",
        )
    if not saved:
        return Groups(linked, None)
    return Groups(linked, _blob(modules, linked))


def _blob(modules: list[Module], linked: tuple[Module, ...]) -> LibraryBlob:
    in_library = {module.identity() for module in linked}
    places: dict[Hashable, int] = {}
    members: list[list[Module]] = []
    for module in modules:
        key = _LIBRARY if module.identity() in in_library else module.identity()
        if key not in places:
            places[key] = len(members)
            members.append([])
        members[places[key]].append(module)

    def place(module: Module) -> int:
        identity = module.identity()
        return places[_LIBRARY if identity in in_library else identity]

    imports = [
        tuple(dict.fromkeys(p for m in group for i in m.imports if (p := place(i)) != own))
        for own, group in enumerate(members)
    ]
    if _LIBRARY not in places:  # a loader wants to know where the library is
        members.append([])
        imports.append(())
    _check_circle(members, imports)
    library = places.get(_LIBRARY, len(members) - 1)
    return LibraryBlob(
        tuple(
            SavedModule(LIBRARY_ITSELF)
            if own == library
            else SavedModule(group[0].kind, group[0].save_to_bytes())
            for own, group in enumerate(members)
        ),
        tuple(imports),
    )


def _check_circle(members: list[list[Module]], imports: list[tuple[int, ...]]) -> None:
    """Raise where a group imports itself by way of others."""
    try:
        TopologicalSorter(dict(enumerate(imports))).prepare()
    except CycleError as error:
        circle = cast("list[int]", error.args[1])
        names = " → ".join(f"'{members[group][0].kind}'" for group in circle)
        raise UserError(
            f"one library of all that can be linked would import itself: {names}",
            hint="let modules that can be linked be imported by modules of their sort only",
        ) from error
